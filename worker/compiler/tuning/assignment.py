"""Assigns a search space to each function by its names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase

import tvm
import tvm_ffi
from tvm import tirx

from bessemer.contract.nearest import did_you_mean
from bessemer.contract.problem import ErrorCode
from worker.errors import JobError


def check_spaces(wanted: Mapping[str, str], known: Collection[str]) -> None:
    """Refuse unknown spaces.

    Args:
        wanted: spaces by patterns of functions' names.
        known: the spaces that exist.

    Raises:
        JobError: ``space-unknown`` with the nearest name.
    """
    for name in wanted.values():
        if name not in known:
            hint = did_you_mean(name, known)
            detail = f"unknown space '{name}'{hint} (known: {', '.join(sorted(known))})"
            raise JobError(ErrorCode.SPACE_UNKNOWN, detail)


def assign_spaces(functions: Sequence[Sequence[str]], wanted: Mapping[str, str]) -> list[str | None]:
    """Find the space that a request names for each function.

    Args:
        functions: the names of each function that can be searched; equal functions are one, with all names.
        wanted: spaces by functions' names or patterns of names (``fused_linear*``); the first match counts.

    Returns:
        A space for each function; None where the request does not name one.

    Raises:
        JobError: ``function-unknown``: a pattern matches no function.
    """
    names = sorted(name for group in functions for name in group)
    idle = [pattern for pattern in wanted if not any(fnmatchcase(name, pattern) for name in names)]
    if idle:
        there_are = ", ".join(names) or "none"
        patterns = ", ".join(f"'{pattern}'{did_you_mean(pattern, names)}" for pattern in idle)
        detail = f"no function matches {patterns}; these can be searched: {there_are}"
        raise JobError(ErrorCode.FUNCTION_UNKNOWN, detail)
    return [_space_of(group, wanted) for group in functions]


def _space_of(names: Sequence[str], wanted: Mapping[str, str]) -> str | None:
    fitting = (
        space for pattern, space in wanted.items() if any(fnmatchcase(name, pattern) for name in names)
    )
    return next(fitting, None)


def names_of(function: tirx.PrimFunc, module: tvm.IRModule) -> tuple[str, ...]:
    """The sorted names of a module's functions that equal a function; the search treats them as one."""
    names = (
        str(variable.name_hint)
        for variable, other in module.functions_items()
        if isinstance(other, tirx.PrimFunc)
        and tvm_ffi.structural_equal(other.body, function.body, map_free_vars=True)
    )
    return tuple(sorted(names))
