"""Takes the constants out of lowered functions, so that the library holds them once, aligned, for C and TVM.

::

    conv(x, constant, y)      →      weight = bessemer_parameter(3)
                                     conv(x, weight, y)
"""

from __future__ import annotations

from dataclasses import dataclass, field

import tvm
from tvm import relax, tirx
from tvm.ir import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from worker.candidates.library import PARAMETER

_PARAMETER = relax.ExternFunc(PARAMETER)


@dataclass
class Parameters:
    """The parameters of a library, each once."""

    tensors: list[tvm.runtime.Tensor] = field(default_factory=list)
    _indices: dict[tuple[int, str, tuple[int, ...]], int] = field(default_factory=dict)

    def index_of(self, tensor: tvm.runtime.Tensor) -> int:
        """The index of a tensor, which is added if it is new."""
        key = (tensor.data_ptr(), str(tensor.dtype), tuple(tensor.shape))
        if key not in self._indices:
            self._indices[key] = len(self.tensors)
            self.tensors.append(tensor)
        return self._indices[key]


def take_parameters(module: tvm.IRModule) -> tuple[tvm.IRModule, Parameters]:
    """Replace every constant tensor that the Relax functions pass to kernels by a call for a parameter."""
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
