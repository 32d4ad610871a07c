"""Assigns search spaces and schedules to functions by their names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import tvm
import tvm_ffi
from tvm import tirx

from bessemer.contract.problem import ErrorCode
from worker.candidates.library import MAIN
from worker.compiler.frontend.ir_modules.buffers import KERNEL_OF_MAIN
from worker.errors import JobError


class Assignment(NamedTuple):
    """The space or the schedule that a request names for a function, and the name or pattern that matched."""

    pattern: str
    choice: str

    @property
    def may_skip(self) -> bool:
        """Whether the choice need not fit the function, since a pattern may match others that it fits."""
        return any(sign in self.pattern for sign in _WILDCARDS)


_WILDCARDS = "*?["


def assign(
    functions: Sequence[Sequence[str]], wanted: Mapping[str, str], can_be: str = "searched"
) -> list[Assignment | None]:
    """Find the space or the schedule that a request names for each function.

    Args:
        functions: the names of each function; equal functions may be one, with all names.
        wanted: choices by functions' names or patterns of names (``fused_linear*``); the first match counts.
        can_be: what can happen to the functions, for the error.

    Returns:
        An assignment for each function; None where the request does not name one.

    Raises:
        JobError: ``function-unknown``: a pattern matches no function.
    """
    names = sorted(name for group in functions for name in group)
    idle = [pattern for pattern in wanted if not any(fnmatchcase(name, pattern) for name in names)]
    if idle:
        there_are = ", ".join(names) or "none"
        patterns = ", ".join(f"'{pattern}'{nearest_function(pattern, names)}" for pattern in idle)
        then = " These" if patterns.endswith("?") else "; these"
        detail = f"no function matches {patterns}{then} can be {can_be}: {there_are}"
        raise JobError(ErrorCode.FUNCTION_UNKNOWN, detail)
    return [_choice_for(group, wanted) for group in functions]


def nearest_function(pattern: str, names: Sequence[str]) -> str:
    """A clause that suggests the function whose name is near a name or a pattern; empty if none is.

    ``fused_``, which most names start with, makes no two names similar, unless it is misspelled. Of a
    pattern, only what precedes the first wildcard counts, beside as much of a name.
    """
    stem = re.split(r"[*?[]", pattern)[0].removeprefix(_FUSED)
    length = len(stem) if stem != pattern.removeprefix(_FUSED) else None
    by_start = {name.removeprefix(_FUSED)[:length]: name for name in reversed(names)}
    near = [by_start[start] for start in difflib.get_close_matches(stem, by_start, n=1, cutoff=_NEAR)]
    near += difflib.get_close_matches(pattern, names, n=1, cutoff=_NEARER)
    return f"; did you mean '{near[0]}'?" if near else ""


_FUSED = "fused_"
_NEAR, _NEARER = 0.6, 0.8


def _choice_for(names: Sequence[str], wanted: Mapping[str, str]) -> Assignment | None:
    fitting = (
        Assignment(pattern, choice)
        for pattern, choice in wanted.items()
        if any(fnmatchcase(name, pattern) for name in names)
    )
    return next(fitting, None)


def names_asked(name: str) -> tuple[str, ...]:
    """The names by which a request may call a function: its own, and its author's if that is ``main``."""
    return (name, MAIN) if name == KERNEL_OF_MAIN else (name,)


def names_of(function: tirx.PrimFunc, module: tvm.IRModule) -> tuple[str, ...]:
    """The sorted names of a module's functions that equal a function; the search treats them as one."""
    names = (
        name
        for variable, other in module.functions_items()
        if isinstance(other, tirx.PrimFunc)
        and tvm_ffi.structural_equal(other.body, function.body, map_free_vars=True)
        for name in names_asked(str(variable.name_hint))
    )
    return tuple(sorted(names))
