"""Artifacts as responses: ranges, conditions, and headers that keep a browser from running them."""

from collections.abc import Iterator
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import Response, StreamingResponse

from app.http.problems import RefusalError
from app.http.ranges import ByteRange, RangeNotSatisfiableError, not_modified, requested_range
from app.service import TenantService
from bessemer.bundle.manifest import ARCHIVE
from bessemer.contract.job import Artifact
from bessemer.contract.problem import ErrorCode, make_problem

INLINE_MEDIA_TYPES = frozenset({"text/html", "application/json", "text/plain", "image/svg+xml"})
CONTENT_SECURITY_POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def artifact_response(
    service: TenantService, request: Request, artifact: Artifact, stem: str | None = None
) -> Response:
    """The artifact, the requested range of it, or 304. Blocks.

    Args:
        service: the service as the artifact's owner sees it.
        request: the request.
        artifact: the artifact.
        stem: the start of the file name for browsers; by default, the artifact's own name.

    Raises:
        RefusalError: 416, the range is malformed, or outside the artifact.
        BlobMissingError: the artifact's bytes were deleted.
    """
    etag = f'"{artifact.digest}"'
    headers = _headers(artifact, etag, stem)
    if not_modified(request.headers.get("if-none-match"), etag):
        return Response(status_code=304, headers=headers)
    part = _part(request, etag, artifact)
    if part is None:
        return _body(service, request, artifact, ByteRange(0, artifact.size_bytes), 200, headers)
    headers["Content-Range"] = f"bytes {part.start}-{part.end - 1}/{artifact.size_bytes}"
    return _body(service, request, artifact, part, 206, headers)


def text_response(text: str) -> Response:
    """A job's output, which may be hostile, as plain text that is not cached."""
    headers = {
        "Cache-Control": "no-store",
        "Content-Security-Policy": CONTENT_SECURITY_POLICY,
        "X-Content-Type-Options": "nosniff",
    }
    return Response(text, headers=headers, media_type="text/plain; charset=utf-8")


def _part(request: Request, etag: str, artifact: Artifact) -> ByteRange | None:
    if request.method != "GET":
        return None
    asked = request.headers.get("range")
    try:
        return requested_range(asked, request.headers.get("if-range"), etag, artifact.size_bytes)
    except RangeNotSatisfiableError as error:
        detail = f"Range '{asked}' is outside {artifact.name}, which has {artifact.size_bytes} bytes."
        raise RefusalError(
            make_problem(ErrorCode.RANGE_NOT_SATISFIABLE, detail),
            {"Content-Range": f"bytes */{artifact.size_bytes}"},
        ) from error


def _body(
    service: TenantService,
    request: Request,
    artifact: Artifact,
    part: ByteRange,
    status: int,
    headers: dict[str, str],
) -> Response:
    chunks: Iterator[bytes] = service.data.artifacts.stream(artifact.digest, part.start, part.end)
    if request.method == "HEAD":
        chunks = iter(())
    headers["Content-Length"] = str(part.end - part.start)
    return StreamingResponse(chunks, status, headers, media_type=artifact.media_type)


def _headers(artifact: Artifact, etag: str, stem: str | None) -> dict[str, str]:
    return {
        "ETag": etag,
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-cache",
        "Content-Disposition": _disposition(artifact, stem),
        "Content-Security-Policy": CONTENT_SECURITY_POLICY,
        "X-Content-Type-Options": "nosniff",
    }


def _file_name(artifact: Artifact, stem: str | None) -> str:
    """``mlp-host.tar.zst`` for the bundle, ``mlp-host-report.html`` for another file."""
    name = artifact.name.rpartition("/")[2]
    if stem is None:
        return name
    return f"{stem}{ARCHIVE.removeprefix('bundle')}" if name == ARCHIVE else f"{stem}-{name}"


def _disposition(artifact: Artifact, stem: str | None) -> str:
    """Inline for types that a browser can show, otherwise an attachment, with an escaped name."""
    kind = "inline" if artifact.media_type.partition(";")[0] in INLINE_MEDIA_TYPES else "attachment"
    name = _file_name(artifact, stem)
    plain = "".join(c if c.isascii() and c.isprintable() and c not in '"\\%' else "_" for c in name)
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
