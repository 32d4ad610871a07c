"""Names and labels that people give to models and compilations."""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import AfterValidator, StringConstraints

MAX_NAME = 128
MAX_STEM_BYTES = 120
"""File systems allow 255 bytes for a whole name."""

MODEL_SUFFIXES = (".pt2", ".pth", ".pt", ".ts", ".fx", ".bin")
_SEPARATORS = re.compile(r"[/\\]")
_UNSAFE_IN_FILES = re.compile(r'[/\\:*?"<>|\s%]+')

MAX_LABELS = 32
MAX_COMPARED_CHARACTERS = 20_000
"""Comparing as many very similar names takes a few tenths of a second."""

PLAIN_NAME_PATTERN = r"^[a-z][a-z0-9_]*$"
DOTTED_NAME_PATTERN = r"^[a-z][a-z0-9_.-]*$"
IDENTIFIER_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
LABEL_KEY = r"[a-z0-9](?:[a-z0-9._/-]{0,61}[a-z0-9])?"
LABEL_VALUE = r"[ -~]{0,128}"
LabelKey = Annotated[str, StringConstraints(pattern=f"^{LABEL_KEY}$")]
LabelValue = Annotated[str, StringConstraints(pattern=f"^{LABEL_VALUE}$")]
LabelSelector = Annotated[str, StringConstraints(pattern=f"^{LABEL_KEY}(?:={LABEL_VALUE})?$")]
"""``team=vision``, or ``team`` alone for any value."""


def _printable(name: str) -> str:
    if not name.isprintable() or name != name.strip():
        raise ValueError("a name must have only printable characters and no space at either end")
    return name


Name = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME), AfterValidator(_printable)]
DeviceName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
"""A device's name, which is unique in its tenant."""


def name_of_file(path: str) -> str | None:
    """A model's name from a file's path, without folders and the suffix of the format."""
    base = _SEPARATORS.split(path.strip())[-1]
    suffix = next((suffix for suffix in MODEL_SUFFIXES if base.lower().endswith(suffix)), "")
    return as_name(base[: len(base) - len(suffix)])


def as_name(text: str) -> str | None:
    """The text as a name, without invalid characters; None if nothing is left."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    return " ".join(printable.split())[:MAX_NAME].rstrip() or None


def file_stem(name: str, target: str) -> str:
    """The first part of a compilation's file names: its name and its target."""
    safe = _UNSAFE_IN_FILES.sub("-", name).strip(".-").encode()[:MAX_STEM_BYTES].decode(errors="ignore")
    return f"{safe}-{_UNSAFE_IN_FILES.sub('-', target)}".lstrip("-")


def shown_labels(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Labels in the command line's form; a key alone if its value is empty."""
    return tuple(f"{key}={value}" if value else key for key, value in labels.items())


def nearest(name: str, known: Iterable[str], cutoff: float, count: int = 1) -> list[str]:
    """The ``count`` known names that are nearest, best first, of the first ``MAX_COMPARED_CHARACTERS``."""
    return difflib.get_close_matches(name, _first_of(known), n=count, cutoff=cutoff)


def _first_of(names: Iterable[str]) -> list[str]:
    left, first = MAX_COMPARED_CHARACTERS, list[str]()
    for name in names:
        left -= len(name)
        if left < 0:
            break
        first.append(name)
    return first


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.4, count: int = 1) -> str:
    """A clause that suggests the nearest ``count`` known names, in any case; empty if none is near."""
    spellings = {each.casefold(): each for each in known}
    near = nearest(name.casefold(), spellings, cutoff, count)
    *others, last = (f"'{spellings[each]}'" for each in near) if near else ("",)
    return f"; did you mean {', '.join(others)}{' or ' if others else ''}{last}?" if near else ""
