"""Upload models and submit compilations."""

import os
import tempfile
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from bessemer.bundle.manifest import DATABASE_FILES, RECORD_EXTENSIONS, RECORDS_FOLDER
from bessemer.client.exporting import (
    NO_CONSTANTS,
    Constants,
    Exported,
    is_programs,
    save_module,
    save_programs,
    torch_kind,
)
from bessemer.client.inputs import (
    NO_DIMENSIONS,
    Dimensions,
    Inputs,
    named_specs,
    ranges_of,
    validated,
)
from bessemer.client.ir_modules import NOTHING, Beside, ir_module_bytes, is_ir_module, packed
from bessemer.client.options import SubmitOptions, UploadOptions
from bessemer.client.sources import (
    ExtensionSource,
    ModelSource,
    Progress,
    Source,
    file_source,
    is_shortened_digest,
    memory_source,
    read_file,
)
from bessemer.client.steps import Call, Flow, Sleep, Work, exchange, fetch
from bessemer.contract.base import Digest, Document, is_digest
from bessemer.contract.error_words import validation_message
from bessemer.contract.extension import Extension, extension_name
from bessemer.contract.group import Group
from bessemer.contract.job import Compilation
from bessemer.contract.model import Model, ModelState
from bessemer.contract.names import Name, as_name, name_of_file
from bessemer.contract.options import TuneOptions
from bessemer.contract.request import CompilationRequest, Entry, Submission
from bessemer.contract.target import Target
from bessemer.contract.tensor import InputSpec
from bessemer.errors import InvalidArgumentError, ModelRejectedError

Uploaded = TypeVar("Uploaded", bound=Document)
Request = TypeVar("Request", bound=Submission)

_NAME: TypeAdapter[str] = TypeAdapter(Name)
NOT_FOUND = frozenset({404})
INSPECTION_POLL_SECONDS = 0.05
UPLOAD_ANSWER_SECONDS = 600.0
"""The timeout of an upload's response, which the server sends only after it has stored the upload."""


def upload_all(
    kind: type[Request],
    model: ModelSource,
    inputs: Inputs,
    dimensions: Dimensions,
    options: Mapping[str, object],
    progress: Progress | None = None,
    beside: Beside = NOTHING,
    extensions: Iterable[ExtensionSource] = (),
    schedules: Mapping[str, ExtensionSource] = MappingProxyType({}),
    records: str | os.PathLike[str] | None = None,
) -> Flow[Request]:
    """Upload the model and the extensions if the server lacks them; returns the request to submit.

    ``options`` are other fields of the request; fields that are None are left out. ``beside`` is uploaded
    with an IRModule.
    """
    extensions = tuple(extensions)
    digests = yield from upload_extensions(extensions)
    names = extension_names(zip(digests, extensions, strict=True))
    if schedules:
        sources = yield from upload_schedules(schedules)
        of_schedules = tuple(source.partition(":")[0] for source in sources.values())
        names = {**extension_names(zip(of_schedules, schedules.values(), strict=True)), **names}
        digests += of_schedules
        options = _with_tuning(options, schedules=sources)
    if records is not None:
        found = yield from upload_records(records)
        options = _with_tuning(options, records=found)
    if digests:
        options = {**options, "extensions": tuple(dict.fromkeys(digests)), "extension_names": names}
    constants: Constants = options.get("constants") or NO_CONSTANTS  # type: ignore[assignment]
    if is_shortened_digest(model):
        model = (yield from get_model(str(model))).digest
    if isinstance(model, Mapping) and not is_programs(model):
        if beside:
            raise InvalidArgumentError(
                "weights and a reference need one IRModule, not a dictionary of models"
            )
        first, options = yield from _upload_entries(model, options, progress)
        return (yield from upload_all(kind, first, inputs, dimensions, options, progress))
    with tempfile.TemporaryDirectory(prefix="bessemer-") as folder:
        digest, source, specs = yield Work(
            lambda: _prepare(_with_beside(model, beside), inputs, dimensions, constants, Path(folder))
        )
        given = {
            **options,
            "model": digest,
            "inputs": specs or None,
            "dimensions": ranges_of(dimensions) or None,
            "name": options.get("name") or name_of_model(model),
        }
        if given.get("entries") is None and is_programs(model):
            given["entries"] = {name: {} for name in model}
        fields = {name: value for name, value in given.items() if value is not None}
        request = validated(kind, fields)
        if source is not None and not (yield from _has(digest)):
            yield from _put_model(source, name_of_model(model) or request.name, progress)
    return request


def upload_all_for(
    model: ModelSource, targets: tuple[str | Target, ...], options: SubmitOptions
) -> Flow[Submission]:
    """Upload what a submission for several targets needs; returns the request to submit."""
    uploads = UploadOptions.__annotations__
    fields = {name: value for name, value in options.items() if name not in uploads}
    return upload_all(
        Submission,
        model,
        options.get("inputs", ()),
        options.get("dimensions", NO_DIMENSIONS),
        {**fields, "target": targets},
        options.get("progress"),
        Beside(options.get("weights"), options.get("reference")),
        options.get("extensions", ()),
        options.get("schedules", {}),
        options.get("records"),
    )


