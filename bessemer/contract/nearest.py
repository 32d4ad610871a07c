"""Suggestions for misspelled names."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.4) -> str:
    """A clause that suggests the nearest known name; empty if none is near."""
    near = difflib.get_close_matches(name, tuple(known), n=1, cutoff=cutoff)
    return f"; did you mean '{near[0]}'?" if near else ""
