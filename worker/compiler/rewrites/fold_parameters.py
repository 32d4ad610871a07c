"""Fold batch norms whose parameters and statistics are arguments of ``main``.

    batch_norm(conv2d(x, W) + b)[0]   →   conv2d(x, multiply(W, scale)) + (b * scale + shift)

``fold`` does the same with constants. Here operators compute ``scale``, ``shift`` and the scaled weights; as
they depend on parameters alone, they run once, when the parameters are loaded.
"""

from __future__ import annotations

from typing import NamedTuple

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from worker.compiler.layout.relax_graph import operator_of, resolve
from worker.compiler.layout.separate_parameters import Derivation, parameters_of
from worker.compiler.rewrites.fold import (
    CHANNEL_AXIS,
    WEIGHT_CHANNEL_AXIS,
    is_per_channel,
    reads_by_name,
    scales_channels,
)


@relax.transform.function_pass(opt_level=0, name="FoldParameterBatchNorm")
def fold_parameter_batch_norm(
    function: relax.Function, module: tvm.IRModule, _context: tvm.transform.PassContext
) -> relax.Function:
    """Fold inference batch norms whose parameters and statistics are separate parameters."""
    if not parameters_of(function):
        return function
    folded = _Folder(module, function).visit_expr(function)
    return relax.analysis.remove_all_unused(folded)


class _Affine(NamedTuple):
    """``x * scale + shift``, one number per channel."""

    scale: relax.Var
    shift: relax.Var


@mutator
class _Folder(PyExprMutator):
    def __init__(self, module: tvm.IRModule, function: relax.Function) -> None:
        super().__init__(module)
        self._reads = reads_by_name(function)
        self._derivation = Derivation(parameters_of(function), self.lookup_binding)

    def visit_tuple_getitem_(self, item: relax.TupleGetItem) -> relax.Expr:
        item = super().visit_tuple_getitem_(item)
        norm = self._binding(item.tuple_value)
        if item.index != 0 or not self._is_inference(norm):
            return item
        affine = self._affine(norm)
        data, bias = self._without_bias(norm.args[0])
        weighted = self._weighted(data, affine.scale)
        if weighted is None:
            scaled = relax.op.multiply(norm.args[0], self._per_channel(affine.scale, norm.args[0]))
            return relax.op.add(self._emit(scaled), self._per_channel(affine.shift, norm.args[0]))
        shift = affine.shift
        if bias is not None:
            flat = self._emit(relax.op.reshape(bias, (-1,)))
            shift = self._emit(relax.op.add(shift, self._emit(relax.op.multiply(flat, affine.scale))))
        return relax.op.add(self._emit(weighted), self._per_channel(shift, norm.args[0]))

    def _emit(self, expression: relax.Expr) -> relax.Var:
        return self.builder_.emit(expression)

    def _binding(self, expression: relax.Expr) -> relax.Expr:
        return resolve(expression, self.lookup_binding)

    def _is_inference(self, norm: relax.Expr) -> bool:
        return (
            operator_of(norm) == "nn.batch_norm"
            and not norm.attrs.training
            and norm.attrs.axis == CHANNEL_AXIS
            and all(map(self._derivation.holds, norm.args[1:]))
        )

    def _affine(self, norm: relax.Call) -> _Affine:
        gamma, beta, mean, variance = norm.args[1:]
        epsilon = relax.const(float(norm.attrs.epsilon), str(variance.ty.dtype))
        deviation = self._emit(relax.op.sqrt(self._emit(relax.op.add(variance, epsilon))))
        scale = self._emit(relax.op.divide(gamma, deviation))
        shift = relax.op.subtract(beta, self._emit(relax.op.multiply(mean, scale)))
        return _Affine(scale, self._emit(shift))

    def _without_bias(self, data: relax.Expr) -> tuple[relax.Expr, relax.Expr | None]:
        """The operand of the bias that computes ``data``, and the bias; ``data`` itself without one."""
        call = self._binding(data)
        if operator_of(call) != "add" or not self._is_alone(data):
            return data, None
        for term, other in (call.args, reversed(call.args)):
            if not self._derivation.holds(other) or term.ty.ndim != data.ty.ndim:
                continue
            if is_per_channel(tuple(map(int, other.ty.shape)), data.ty.ndim):
                return term, other
        return data, None

    def _weighted(self, data: relax.Expr, scale: relax.Var) -> relax.Call | None:
        """The convolution or product that computes ``data``, with scaled weights; None for others."""
        call = self._binding(data)
        axis = WEIGHT_CHANNEL_AXIS.get(operator_of(call))
        if axis is None or not self._is_alone(data) or not self._derivation.holds(call.args[1]):
            return None
        weights = call.args[1]
        channels = int(weights.ty.shape[axis])
        if channels != int(scale.ty.shape[0]) or not scales_channels(call, data.ty.ndim):
            return None
        shape = [channels if dimension == axis else 1 for dimension in range(weights.ty.ndim)]
        factors = self._emit(relax.op.reshape(scale, shape))
        scaled = self._emit(relax.op.multiply(weights, factors))
        return relax.Call(call.op, [call.args[0], scaled], call.attrs)

    def _per_channel(self, values: relax.Var, data: relax.Expr) -> relax.Expr:
        shape = [1] * data.ty.ndim
        shape[CHANNEL_AXIS] = values.ty.shape[0]
        return self._emit(relax.op.reshape(values, shape))

    def _is_alone(self, variable: relax.Expr) -> bool:
        return isinstance(variable, relax.Var) and self._reads[variable.name] == 1
