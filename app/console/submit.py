"""The page that submits a model: a form made from the API's schema, which also works without scripts."""

from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from app.admission import offers_refusal, refusal
from app.console.form_texts import (
    TARGET_JSON,
    Draft,
    Texts,
    first,
    place_errors,
    read_draft,
    shown,
    target_words,
    texts_of,
    with_extensions,
    without_fields,
    wrong_targets,
)
from app.console.option_forms import known_names, option_groups
from app.console.rendering import page
from app.console.snippets import Model as SnippetModel
from app.console.snippets import snippets
from app.console.uploads import PART_BYTES
from app.http.bodies import MAX_DOCUMENT_BYTES, in_time
from app.http.forms import EXTENSION
from app.http.multipart import Form, Part, boundary_of
from app.http.problems import RefusalError, invalid_problem, refuse
from app.http.uploads import receive_extension, receive_model, refuse_if_too_large
from app.http.validation import errors_of
from app.observability.log_fields import is_job_id
from app.routes.submissions import submit_compilation
from app.routes.targets import list_targets
from app.service import ServiceDep, TenantService
from bessemer.contract.base import Digest, is_digest
from bessemer.contract.dynamic import shown_shape
from bessemer.contract.extension import MAX_EXTENSIONS, extension_name
from bessemer.contract.fleet import OfferedPreset
from bessemer.contract.group import Group
from bessemer.contract.model import Inspection, Model, ModelState
from bessemer.contract.names import name_of_file
from bessemer.contract.offers import Offers, joined_offers
from bessemer.contract.problem import ErrorCode, FieldError, Problem
from bessemer.contract.request import Submission
from bessemer.contract.tensor import DType, TensorSpec

PREFIX = "/console/submit"
NO_MODEL = "0" * 64
PART_OVERHEAD = 64
"""The bytes that a part of a form counts besides its name and its text: fewer than its headers have."""
OTHER_PATHS = (
    *("target", "target.cores", "target.features", TARGET_JSON, "inputs", "dimensions", "constants", "model"),
)
DTYPES = tuple(DType)
TO_FILL_IN = (ErrorCode.INPUTS_MISSING, ErrorCode.CONSTANTS_MISSING)
"""What the form itself asks for, so the form opens without this error."""

router = APIRouter(include_in_schema=False)


@router.get(PREFIX)
def show_form(
    request: Request, service: ServiceDep, id: Annotated[str, Query(alias="from")] = ""
) -> Response:
    """Ask for a model and what to do with it; ``from`` fills in the request of an earlier compilation."""
    texts: dict[str, list[str]] = {}
    missing: list[FieldError] = []
    earlier = service.data.jobs.get(id) if is_job_id(id) else None
    if earlier is not None:
        given = earlier.request.model_dump(mode="json", exclude_defaults=True)
        texts = {**texts_of(given, option_groups()), "model": [earlier.request.model]}
    elif id:
        missing.append(FieldError(field="from", message="no compilation has this id"))
    asked = _query_texts(request)
    if asked.keys() & {"target", "target.cores", "target.features"}:
        texts.pop(TARGET_JSON, None)
    texts |= asked
    digest = first(texts, "model")
    if digest and not (is_digest(digest) and service.data.models.get(digest)):
        missing.append(FieldError(field="model", message="no such model is stored: choose a file"))
    errors, problem = _checked(service, texts, read_draft(texts, option_groups()))
    if problem is not None and problem.code in TO_FILL_IN:
        problem = None
    return _page(request, service, texts, errors=(*missing, *errors), problem=problem)


@router.get(f"{PREFIX}/preview")
def preview(request: Request, service: ServiceDep) -> Response:
    """The request of the form as code, without its invalid fields, and the errors in these."""
    texts = _query_texts(request)
    draft = read_draft(texts, option_groups())
    errors, problem = _checked(service, texts, draft)
    placed, rest = place_errors(errors, _paths())
    code = _code(request, texts, draft, placed, errors)
    return page(request, "submit_preview.html.j2", code=code, placed=placed, rest=rest, problem=problem)


@router.get(f"{PREFIX}/model")
def show_signature(request: Request, service: ServiceDep, model: str = "") -> Response:
    """The signature of a model, or the state of its inspection."""
    return page(request, "submit_model.html.j2", **_signature(service, {"model": [model]}))


@router.post(PREFIX)
async def submit(request: Request, response: Response, service: ServiceDep) -> Response:
    """Store the model if the form has it, and compile it; show the form again if it is not valid."""
    texts, problem = await _received(request, service)
    if problem is not None:
        return await run_in_threadpool(_page, request, service, texts, problem.status, problem=problem)
    return await run_in_threadpool(_submit, request, response, service, texts)


