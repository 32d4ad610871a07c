"""Ids in addresses: whole, or shortened to first characters that only one id has."""

from collections.abc import Callable
from typing import TypeVar

from app.http.problems import refuse
from bessemer.contract.base import MIN_PREFIX
from bessemer.contract.problem import ErrorCode

MAX_SHOWN = 5

Found = TypeVar("Found")


def look_up(
    kind: str,
    given: str,
    get: Callable[[str], Found | None],
    starting: Callable[[str, int], tuple[str, ...]],
) -> Found | None:
    """Find something by its id, or by a prefix that only its id has; None if no id starts with it.

    Args:
        kind: what the ids are of, such as ``compilation``.
        given: an id, or its first characters.
        get: finds one by its whole id.
        starting: lists the ids that start with a text, up to a number.

    Raises:
        RefusalError: 409, several ids start with it.
    """
    found = get(given)
    if found is not None:
        return found
    ids = starting(given, MAX_SHOWN + 1)
    if len(ids) > 1:
        shown = ", ".join(ids[:MAX_SHOWN]) + (", …" if len(ids) > MAX_SHOWN else "")
        detail = f"Several {kind}s have an id that starts with '{given}': {shown}."
        raise refuse(ErrorCode.ID_AMBIGUOUS, detail)
    return get(ids[0]) if ids else None


def hint(given: str) -> str:
    """A sentence on short ids, for the answer that no id matches."""
    return f" A shortened id has at least {MIN_PREFIX} characters." if len(given) < MIN_PREFIX else ""
