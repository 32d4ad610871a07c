"""A compilation's artifacts: the list, each file, and the report."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from app.http.accept import prefers_html
from app.http.downloads import artifact_response, text_response
from app.openapi import document as documentation
from app.openapi.document import LOOKUP, Responses, answer, described, problems
from app.routes.lookup import CompilationDep, named_artifact
from app.service import ServiceDep, TenantService
from bessemer.bundle.manifest import REPORT, REPORT_PAGE
from bessemer.contract.job import LOG, Artifact, ArtifactList, Compilation
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import Report

router = APIRouter(prefix="/v1/compilations", tags=["artifacts"])

ArtifactName = Annotated[
    str, Path(description="A name from the list of artifacts.", examples=["bundle.tar.zst"])
]
BYTES: dict[str, Any] = {"*/*": {}}
"""Any file. OpenAPI 3.1 describes bytes by leaving out the schema; the list of artifacts has media types."""

NOT_MODIFIED: Responses = {304: documentation.NOT_MODIFIED}
DOWNLOAD = (
    described(200, "The whole artifact.", BYTES)
    | described(206, "The requested range.", BYTES)
    | NOT_MODIFIED
)
ARTIFACT_PROBLEMS = problems(*LOOKUP, ErrorCode.RANGE_NOT_SATISFIABLE)
REPORT_RESPONSE: Responses = {
    200: {
        "description": "The report: HTML if `Accept` prefers it, otherwise JSON.",
        "content": {"text/html": {"schema": {"type": "string"}}},
        "model": Report,
    }
}
ARTIFACTS_EXAMPLE = ArtifactList(
    items=(
        Artifact(name="bundle.tar.zst", digest="0" * 64, size_bytes=3_145_728, media_type="application/zstd"),
    )
)


@router.get(
    "/{id}/artifacts",
    summary="List the artifacts of a compilation",
    responses=answer(
        200,
        "The artifacts; empty while the compilation runs.",
        ARTIFACTS_EXAMPLE,
    )
    | problems(*LOOKUP),
)
async def list_artifacts(job: CompilationDep) -> ArtifactList:
    """List the names, sizes and digests of its files."""
    return ArtifactList(items=job.artifacts)


@router.get(
    "/{id}/artifacts/{name:path}",
    summary="Download an artifact",
    response_class=Response,
    responses=DOWNLOAD | ARTIFACT_PROBLEMS,
)
def get_artifact(service: ServiceDep, request: Request, job: CompilationDep, name: ArtifactName) -> Response:
    """Download a file, with its digest as `ETag`. Supports `Range`, `If-Range` and `If-None-Match`.

    A finished compilation that does not list `log.txt` answers with the tail of its log, which may be empty.
    """
    return _download(service, request, job, name)


@router.head(
    "/{id}/artifacts/{name:path}",
    summary="Get an artifact's size and digest",
    response_class=Response,
    responses=described(200, "The headers of the download.") | NOT_MODIFIED | problems(*LOOKUP),
)
def head_artifact(service: ServiceDep, request: Request, job: CompilationDep, name: ArtifactName) -> Response:
    """Return the headers of the download, without the body."""
    return _download(service, request, job, name)


@router.get(
    "/{id}/report",
    summary="Get the report of a compilation",
    response_class=Response,
    responses=REPORT_RESPONSE | NOT_MODIFIED | ARTIFACT_PROBLEMS,
)
def get_report(service: ServiceDep, request: Request, job: CompilationDep) -> Response:
    """Return accuracy, latency compared with the baselines, and the times of functions, passes and stages.

    A compilation that stopped early has only the JSON report.
    """
    has_page = any(artifact.name == REPORT_PAGE for artifact in job.artifacts)
    name = REPORT_PAGE if has_page and prefers_html(request.headers.get("accept")) else REPORT
    response = artifact_response(service, request, named_artifact(job, name), job.file_stem)
    response.headers["Vary"] = "Accept"
    return response


def _download(service: TenantService, request: Request, job: Compilation, name: str) -> Response:
    is_listed = any(artifact.name == name for artifact in job.artifacts)
    if name == LOG and job.state.final and not is_listed:
        return text_response(service.data.jobs.log_tail(job.id))
    return artifact_response(service, request, named_artifact(job, name), job.file_stem)