def _submit(
    request: Request,
    response: Response,
    service: TenantService,
    texts: Texts,
) -> Response:
    digest = first(texts, "model")
    draft = read_draft(texts, option_groups())
    found, errors = _validated(draft, digest if is_digest(digest) else NO_MODEL)
    if not is_digest(digest):
        errors = (FieldError(field="model", message="required: choose a file"), *errors)
    if found is None or errors:
        return _page(request, service, texts, 422, errors)
    if found.name is None and (name := name_of_file(first(texts, "file_name"))):
        found = found.model_copy(update={"name": name})
    try:
        made = submit_compilation(service, response, found)
    except RefusalError as error:
        return _page(request, service, texts, error.problem.status, problem=error.problem)
    root = request.scope.get("root_path", "")
    where = f"?group={made.id}" if isinstance(made, Group) else f"/{made.id}"
    return RedirectResponse(f"{root}/console/compilations{where}", 303)


async def _received(request: Request, service: TenantService) -> tuple[dict[str, list[str]], Problem | None]:
    """Read a form: its texts, and why one of its extensions is refused.

    The form's files are stored, and their digests become texts.
    """
    boundary = boundary_of(request.headers.get("content-type", ""))
    if boundary is None:
        error = FieldError(field="body", message="expected a form of multipart/form-data")
        raise RefusalError(invalid_problem((error,)))
    settings = service.settings
    most_bytes = settings.max_upload_bytes + MAX_EXTENSIONS * settings.max_extension_bytes
    refuse_if_too_large(request, most_bytes + MAX_DOCUMENT_BYTES)
    texts: dict[str, list[str]] = {}
    extensions: dict[str, str | None] = {}
    problem: Problem | None = None
    left = MAX_DOCUMENT_BYTES
    async with aclosing(Request(request.scope, in_time(request)).stream()) as chunks:
        try:
            async for part in Form(boundary, chunks).parts():
                if part.file and part.name == EXTENSION:
                    problem = await _add_extension(service, part, extensions) or problem
                elif part.file:
                    name = name_of_file(part.file)
                    model, _ = await receive_model(service, part.chunks, None, name)
                    texts |= {"model": [model.digest], "file_name": [part.file]}
                elif part.file is None:
                    text = await _text(part, left)
                    left -= len(text) + len(part.name) + PART_OVERHEAD
                    if left < 0:
                        raise _too_large()
                    texts.setdefault(part.name, []).append(text)
        except ClientDisconnect as error:
            detail = "The connection closed before the form was complete."
            raise refuse(ErrorCode.UPLOAD_INCOMPLETE, detail) from error
    if problem is not None:
        texts.pop("extension_files", None)  # browsers do not keep the choice of files
    return (texts | with_extensions(texts, extensions) if extensions else texts), problem


async def _add_extension(
    service: TenantService, part: Part, extensions: dict[Digest, str | None]
) -> Problem | None:
    """Store an extension and add its name, or return why it is refused."""
    file = part.file or ""
    if len(extensions) == MAX_EXTENSIONS:
        message = f"expected {MAX_EXTENSIONS} entries at most"
        return invalid_problem((FieldError(field="extensions", message=message),))
    try:
        stored, _ = await receive_extension(service, part.chunks, None, extension_name(file))
    except RefusalError as error:
        message = f"{file}: {error.problem.detail} Choose another file."
        errors = (FieldError(field="extensions", message=message),)
        return error.problem.model_copy(update={"errors": errors})
    extensions[stored.digest] = extension_name(file)
    return None


async def _text(part: Part, limit: int) -> str:
    data = bytearray()
    chunks: AsyncIterator[bytes] = part.chunks
    async for chunk in chunks:
        data += chunk
        if len(data) > limit:
            raise _too_large()
    return data.decode(errors="replace")


def _too_large() -> RefusalError:
    return refuse(ErrorCode.REQUEST_TOO_LARGE, f"The form exceeds {MAX_DOCUMENT_BYTES} bytes.")


def _query_texts(request: Request) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    for name, text in request.query_params.multi_items():
        texts.setdefault(name, []).append(text)
    return texts


def _page(
    request: Request,
    service: TenantService,
    texts: Texts,
    status: int = 200,
    errors: tuple[FieldError, ...] = (),
    problem: Problem | None = None,
) -> Response:
    draft = read_draft(texts, option_groups())
    offered = list_targets(service)
    if problem is not None and problem.errors:
        errors = (*errors, *problem.errors)
    placed, rest = place_errors(errors, _paths())
    return page(
        request,
        "submit.html.j2",
        status,
        groups=option_groups(),
        placed=placed,
        rest=rest,
        problem=problem,
        code=_code(request, texts, draft, placed, errors),
        shown=lambda option: shown(option, texts),
        families=target_families(offered.items),
        processors=sorted({name for names in offered.processors.values() for name in names}),
        chosen=target_words(texts) if "target" in texts else ("host",),
        presets=frozenset(preset.name for preset in offered.items),
        known=known_names(_offers(service), service.data.devices.live()),
        part_bytes=PART_BYTES,
        max_bytes=service.settings.max_upload_bytes,
        **_signature(service, texts),
    )


@dataclass(frozen=True)
class TargetFamily:
    """Presets of one kind of processor."""

    title: str
    presets: tuple[OfferedPreset, ...]


