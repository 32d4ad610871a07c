"""The console's style sheets, scripts and pictures, held in memory with their compressed forms."""

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fastapi import APIRouter, Request, Response

from app.http.problems import refuse
from bessemer.contract.problem import ErrorCode

PREFIX = "/console/static/"
FOLDER = Path(__file__).parent / "static"
SERVED = frozenset({".css", ".js", ".svg", ".png"})
CACHE_CONTROL = "public, max-age=31536000, immutable"
"""Pages address each file with its hash, so a new version has a new address."""

router = APIRouter()


@dataclass(frozen=True)
class StaticFile:
    """One file.

    Attributes:
        name: its path below the folder.
    """

    name: str
    data: bytes

    @cached_property
    def version(self) -> str:
        """The start of the file's hash."""
        return hashlib.sha256(self.data).hexdigest()[:16]

    @cached_property
    def compressed(self) -> bytes:
        """The file in gzip's format."""
        return gzip.compress(self.data, mtime=0)

    @property
    def media_type(self) -> str:
        """The type for browsers."""
        return mimetypes.guess_type(self.name)[0] or "application/octet-stream"


def _read() -> dict[str, StaticFile]:
    paths = (path for path in sorted(FOLDER.rglob("*")) if path.suffix in SERVED)
    names = ((path.relative_to(FOLDER).as_posix(), path) for path in paths)
    return {name: StaticFile(name, path.read_bytes()) for name, path in names}


FILES = _read()


def address(name: str) -> str:
    """The address of a file, with its version. Raises ``KeyError`` for a file that does not exist."""
    return f"{PREFIX}{name}?v={FILES[name].version}"


@router.get(f"{PREFIX}{{name:path}}", include_in_schema=False)
async def get_static_file(request: Request, name: str) -> Response:
    """Return a file, compressed if the browser accepts that."""
    file = FILES.get(name)
    if file is None:
        raise refuse(ErrorCode.NOT_FOUND, f"The console has no file '{name[:64]}'.")
    # during an upgrade, an old app may be asked for a newer version
    is_current = request.query_params.get("v") == file.version
    headers = {
        "Cache-Control": CACHE_CONTROL if is_current else "no-cache",
        "Vary": "Accept-Encoding",
    }
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        return Response(file.compressed, headers=headers, media_type=file.media_type)
    return Response(file.data, headers=headers, media_type=file.media_type)