def _with_tuning(options: Mapping[str, object], **given: object) -> Mapping[str, object]:
    tune = validated(TuneOptions, options.get("tune") or {})
    return {**options, "tune": tune.model_copy(update=given)}


def _upload_entries(
    models: Mapping[str, ModelSource], options: Mapping[str, object], progress: Progress | None
) -> Flow[tuple[Digest, dict[str, object]]]:
    """Upload a model for each entry point; returns the first's digest and the options with the entries."""
    given = options.get("entries") or {}
    if not models or not isinstance(given, Mapping) or not set(given) <= set(models):
        raise InvalidArgumentError("a dictionary of models needs one for each of the entries")
    entries = {}
    for name, model in models.items():
        digest = model if is_digest(model) else (yield from upload(_as_file(name, model), progress)).digest
        fields = validated(Entry, dict(given.get(name) or {}))
        entries[name] = fields.model_copy(update={"model": digest}).model_dump(exclude_unset=True)
    first = next(iter(models))
    named = options.get("name") or name_of_model(models[first])
    return entries[first]["model"], {**options, "name": named, "entries": entries}


def _as_file(name: str, model: ModelSource) -> str | os.PathLike[str] | bytes:
    if isinstance(model, str | os.PathLike | bytes):
        return model
    raise InvalidArgumentError(
        f"'{name}' is a {type(model).__name__}; a dictionary of models has paths, bytes and digests, or "
        "exported programs alone"
    )


def post(request: CompilationRequest) -> Flow[Compilation]:
    """Submit a compilation of an uploaded model. Retries do not create a second job."""
    return fetch(Compilation, _call(request))


def post_group(request: Submission) -> Flow[Group]:
    """Submit the compilations of an uploaded model for several targets. Retries do not create a second group.

    Raises:
        InvalidArgumentError: the request has one target that is not in a list.
    """
    if not isinstance(request.target, tuple):
        raise InvalidArgumentError("a group needs a list of targets")
    return (yield from fetch(Group, _call(request)))


def _call(request: Submission) -> Call:
    body = request.model_dump_json(exclude_unset=True).encode()
    headers = {"Content-Type": "application/json", "Idempotency-Key": uuid.uuid4().hex}
    return Call("POST", "/v1/compilations", headers=headers, chunks=lambda: iter((body,)))


def upload(
    model: str | os.PathLike[str] | bytes, progress: Progress | None = None, name: str | None = None
) -> Flow[Model]:
    """Upload a model unless the server has it. Repeat an inspection that failed for an outside reason."""
    name = _checked_name(name) or name_of_model(model)
    source: Source = yield Work(lambda: _source(model))
    if (yield from _has(source.digest)):
        found = yield from get_model(source.digest)
        if found.state is not ModelState.REJECTED or found.defective:
            return found
    return (yield from _put_model(source, name, progress))


def inspect(
    model: str | os.PathLike[str] | bytes, progress: Progress | None = None, name: str | None = None
) -> Flow[Model]:
    """Upload a model unless the server has it, or find it by its digest; wait for its inspection."""
    known = is_digest(model) or is_shortened_digest(model)
    found = (yield from get_model(str(model))) if known else (yield from upload(model, progress, name))
    while found.state is ModelState.INSPECTING:
        yield Sleep(INSPECTION_POLL_SECONDS)
        found = yield from get_model(found.digest)
    if found.state is ModelState.REJECTED:
        raise ModelRejectedError(found)
    return found


def upload_extensions(extensions: Iterable[ExtensionSource]) -> Flow[tuple[Digest, ...]]:
    """Upload extensions unless the server has them; returns their digests in this order."""
    digests = []
    for extension in extensions:
        digests.append(extension if is_digest(extension) else (yield from upload_extension(extension)).digest)
    return tuple(digests)


def extension_names(files: Iterable[tuple[Digest, ExtensionSource]]) -> dict[Digest, str]:
    """The file names of extensions or schedules by digest; bytes and digests have none."""
    names: dict[Digest, str] = {}
    for digest, source in files:
        file = _split(source)[0]
        name = None if isinstance(file, bytes) or is_digest(file) else extension_name(str(file))
        if name is not None:
            names.setdefault(digest, name)
    return names


def upload_schedules(schedules: Mapping[str, ExtensionSource]) -> Flow[dict[str, str]]:
    """Upload the files of schedules unless the server has them.

    Args:
        schedules: files by functions: a path, bytes, a digest, or ``FILE.py:NAME`` for a function in a file.

    Returns:
        The digests in place of the files.
    """
    sources = {}
    for function, source in schedules.items():
        file, name = _split(source)
        digest = file if is_digest(file) else (yield from upload_extension(file)).digest
        sources[function] = f"{digest}:{name}" if name else digest
    return sources


