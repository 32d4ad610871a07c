"""Compute constants at compile time, and fold batch norms of constant statistics.

    permute_dims(W)                    →   W'                  W and W' are constants
    batch_norm(conv2d(x, W) + b)[0]    →   conv2d(x, W * scale) + (b * scale + shift)
    batch_norm(x)[0]                   →   x * scale + shift

    scale = gamma / sqrt(variance + epsilon), shift = beta - mean * scale

numpy computes them: TVM would compile a function for each constant. The scale goes into the weights of a
convolution or a product if these are constant and nothing else reads its result; the bias may be missing.

Half precision stays beside the weights, which would be rounded once more, and is computed in float32::

    batch_norm(astype(conv2d(x, W) + b, "bfloat16"))[0]  →  astype(conv2d(x, W) * scale + shift, "bfloat16")
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.ir import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from worker.compiler.layout.constants import array_of, constant_of
from worker.compiler.layout.images import HALVES
from worker.compiler.layout.relax_graph import count_reads, operator_of, resolve, static_shape
from worker.compiler.rewrites.evaluators import EVALUATORS

Array = NDArray[Any]

WEIGHT_CHANNEL_AXIS = {
    "nn.conv1d": 0,
    "nn.conv2d": 0,
    "nn.conv3d": 0,
    "matmul": 1,
}
"""The axis of the weights that runs over output channels: the importer's layouts are OI… and (K, N)."""

CHANNEL_AXIS = 1
_MATRIX_RANK = 2
_SINGLE = "float32"


class Affine(NamedTuple):
    """``x * scale + shift``, one number per channel."""

    scale: Array
    shift: Array


@relax.transform.function_pass(opt_level=0, name="EvaluateConstants")
def evaluate_constants(
    function: relax.Function, module: tvm.IRModule, _context: tvm.transform.PassContext
) -> relax.Function:
    """Replace calls of the operators of ``EVALUATORS`` on constants by their results."""
    return _ConstantEvaluator(module).visit_expr(function)