FAMILIES = {"x86_64": "x86-64", "aarch64": "64-bit Arm", "arm64": "Apple", "riscv64": "RISC-V"}


def target_families(presets: tuple[OfferedPreset, ...]) -> tuple[TargetFamily, ...]:
    """Presets by the kind of their processors, in order."""
    found: dict[str, list[OfferedPreset]] = {}
    for preset in presets:
        architecture = preset.triple.partition("-")[0]
        title = "NVIDIA GPUs" if preset.gpus else FAMILIES.get(architecture, architecture)
        found.setdefault(title, []).append(preset)
    return tuple(TargetFamily(title, tuple(each)) for title, each in found.items())


def _signature(service: TenantService, texts: Texts) -> dict[str, Any]:
    """What the templates show of the form's model."""
    digest = first(texts, "model")
    model = service.data.models.get(digest) if is_digest(digest) else None
    inspection = model.inspection if model is not None else None
    return {
        "model": model,
        "is_inspecting": model is not None and model.state is ModelState.INSPECTING,
        "has_worker": bool(service.live_workers()),
        "rows": () if inspection is None else input_rows(inspection, texts),
        "inspection": inspection,
        "texts": texts,
        "dtypes": DTYPES,
    }


def input_rows(inspection: Inspection, texts: Texts) -> tuple[dict[str, str], ...]:
    """The inputs of a model as rows of the form: filled in from its file, or to fill in."""
    signature = inspection.signature
    given = dict(zip(texts.get("input.name", ()), texts.get("input.shape", ()), strict=False))
    dtypes = dict(zip(texts.get("input.name", ()), texts.get("input.dtype", ()), strict=False))
    if signature.inputs:
        rows = [_known_row(spec, shown_shape(spec, signature.dynamic.inputs)) for spec in signature.inputs]
    else:
        constants = {constant.name for constant in signature.constants}
        names = [name for name in signature.input_names if name not in constants]
        open_names = {each.name for each in signature.call.arguments if each.structure is None and each.type}
        rows = [
            {"name": name, "shape": "", "dtype": DType.FLOAT32.value, "known": "", "example": ""}
            for name in names
            if name not in open_names or not _is_container(inspection, name)
        ]
    return tuple(
        {**row, "shape": given.get(row["name"], row["shape"]), "dtype": dtypes.get(row["name"], row["dtype"])}
        for row in rows
    )


def _known_row(spec: TensorSpec, shown: str) -> dict[str, str]:
    known = shown.partition("=")[2]
    return {
        "name": spec.name,
        "shape": known.rpartition(":")[0],
        "dtype": spec.dtype.value,
        "known": known,
        "example": str(spec).partition("=")[2],
    }


def _is_container(inspection: Inspection, name: str) -> bool:
    types = (each.type or "" for each in inspection.signature.call.arguments if each.name == name)
    return any(type.startswith(("List", "Dict", "Optional[List", "Tuple")) for type in types)


def _offers(service: TenantService) -> Offers:
    return joined_offers(each.offers for each in service.live_workers() if each.offers is not None)


def _code(
    request: Request, texts: Texts, draft: Draft, wrong: Iterable[str], errors: Iterable[FieldError]
) -> Any:
    """The request of the form as code, without the fields that are wrong."""
    document = without_fields(draft.document, wrong, wrong_targets(errors))
    digest = first(texts, "model")
    files = tuple(first(texts, "extension_files").splitlines()[:MAX_EXTENSIONS])
    model = SnippetModel(first(texts, "file_name"), digest if is_digest(digest) else "", files)
    url = str(request.base_url).rstrip("/")
    return snippets(document, model, url, request.state.caller.subject != "anonymous")


def _validated(draft: Draft, digest: str) -> tuple[Submission | None, tuple[FieldError, ...]]:
    """The request with a model, or what is wrong with it."""
    try:
        found = Submission.model_validate({"model": digest, **draft.document})
    except ValidationError as error:
        return None, (*draft.errors, *errors_of(error))
    return (None if draft.errors else found), draft.errors


def _checked(
    service: TenantService, texts: Texts, draft: Draft
) -> tuple[tuple[FieldError, ...], Problem | None]:
    """The errors in a form's fields, and why the service would refuse a request without such errors."""
    found, errors = _validated(draft, NO_MODEL)
    if found is None:
        return errors, None
    has_files = bool(first(texts, "extension_files"))
    unknown = None if has_files else offers_refusal(found, service.live_workers())
    return (() if unknown is None else unknown.errors), _early_refusal(service, texts, found)


def _early_refusal(service: TenantService, texts: Texts, found: Submission) -> Problem | None:
    """Why the service would refuse a valid request, if it has already inspected the model."""
    digest = first(texts, "model")
    model: Model | None = service.data.models.get(digest) if is_digest(digest) else None
    if model is None or model.inspection is None or found.entries:
        return None
    return refusal(found.model_copy(update={"model": digest}), model)


def _paths() -> tuple[str, ...]:
    return (*OTHER_PATHS, *(option.path for group in option_groups() for option in group.fields))
