"""Merges equal expressions without hashing the parameters, which are most of a model's bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst
from tvm.relax import transform
from tvm.relax.expr_functor import PyExprMutator, mutator

from worker.compiler.layout.constants import array_of

LARGE_BYTES = 1 << 16
_START_BYTES = 4096
"""Most tensors that differ do so within their first bytes."""

_Key = tuple[str, tuple[int, ...], bytes]


@tvm.transform.module_pass(opt_level=0, name="EliminateCommonSubexpr")
def merge_equal_expressions(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """TVM's pass, during which the large constants of ``main`` are arguments: it hashes constants by content.

    Equal constants become one argument.
    """
    main = module["main"]
    lifter = _Lifter()
    body = lifter.visit_expr(main.body)
    lifted = module.clone()
    parameters = [*main.params, *(one.parameter for one in lifter.constants)]
    lifted["main"] = relax.Function(parameters, body, main.ret_ty, main.is_pure, main.attrs)
    merged = transform.EliminateCommonSubexpr()(lifted)
    found = merged["main"]
    values = dict(zip(found.params[len(main.params) :], (one.value for one in lifter.constants), strict=True))
    merged["main"] = found.bind_params(values) if values else found
    return merged


@dataclass(frozen=True)
class _Constant:
    """A constant, and the argument that stands for it."""

    value: GenericConst
    parameter: relax.Var


@mutator
class _Lifter(PyExprMutator):
    def __init__(self) -> None:
        super().__init__()
        self.constants: list[_Constant] = []
        self._alike: dict[_Key, list[_Constant]] = {}

    def visit_generic_const_(self, constant: GenericConst) -> relax.Expr:
        values = array_of(constant)
        if values.nbytes < LARGE_BYTES:
            return constant
        content = values.reshape(-1).view(np.uint8)
        alike = self._alike.setdefault(
            (str(values.dtype), values.shape, content[:_START_BYTES].tobytes()), []
        )
        for known in alike:
            if np.array_equal(array_of(known.value).reshape(-1).view(np.uint8), content):
                return known.parameter
        found = _Constant(constant, relax.Var(f"constant_{len(self.constants)}", constant.ty))
        alike.append(found)
        self.constants.append(found)
        return found.parameter