@tvm.transform.module_pass(opt_level=0, name="FoldConstant")
def fold_constants(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """TVM's ``FoldConstant``, if a call has no other arguments than constants.

    TVM legalizes every call to find out, which takes longer than the other passes of its phase together.
    """
    functions = (function for function in module.functions.values() if isinstance(function, relax.Function))
    return relax.transform.FoldConstant()(module) if any(map(_has_constant_call, functions)) else module


@relax.transform.function_pass(opt_level=0, name="FoldBatchNorm")
def fold_batch_norm(
    function: relax.Function, module: tvm.IRModule, _context: tvm.transform.PassContext
) -> relax.Function:
    """Fold inference batch norms whose parameters and statistics are constants."""
    folded = _BatchNormFolder(module, reads_by_name(function)).visit_expr(function)
    return relax.analysis.remove_all_unused(folded)


def _has_constant_call(function: relax.Function) -> bool:
    """Whether a call reads constants and shapes only, or is hidden in a branch."""
    known: set[relax.Var] = set()

    def is_known(value: Any) -> bool:
        match value:
            case relax.Var():
                return value in known
            case relax.Tuple():
                return all(map(is_known, value.fields))
            case relax.TupleGetItem():
                return is_known(value.tuple_value)
            case relax.Call():
                return False
            case _:
                return True

    for block in function.body.blocks:
        for binding in block.bindings:
            value = binding.value
            is_call = isinstance(value, relax.Call)
            if isinstance(value, relax.If) or (is_call and all(map(is_known, value.args))):
                return True
            if is_known(value):
                known.add(binding.var)
    return False


class ValueMutator(PyExprMutator):
    """A mutator that follows variables to their values."""

    def binding(self, expression: relax.Expr) -> relax.Expr:
        """The value of a variable; other expressions, and arguments, are themselves."""
        return resolve(expression, self.lookup_binding)

    def constant(self, expression: relax.Expr) -> Array | tuple[int, ...] | int | None:
        """The value of a tensor, a shape or an integer; None if it is unknown."""
        bound = self.binding(expression)
        if isinstance(bound, GenericConst):
            return array_of(bound)
        if isinstance(bound, tvm.tirx.IntImm):
            return int(bound)
        values = bound.values if isinstance(bound, relax.ShapeExpr) else getattr(bound, "fields", None)
        if values is None:
            return None
        known = [int(size) for size in values if isinstance(size, tvm.tirx.IntImm)]
        return tuple(known) if len(known) == len(values) else None


@mutator
class _ConstantEvaluator(ValueMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        result = evaluated(call, self.constant)
        return call if result is None else constant_of(result)


def evaluated(call: relax.Call, value_of: Callable[[relax.Expr], Any]) -> Array | None:
    """The result of a call on known values.

    Args:
        call: the call of an operator.
        value_of: the value of an argument, such as an array or a shape; None if it is unknown.

    Returns:
        The result; None if an argument is unknown, or numpy does not compute the operator as TVM does.
    """
    evaluate = EVALUATORS.get(operator_of(call))
    values = [] if evaluate is None else [value_of(argument) for argument in call.args]
    if evaluate is None or any(value is None for value in values):
        return None
    with np.errstate(all="ignore"):
        result = evaluate(call.attrs, *values)
    return None if result is None or not _is_result(result, call) else result


def _is_result(result: Array, call: relax.Call) -> bool:
    """Whether numpy made a tensor of the type that Relax expects."""
    return static_shape(call) == result.shape and str(call.ty.dtype) == str(result.dtype)


@mutator
class _BatchNormFolder(ValueMutator):
    def __init__(self, module: tvm.IRModule, reads: Counter[str]) -> None:
        super().__init__(module)
        self._reads_of = reads

    def visit_tuple_getitem_(self, item: relax.TupleGetItem) -> relax.Expr:
        item = super().visit_tuple_getitem_(item)
        norm = self.binding(item.tuple_value)
        affine = self._affine(norm) if item.index == 0 else None
        return item if affine is None else self._applied(norm.args[0], affine)

    def _affine(self, norm: relax.Expr) -> Affine | None:
        if operator_of(norm) != "nn.batch_norm" or norm.attrs.training or norm.attrs.axis != CHANNEL_AXIS:
            return None
        values = [self.binding(argument) for argument in norm.args[1:]]
        if not all(isinstance(value, GenericConst) for value in values):
            return None
        gamma, beta, mean, variance = (array_of(value).astype(np.float64) for value in values)
        scale = gamma / np.sqrt(variance + norm.attrs.epsilon)
        return Affine(scale, beta - mean * scale)

    def _applied(self, data: relax.Expr, affine: Affine) -> relax.Expr:
        dtype = str(data.ty.dtype)
        if dtype in HALVES:
            return relax.op.astype(self.builder_.emit(self._in_single(data, affine)), dtype)
        producer, bias = self._without_bias(data)
        weighted = self._scaled_weights(producer, affine.scale)
        if weighted is None:
            weighted = relax.op.multiply(data, _per_channel(affine.scale, data))
            return relax.op.add(self.builder_.emit(weighted), _per_channel(affine.shift, data))
        shift = affine.shift if bias is None else affine.shift + bias * affine.scale
        return relax.op.add(self.builder_.emit(weighted), _per_channel(shift, data))

    def _in_single(self, data: relax.Expr, affine: Affine) -> relax.Expr:
        """The norm of half precision in float32, of what was rounded to ``data`` if nothing else reads it."""
        rounded = self.binding(data)
        is_single = operator_of(rounded) == "astype" and str(rounded.args[0].ty.dtype) == _SINGLE
        if is_single and self._alone(data):
            wide = rounded.args[0]
        else:
            wide = self.builder_.emit(relax.op.astype(data, _SINGLE))
        producer, bias = self._without_bias(wide)
        shift = affine.shift if bias is None else affine.shift + bias * affine.scale
        scaled = self.builder_.emit(relax.op.multiply(producer, _per_channel(affine.scale, producer)))
        return relax.op.add(scaled, _per_channel(shift, producer))

    def _without_bias(self, data: relax.Expr) -> tuple[relax.Expr, Array | None]:
        """The operand of the bias that computes ``data``, and the bias; ``data`` itself without one."""
        call = self.binding(data)
        if operator_of(call) != "add":
            return data, None
        for term, other in (call.args, reversed(call.args)):
            value = self.constant(other)
            if not isinstance(value, np.ndarray) or term.ty.ndim != data.ty.ndim:
                continue
            if is_per_channel(value.shape, data.ty.ndim):
                return (term, value.reshape(-1).astype(np.float64)) if self._alone(data) else (data, None)
        return data, None

    def _scaled_weights(self, producer: relax.Expr, scale: Array) -> relax.Call | None:
        call = self.binding(producer)
        axis = WEIGHT_CHANNEL_AXIS.get(operator_of(call))
        weights = None if axis is None else self.constant(call.args[1])
        if not isinstance(weights, np.ndarray) or axis is None or not self._alone(producer):
            return None
        if str(weights.dtype) in HALVES:
            return None
        if weights.shape[axis] != scale.size or not scales_channels(call, producer.ty.ndim):
            return None
        shape = [-1 if dimension == axis else 1 for dimension in range(weights.ndim)]
        scaled = (weights * scale.reshape(shape)).astype(weights.dtype)
        return relax.Call(call.op, [call.args[0], constant_of(scaled)], call.attrs)

    def _alone(self, variable: relax.Expr) -> bool:
        return isinstance(variable, relax.Var) and self._reads_of[variable.name] == 1


def scales_channels(call: relax.Call, rank: int) -> bool:
    """Whether the channels of a convolution, or of a product of a given rank, are those of its weights."""
    return operator_of(call) != "matmul" or rank == call.args[1].ty.ndim == _MATRIX_RANK


def reads_by_name(function: relax.Function) -> Counter[str]:
    """How often each variable is read, by name: a mutator makes new variables of the same names."""
    counts: Counter[str] = Counter()
    for variable, count in count_reads(function).items():
        counts[variable.name] += count
    return counts


def is_per_channel(shape: tuple[int, ...], rank: int) -> bool:
    """Whether a shape broadcasts along all axes of a tensor but the channels'."""
    padded = (1,) * (rank - len(shape)) + shape
    return all(size == 1 for axis, size in enumerate(padded) if axis != CHANNEL_AXIS)


def _per_channel(values: Array, data: relax.Expr) -> relax.Expr:
    shape = (-1, *(1 for _ in range(data.ty.ndim - CHANNEL_AXIS - 1)))
    return constant_of(values.reshape(shape).astype(str(data.ty.dtype)))
