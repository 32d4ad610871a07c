"""The module between the passes: the list, each snapshot, and what each pass changed."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from app.http.downloads import CONTENT_SECURITY_POLICY
from app.http.lookup import CompilationDep
from app.openapi import document as documentation
from app.openapi.document import LOOKUP, described, problems
from app.service import ServiceDep
from app.snapshots import named_step, read_listing, read_text
from bessemer.contract.ir import IrListing

router = APIRouter(prefix="/v1/compilations", tags=["artifacts"])

HEADERS = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": CONTENT_SECURITY_POLICY}
MEDIA_TYPE = "text/plain; charset=utf-8"
PLAIN: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}
REFUSALS = problems(*LOOKUP)

StepName = Annotated[
    str,
    Path(
        min_length=1,
        max_length=200,
        description="The `step` of an entry of the list, or its `name` where only one entry has that name.",
        examples=["FuseTIR"],
    ),
]


@router.get(
    "/{id}/ir",
    summary="List the snapshots of the module",
    responses=documentation.answer(200, "The snapshots, in their order.", documentation.IR) | REFUSALS,
)
def list_ir(service: ServiceDep, job: CompilationDep) -> IrListing:
    """After translate, after every pass of optimize, after tune; where the request said `inspect.ir`.

    They are there once the compilation has ended; one that failed has those from before.
    """
    return read_listing(service, job)


@router.get(
    "/{id}/ir/{step}",
    summary="Read a snapshot",
    response_class=Response,
    responses=described(200, "TVMScript, without the elements of constants.", PLAIN) | REFUSALS,
)
def get_ir(service: ServiceDep, job: CompilationDep, step: StepName) -> Response:
    """The module after a step, as TVMScript."""
    entry = named_step(job, read_listing(service, job), step)
    return Response(read_text(service, job, entry.text), headers=HEADERS, media_type=MEDIA_TYPE)


@router.get(
    "/{id}/ir/{step}/diff",
    summary="Read what a step changed",
    response_class=Response,
    responses=described(200, "A unified diff from the step before; empty where nothing changed.", PLAIN)
    | REFUSALS,
)
def get_ir_diff(service: ServiceDep, job: CompilationDep, step: StepName) -> Response:
    """What the step changed, as a unified diff."""
    entry = named_step(job, read_listing(service, job), step)
    return Response(read_text(service, job, entry.diff), headers=HEADERS, media_type=MEDIA_TYPE)
