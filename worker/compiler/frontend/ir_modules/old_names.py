"""Names of earlier versions of TVM, which programs use while they build a module or schedule a function."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NoReturn

import tvm
from tvm import relax, s_tir, tirx

_NO_SEARCH = (
    "a file does not search while it runs: leave out this call, and ask for a search with `tune.trials`, "
    "`tune.search` and `tune.spaces` (docs/spaces.md)"
)


def _get_block(schedule: s_tir.Schedule, name: Any, func_name: str | None = None) -> Any:
    """``get_sblock``. A module's only function is found by any name: a compilation calls it ``main``."""
    names = [str(variable.name_hint) for variable in schedule.mod.get_global_vars()]
    return schedule.get_sblock(name, names[0] if len(names) == 1 else func_name)


def _const(value: Any, dtype: Any = None) -> Any:
    """``relax.const``, whose second argument may also be the type of a tensor."""
    return _CONST(value, str(dtype.dtype) if isinstance(dtype, relax.TensorType) else dtype)


def _tune(*_arguments: object, **_named: object) -> NoReturn:
    raise NotImplementedError(_NO_SEARCH)


_CONST = relax.const

_LACKING: tuple[tuple[Any, str, Any], ...] = (
    (tvm, "tir", tirx),
    (tvm, "meta_schedule", s_tir.meta_schedule),
    (
        tvm,
        "nd",
        SimpleNamespace(array=tvm.runtime.tensor, empty=tvm.runtime.empty, NDArray=tvm.runtime.Tensor),
    ),
    (tvm, "register_func", tvm.register_global_func),
    (tvm, "build", tvm.compile),
    (tvm.contrib, "utils", importlib.import_module("tvm.support.utils")),
    (tvm.contrib, "clang", importlib.import_module("tvm.support.clang")),
    (tvm.ir.Expr, "struct_info", property(lambda expression: expression.ty)),
    (tirx, "Schedule", s_tir.Schedule),
    (tirx, "TensorIntrin", s_tir.TensorIntrin),
    (s_tir.Schedule, "get_block", _get_block),
    (s_tir.meta_schedule, "tune_relax", _tune),
    (relax, "TensorStructInfo", relax.TensorType),
    (relax, "ShapeStructInfo", relax.ShapeType),
    (relax, "TupleStructInfo", relax.TupleType),
    (relax, "ObjectStructInfo", relax.AnyType),
    (relax.vm, "build", relax.build),
)
_CHANGED: tuple[tuple[Any, str, Any], ...] = (
    (relax, "const", _const),
    (s_tir.meta_schedule, "tune_tir", _tune),
    (s_tir.meta_schedule.relax_integration, "tune_relax", _tune),
    (s_tir.meta_schedule.tir_integration, "tune_tir", _tune),
)
_NOTHING = object()


def add_old_names() -> tuple[tuple[Any, str, Any], ...]:
    """Give TVM the names that it lacks, for the rest of the process; returns what they were before."""
    lacking = [each for each in _LACKING if not hasattr(each[0], each[1])]
    changed = [each for each in _CHANGED if getattr(each[0], each[1]) is not each[2]]
    before = [(owner, name, getattr(owner, name, _NOTHING)) for owner, name, _ in (*lacking, *changed)]
    for owner, name, value in (*lacking, *changed):
        setattr(owner, name, value)
    return tuple(before)


@contextmanager
def old_names() -> Iterator[None]:
    """While the context lasts, TVM also has the names that its earlier versions had."""
    added = add_old_names()
    try:
        yield
    finally:
        for owner, name, value in added:
            if value is _NOTHING:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
