"""The extensions of the request that made tuning records. This module imports neither torch nor TVM."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from bessemer.bundle.manifest import RECORD_EXTENSIONS
from bessemer.contract.base import Digest, Document
from bessemer.contract.report import LoadedExtension


class RecordMark(Document):
    """An extension of the request that made records."""

    digest: Digest
    name: str


_MARKS: TypeAdapter[tuple[RecordMark, ...]] = TypeAdapter(tuple[RecordMark, ...])


def write_marks(folder: Path, extensions: Iterable[LoadedExtension]) -> None:
    """Note beside tuning records the extensions without which they do not serve."""
    marks = tuple(RecordMark(digest=extension.digest, name=extension.name) for extension in extensions)
    if marks:
        (folder / RECORD_EXTENSIONS).write_bytes(_MARKS.dump_json(marks, indent=2) + b"\n")


def read_marks(file: Path) -> tuple[RecordMark, ...]:
    """The marks in a file; none in one of another kind."""
    try:
        return _MARKS.validate_json(file.read_bytes())
    except ValidationError:
        return ()
