"""Which space each function is searched in: a pure function of names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase

from bessemer.contract.names import did_you_mean
from bessemer.contract.problem import ErrorCode
from worker.errors import JobError


def check_spaces(wanted: Mapping[str, str], known: Collection[str]) -> None:
    """Refuse a space that there is not.

    Args:
        wanted: a space by a pattern of functions' names.
        known: the spaces that there are.

    Raises:
        JobError: ``space-unknown`` with the nearest name.
    """
    for name in wanted.values():
        if name not in known:
            hint = did_you_mean(name, known)
            detail = f"there is no space '{name}'{hint} (known: {', '.join(sorted(known))})"
            raise JobError(ErrorCode.SPACE_UNKNOWN, detail)


def assign_spaces(functions: Sequence[Sequence[str]], wanted: Mapping[str, str]) -> list[str | None]:
    """The space that a request names for each function.

    Args:
        functions: what can be searched; equal functions are one, with all their names.
        wanted: a space by the name of a function, or by a pattern of names (``fused_linear*``); where several
            fit, the first counts.

    Returns:
        For each function its space; None where the request names none.

    Raises:
        JobError: ``function-unknown``: a pattern fits no function.
    """
    names = sorted(name for group in functions for name in group)
    idle = [pattern for pattern in wanted if not any(fnmatchcase(name, pattern) for name in names)]
    if idle:
        there_are = ", ".join(names) or "none"
        patterns = ", ".join(f"'{pattern}'{did_you_mean(pattern, names)}" for pattern in idle)
        detail = f"no function fits {patterns}; those that can be searched: {there_are}"
        raise JobError(ErrorCode.FUNCTION_UNKNOWN, detail)
    return [_space_of(group, wanted) for group in functions]


def _space_of(names: Sequence[str], wanted: Mapping[str, str]) -> str | None:
    fitting = (
        space for pattern, space in wanted.items() if any(fnmatchcase(name, pattern) for name in names)
    )
    return next(fitting, None)
