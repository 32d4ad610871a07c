"""Which space each function is searched in: a pure function of names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase

from bessemer.contract.problem import ErrorCode
from worker.errors import JobError

PLANS = "plans"
"""The plans of the family that claims a function."""

STOCK = "metaschedule"
"""MetaSchedule's own rules."""

OWN_SPACES = (PLANS, STOCK)


def assign_spaces(
    functions: Sequence[Sequence[str]], wanted: Mapping[str, str], known: Collection[str]
) -> list[str | None]:
    """The space that a request names for each function.

    Args:
        functions: what can be searched; equal functions are one, with all their names.
        wanted: a space by the name of a function, or by a pattern of names (``fused_linear*``); where several
            fit, the first counts.
        known: the spaces that there are.

    Returns:
        For each function its space; None where the request names none.

    Raises:
        JobError: ``space-unknown``: there is no such space. ``function-unknown``: a pattern fits no function.
    """
    unknown = sorted(set(wanted.values()) - set(known))
    if unknown:
        detail = f"no space {', '.join(map(repr, unknown))}; there are: {', '.join(sorted(known))}"
        raise JobError(ErrorCode.SPACE_UNKNOWN, detail)
    names = sorted(name for group in functions for name in group)
    idle = [pattern for pattern in wanted if not any(fnmatchcase(name, pattern) for name in names)]
    if idle:
        there_are = ", ".join(names) or "none"
        detail = f"no function fits {', '.join(map(repr, idle))}; those that can be searched: {there_are}"
        raise JobError(ErrorCode.FUNCTION_UNKNOWN, detail)
    return [_space_of(group, wanted) for group in functions]


def _space_of(names: Sequence[str], wanted: Mapping[str, str]) -> str | None:
    fitting = (
        space for pattern, space in wanted.items() if any(fnmatchcase(name, pattern) for name in names)
    )
    return next(fitting, None)
