"""What each function of a library computes, and its LLVM IR, assembly or PTX."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from pydantic import ValidationError

from app.http.problems import refuse
from app.openapi import document as documentation
from app.openapi.document import LOOKUP, described, problems
from app.routes.ir import HEADERS, MEDIA_TYPE, read_text
from app.routes.lookup import CompilationDep, named_artifact
from app.service import ServiceDep, TenantService
from bessemer.contract.code import (
    CODE_INDEX,
    CODE_TEXTS,
    MAX_CODE_INDEX_BYTES,
    CodeFunction,
    CodeKind,
    CodeListing,
)
from bessemer.contract.job import Compilation
from bessemer.contract.problem import ErrorCode
from bessemer.store.errors import DamagedError

router = APIRouter(prefix="/v1/compilations", tags=["artifacts"])

PLAIN: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}
REFUSALS = problems(*LOOKUP)

FunctionName = Annotated[
    str,
    Path(min_length=1, max_length=200, description="The function's name.", examples=["fused_linear_relu"]),
]
FunctionKind = Annotated[CodeKind, Path(description="The form of the code.", examples=["assembly"])]


@router.get(
    "/{id}/code",
    summary="Get the functions of the library",
    responses=documentation.answer(200, "The functions, calls and operators.", documentation.CODE) | REFUSALS,
)
def list_code(service: ServiceDep, job: CompilationDep) -> CodeListing:
    """Return the library's functions, the calls of one run, and the operators of the model that each has.

    Requires `inspect.ir` or `inspect.assembly` in the request, and a compilation that finished `build`.
    """
    return read_code(service, job)


@router.get(
    "/{id}/code/{function}/{kind}",
    summary="Get a function's LLVM IR, assembly or PTX",
    response_class=Response,
    responses=described(200, "The function, then the functions that only it calls.", PLAIN) | REFUSALS,
)
def get_code(
    service: ServiceDep, job: CompilationDep, function: FunctionName, kind: FunctionKind
) -> Response:
    """Return a function's code; empty without `inspect.assembly` in the request.

    A function of a CPU has LLVM IR and assembly, and a function of a GPU the PTX of its kernels.
    """
    entry = named_function(job, read_code(service, job), function)
    data = read_text(service, job, entry.text(kind), CODE_TEXTS)
    return Response(data, headers=HEADERS, media_type=MEDIA_TYPE)


def read_code(service: TenantService, job: Compilation) -> CodeListing:
    """The list of a library's functions. Blocks.

    Raises:
        RefusalError: 404, the request did not ask for it, or the job wrote none.
        BlobMissingError: the artifact's bytes were deleted.
    """
    inspect = job.request.inspect
    if not (inspect.ir or inspect.assembly):
        detail = f"Compilation {job.id} kept no code: ask for it with `inspect.ir` or `inspect.assembly`."
        raise refuse(ErrorCode.NOT_FOUND, detail)
    artifact = named_artifact(job, CODE_INDEX)
    unreadable = refuse(ErrorCode.NOT_FOUND, f"The code of compilation {job.id} cannot be read.")
    if artifact.size_bytes > MAX_CODE_INDEX_BYTES:
        raise unreadable
    try:
        return CodeListing.read_json(b"".join(service.data.artifacts.stream(artifact.digest)))
    except (ValidationError, DamagedError) as error:
        raise unreadable from error


def named_function(job: Compilation, listing: CodeListing, name: str) -> CodeFunction:
    """The function with a name.

    Raises:
        RefusalError: 404, the job wrote none.
    """
    found = listing.named(name)
    if found is None:
        detail = f"Compilation {job.id} has no function '{name}'{listing.hint(name)}"
        raise refuse(ErrorCode.NOT_FOUND, detail)
    return found
