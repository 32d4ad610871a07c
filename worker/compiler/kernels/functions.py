"""Library functions: packed functions that a model calls by name and that its bundle does not contain.

``relax.call_dps_packed(name, arguments, type)`` calls one. It takes the arguments, then the tensor for the
result, all of which support DLPack. A library's user registers the function again, from the same file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi

from bessemer.contract.problem import ErrorCode
from worker.compiler.extensions import ExtensionPoint, cached_book
from worker.errors import JobError


@dataclass(frozen=True)
class LibraryFunction:
    """A function by the name under which modules call it."""

    name: str
    call: Callable[..., Any]


def _listed(functions: Any) -> Any:
    """The functions of a mapping by name; anything else as it is."""
    if not isinstance(functions, Mapping) or not all(map(callable, functions.values())):
        return functions
    return tuple(LibraryFunction(str(name), call) for name, call in functions.items())


POINT: ExtensionPoint[LibraryFunction] = ExtensionPoint(
    group="bessemer.functions",
    attribute="FUNCTIONS",
    kinds=(LibraryFunction,),
    name_of=lambda function: function.name,
    built_in=(),
    form="a dictionary of functions by name",
    read=_listed,
)


@cached_book
def function_book() -> dict[str, LibraryFunction]:
    """The functions in force by name, registered with TVM for this process and its children.

    Raises:
        ExtensionError: an extension does not give functions, or two give one of the same name.
    """
    functions = POINT.in_force(POINT.installed())
    for function in functions.values():
        tvm.register_global_func(function.name, function.call, override=True)
    return functions


def registered_names() -> frozenset[str]:
    """The names of all packed functions of this process."""
    return frozenset(map(str, tvm_ffi.registry.list_global_func_names()))


def require_functions(names: Iterable[str]) -> None:
    """Refuse calls of packed functions that this process lacks.

    Raises:
        JobError: ``library-function-missing``, with all of them.
    """
    missing = sorted(name for name in names if tvm.get_global_func(name, allow_missing=True) is None)
    if missing:
        shown = ", ".join(f"'{name}'" for name in missing)
        raise JobError(ErrorCode.LIBRARY_FUNCTION_MISSING, f"no extension defines the function {shown}")