def upload_records(folder: str | os.PathLike[str]) -> Flow[tuple[Digest, ...]]:
    """Upload the records of an earlier search, from a bundle or from MetaSchedule's work directory.

    Raises:
        InvalidArgumentError: the folder, or the folder of the file, lacks one of the two files.
    """
    path = Path(folder)
    candidates = (path, path / RECORDS_FOLDER, path.parent)
    chosen = next((each for each in candidates if _has_records(each)), None)
    if chosen is None:
        raise InvalidArgumentError(f"{path} does not contain {' and '.join(DATABASE_FILES)}")
    empty = next((name for name in DATABASE_FILES if not (chosen / name).stat().st_size), None)
    if empty is not None:
        raise InvalidArgumentError(f"{chosen / empty} is empty: its search kept no records")
    digests = []
    for name in (*DATABASE_FILES, RECORD_EXTENSIONS):
        if (chosen / name).is_file():
            digests.append((yield from upload_extension(chosen / name)).digest)
    return tuple(digests)


def _has_records(folder: Path) -> bool:
    return all((folder / name).is_file() for name in DATABASE_FILES)


def _split(source: ExtensionSource) -> tuple[ExtensionSource, str]:
    if not isinstance(source, str):
        return source, ""
    file, colon, name = source.rpartition(":")
    return (file, name) if colon and name.isidentifier() else (source, "")


def upload_extension(extension: str | os.PathLike[str] | bytes, name: str | None = None) -> Flow[Extension]:
    """Upload an extension unless the server has it."""
    is_path = isinstance(extension, str | os.PathLike)
    name = _checked_name(name) or (extension_name(str(extension)) if is_path else None)
    source: Source = yield Work(lambda: _source(extension))
    path = f"/v1/extensions/{source.digest}"
    reply = yield from exchange(Call("GET", path), accept=NOT_FOUND)
    if reply.status != 404:
        return Extension.read_json(reply.body)
    return (yield from _put(Extension, path, source, name, None))


def get_model(digest: Digest) -> Flow[Model]:
    """Get an uploaded model."""
    return fetch(Model, Call("GET", f"/v1/models/{quote(digest, safe='')}"))


def get_extension(digest: Digest) -> Flow[Extension]:
    """Get an uploaded extension."""
    return fetch(Extension, Call("GET", f"/v1/extensions/{quote(digest, safe='')}"))


def name_of_model(model: ModelSource) -> str | None:
    """The default name: a file's name or a module's class; None for bytes, digests and exported programs."""
    if isinstance(model, str | os.PathLike):
        return None if is_digest(model) else name_of_file(Path(model).name)
    kind = torch_kind(model)
    if kind in (None, "program"):
        return None
    return as_name(str(getattr(model, "original_name", type(model).__name__)))


def _with_beside(model: ModelSource, beside: Beside) -> ModelSource:
    """An IRModule as bytes, with the arrays beside it; other models unchanged."""
    content: object = ir_module_bytes(model) if is_ir_module(model) else model
    if not beside:
        return content
    if is_digest(model) or not isinstance(content, str | os.PathLike | bytes):
        raise InvalidArgumentError("weights and a reference need an IRModule: an object, a path or bytes")
    return packed(content if isinstance(content, bytes) else read_file(content), beside)


def _prepare(
    model: ModelSource, inputs: Inputs, dimensions: Dimensions, constants: Constants, folder: Path
) -> tuple[Digest, Source | None, tuple[InputSpec, ...]]:
    if is_digest(model):
        return model, None, named_specs(inputs)
    if is_programs(model):
        source = file_source(save_programs(model, folder))
        return source.digest, source, ()
    if torch_kind(model) is not None:
        exported: Exported = save_module(model, inputs, folder, dimensions, constants)
        source = file_source(exported.path)
        return source.digest, source, exported.inputs
    source = _source(model)
    return source.digest, source, named_specs(inputs)


def _source(model: ModelSource) -> Source:
    if isinstance(model, bytes):
        return memory_source(model)
    if isinstance(model, str | os.PathLike):
        return file_source(model)
    raise InvalidArgumentError(
        f"a {type(model).__name__} is not a model; "
        "pass a path, bytes, a digest, a torch module or an IRModule"
    )


def _has(digest: Digest) -> Flow[bool]:
    reply = yield from exchange(Call("GET", f"/v1/models/{digest}"), accept=NOT_FOUND)
    return reply.status != 404


def _put_model(source: Source, name: str | None, progress: Progress | None) -> Flow[Model]:
    return _put(Model, f"/v1/models/{source.digest}", source, name, progress)


def _put(
    document: type[Uploaded], path: str, source: Source, name: str | None, progress: Progress | None
) -> Flow[Uploaded]:
    headers = {"Content-Type": "application/octet-stream", "Content-Length": str(source.size_bytes)}
    call = Call(
        "PUT",
        path,
        params={} if name is None else {"name": name},
        headers=headers,
        chunks=lambda: source.chunks(progress),
        read_timeout_seconds=UPLOAD_ANSWER_SECONDS,
    )
    return fetch(document, call)


def _checked_name(name: str | None) -> str | None:
    try:
        return None if name is None else _NAME.validate_python(name)
    except ValidationError as error:
        raise InvalidArgumentError(f"name: {validation_message(error)}") from error
