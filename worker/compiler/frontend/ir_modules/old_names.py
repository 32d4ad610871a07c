"""Names of earlier versions of TVM, which programs use while they build a module or schedule a function."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import tvm
from tvm import relax, s_tir, tirx


def _get_block(schedule: s_tir.Schedule, name: Any, func_name: str | None = None) -> Any:
    """``get_sblock``. A module's only function is found by any name: a compilation calls it ``main``."""
    names = [str(variable.name_hint) for variable in schedule.mod.get_global_vars()]
    return schedule.get_sblock(name, names[0] if len(names) == 1 else func_name)


_OLD_NAMES: tuple[tuple[Any, str, Any], ...] = (
    (tvm, "tir", tirx),
    (tvm, "meta_schedule", s_tir.meta_schedule),
    (tvm, "nd", SimpleNamespace(array=tvm.runtime.tensor, NDArray=tvm.runtime.Tensor)),
    (tvm, "register_func", tvm.register_global_func),
    (tvm, "build", tvm.compile),
    (tirx, "Schedule", s_tir.Schedule),
    (tirx, "TensorIntrin", s_tir.TensorIntrin),
    (s_tir.Schedule, "get_block", _get_block),
    (relax, "TensorStructInfo", relax.TensorType),
    (relax, "ShapeStructInfo", relax.ShapeType),
    (relax, "TupleStructInfo", relax.TupleType),
    (relax, "ObjectStructInfo", relax.AnyType),
)


def add_old_names() -> tuple[tuple[Any, str], ...]:
    """Give TVM the names that it lacks, for the rest of the process; returns their owners and the names."""
    added = [(owner, name, value) for owner, name, value in _OLD_NAMES if not hasattr(owner, name)]
    for owner, name, value in added:
        setattr(owner, name, value)
    return tuple((owner, name) for owner, name, _ in added)


@contextmanager
def old_names() -> Iterator[None]:
    """While the context lasts, TVM also has the names that its earlier versions had."""
    added = add_old_names()
    try:
        yield
    finally:
        for owner, name in added:
            delattr(owner, name)
