"""Uploaded extensions: Python files that a request brings for its own compilation."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime

from pydantic import Field

from bessemer.contract.base import Digest, Document
from bessemer.contract.names import Name, as_name

MAX_EXTENSIONS = 16
"""The most extensions that a request may have."""

SUFFIX = ".py"
_SEPARATORS = re.compile(r"[/\\]")


class Extension(Document):
    """An uploaded extension. It runs only in the confined process of a job whose request names it."""

    digest: Digest = Field(description="The SHA-256 of its bytes, which identifies it.")
    name: Name | None = Field(
        default=None, description="The file name from the first upload that gave one; null if none did."
    )
    size_bytes: int = Field(description="Size of the file.")
    created_at: datetime = Field(description="When it was first uploaded.")


class ExtensionPage(Document):
    """A page of extensions, newest first."""

    items: tuple[Extension, ...] = Field(description="Up to `limit` entries.")
    next: str | None = Field(
        default=None, description="Pass this as `cursor` to get the next page; null on the last page."
    )


def extension_name(path: str) -> str | None:
    """An extension's name from its path: the file name. None if nothing is left."""
    return as_name(_SEPARATORS.split(path.strip())[-1])


def shown_name(digest: Digest, name: str | None) -> str:
    """The file name by which reports and errors call an extension."""
    return name or f"extension-{digest[:12]}{SUFFIX}"


def file_options(names: Mapping[str, str], schedules: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The command line's options for the files of a request, each with its value.

    Args:
        names: the file names of its extensions, by digest.
        schedules: its ``tune.schedules``.
    """
    of_schedules = set[str]()
    for function, source in schedules.items():
        file, colon, own = source.partition(":")
        of_schedules.add(file)
        yield "--schedule", f"{function}={names.get(file, file)}{colon}{own}"
    for digest, name in names.items():
        if of_schedules.isdisjoint({digest, name}):
            yield "--extension", name
