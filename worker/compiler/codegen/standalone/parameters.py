"""Takes the constants out of lowered functions, so that the library holds them once, aligned, for C and TVM.

::

    conv(x, constant, y)      →      weight = bessemer_parameter(3)
                                     conv(x, weight, y)
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from worker.candidates.library import PARAMETER

_PARAMETER = relax.ExternFunc(PARAMETER)
_START_BYTES = 4096
"""Most tensors that differ do so within their first bytes."""


class _Start(NamedTuple):
    """The type, shape and first bytes of a tensor, which are equal for equal tensors."""

    dtype: str
    shape: tuple[int, ...]
    content: bytes


@dataclass
class Parameters:
    """The parameters of a library. Equal ones of several entry points are held once."""

    tensors: list[tvm.runtime.Tensor] = field(default_factory=list)
    _indices: dict[_Start, list[int]] = field(default_factory=dict)

    def index_of(self, tensor: tvm.runtime.Tensor) -> int:
        """The index of a tensor, which is added if it is new."""
        content = content_of(tensor)
        start = _Start(str(tensor.dtype), tuple(tensor.shape), content[:_START_BYTES].tobytes())
        alike = self._indices.setdefault(start, [])
        for index in alike:
            if np.array_equal(content_of(self.tensors[index]), content):
                return index
        alike.append(len(self.tensors))
        self.tensors.append(tensor)
        return alike[-1]


def content_of(tensor: tvm.runtime.Tensor) -> np.ndarray:
    """The bytes of a tensor, in place."""
    size = prod(tuple(tensor.shape)) * -(-int(tvm_ffi.dtype(str(tensor.dtype)).bits) // 8)
    if size == 0:
        return np.empty(0, np.uint8)
    return np.frombuffer((ctypes.c_uint8 * size).from_address(tensor.data_ptr()), np.uint8)


def take_parameters(module: tvm.IRModule) -> tuple[tvm.IRModule, Parameters]:
    """Replace every constant tensor that Relax functions pass to kernels with a call that returns it."""
    parameters = Parameters()
    changed = module.clone()
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            changed.update_func(variable, _Taker(parameters).visit_expr(function))
    return changed, parameters


@mutator
class _Taker(PyExprMutator):
    def __init__(self, parameters: Parameters) -> None:
        super().__init__()
        self._parameters = parameters
        self._taken: dict[int, relax.Var] = {}

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        if not isinstance(call.op, tvm.ir.GlobalVar):
            return call
        arguments = [self._taken_of(one) if _is_tensor(one) else one for one in call.args]
        return relax.Call(call.op, arguments, call.attrs, call.ty_args, call.span)

    def _taken_of(self, constant: GenericConst) -> relax.Var:
        index = self._parameters.index_of(constant.value)
        call = relax.Call(_PARAMETER, [tirx.IntImm("int64", index)], ty_args=[constant.ty])
        return self.builder_.emit(call, "parameter")


def _is_tensor(argument: relax.Expr) -> bool:
    return isinstance(argument, GenericConst) and isinstance(argument.value, tvm.runtime.Tensor)
