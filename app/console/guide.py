"""The documentation site at ``/guide``, which mkdocs builds from ``docs/``."""

import base64
import gzip
import hashlib
import mimetypes
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from app.console import rendering
from app.console.rendering import page
from bessemer.contract.problem import ErrorCode, make_problem

INDEX = "index.html"
SMALLEST_COMPRESSED = 1024
CACHE_CONTROL = "no-cache"
MOST_CACHED = 256
MAX_NAME = 200
"""In bytes: longer than every name in the site, and short enough for every file system."""
POLICY = (
    "default-src 'none'; script-src 'self'{hashes}; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""The content security policy: the site's own files, and a page's inline scripts by their hashes."""
_SCRIPT = re.compile(rb"<script(?P<attributes>[^>]*)>(?P<code>.*?)</script>", re.DOTALL)
router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class SiteFile:
    """A file of the site, with its headers."""

    data: bytes
    compressed: bytes | None
    media_type: str
    policy: str
    tag: str


@router.get("/guide")
async def show_start(request: Request) -> Response:
    """The site's first page, whose links are relative to the folder."""
    return RedirectResponse(f"{request.scope.get('root_path', '')}/guide/", 308)


@router.api_route("/guide/{name:path}", methods=["GET", "HEAD"])
def show_file(request: Request, name: str) -> Response:
    """A page or a file of the site."""
    path = found(rendering.SITE, name)
    if path is None:
        folder = found(rendering.SITE, f"{name}/") if name and not name.endswith("/") else None
        if folder is not None:
            return RedirectResponse(f"{request.scope.get('root_path', '')}/guide/{name}/", 308)
        return _missing(request, name)
    file = _read(path, path.stat().st_mtime_ns)
    headers = {"Cache-Control": CACHE_CONTROL, "ETag": file.tag, "Vary": "Accept-Encoding"}
    if file.policy:
        headers["Content-Security-Policy"] = file.policy
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    if file.compressed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        return Response(file.compressed, headers=headers, media_type=file.media_type)
    return Response(file.data, headers=headers, media_type=file.media_type)


def found(site: Path, name: str) -> Path | None:
    """The file of the site with this name; a folder's is its index. None if the site does not have it."""
    if "\0" in name or len(name.encode(errors="replace")) > MAX_NAME:
        return None
    root = site.resolve()
    path = (root / (f"{name}{INDEX}" if not name or name.endswith("/") else name)).resolve()
    return path if path.is_relative_to(root) and path.is_file() else None


def policy_of(text: bytes) -> str:
    """The policy of a page, which allows the inline scripts that the page contains and no others."""
    hashes = {
        base64.b64encode(hashlib.sha256(script["code"]).digest()).decode()
        for script in _SCRIPT.finditer(text)
        if script["code"] and b"src=" not in script["attributes"] and b"json" not in script["attributes"]
    }
    return POLICY.format(hashes="".join(f" 'sha256-{each}'" for each in sorted(hashes)))


@lru_cache(maxsize=MOST_CACHED)
def _read(path: Path, _changed_at: int) -> SiteFile:
    data = path.read_bytes()
    media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    is_text = media_type.startswith("text/") or media_type.endswith(("javascript", "json", "xml"))
    compressed = gzip.compress(data, mtime=0) if is_text and len(data) >= SMALLEST_COMPRESSED else None
    policy = policy_of(data) if media_type == "text/html" else ""
    return SiteFile(data, compressed, media_type, policy, f'"{hashlib.sha256(data).hexdigest()[:32]}"')


def _missing(request: Request, name: str) -> Response:
    if found(rendering.SITE, "") is None:
        return page(request, "guide_missing.html.j2", 404)
    problem = make_problem(ErrorCode.NOT_FOUND, f"The guide has no page '{name[:128]}'.")
    return page(request, "problem.html.j2", problem.status, problem=problem)
