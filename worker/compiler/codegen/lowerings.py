"""Lowerings for LLVM that TVM lacks: ``tirx.fmod`` calls the C library's function."""

from __future__ import annotations

from functools import cache
from typing import Any

from tvm import tirx
from tvm.tirx.op import register_intrin_lowering


@cache
def register_lowerings() -> None:
    """Register the lowerings in this process and its forks; TVM refuses to register them twice."""
    register_intrin_lowering("tirx.fmod", target="llvm", f=_call_library)


def _call_library(call: tirx.Call) -> Any:
    dtype = str(call.ty.dtype)
    return tirx.call_pure_extern(dtype, "fmod" if dtype == "float64" else "fmodf", *call.args)
