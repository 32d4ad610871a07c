"""Multiply the bytes of quantized models instead of the numbers that they stand for.

The scales of a product's factors leave it, and so does the zero point of the left one::

    matmul((x - z) * s, W * t)      →   (matmul(x, W) - z * sums of the columns of W) * (s * t)
    matmul(y, W * t)                →   matmul(y, W) * t
    conv2d((x - z) * s, W * t)      →   conv2d(bfloat16(x - z), bfloat16(W)) * (s * t)

``x`` and the constant ``W`` are bytes. ``s`` and ``z`` have one number, or one for each row of a matrix, and
``t`` has one, or one for each column or channel.

The first form needs an instruction that multiplies bytes; its sums of int32 are exact. An instruction for
unsigned by signed bytes multiplies signed ones too: those of ``x + 128``, whose zero point is ``z + 128``.
The second form reads a quarter of the bytes of float32 weights. The third one is for tile registers: bfloat16
holds every whole number up to 256, so products are exact, and a convolution takes one of them instead of six.

Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
Inference", 2018, section 2.3.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes  # noqa: F401 - gives NumPy bfloat16
import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.relax.expr_functor import mutator

from worker.compiler.layout.constants import constant_of
from worker.compiler.layout.relax_graph import operator_of, static_shape
from worker.compiler.rewrites.evaluators import EVALUATORS
from worker.compiler.rewrites.fold import ValueMutator
from worker.compiler.schedules.processors import Machine

Array = NDArray[Any]

_BYTES = ("int8", "uint8")
_WEIGHTS, _SUMS, _RESULT = "int8", "int32", "float32"
_FLOATS = ("float32", "float64")
_WHOLE = "bfloat16"
"""A floating-point type that holds every sum of a byte and a zero point."""
_CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "nn.conv3d")
_LEAST_CHANNELS = 32
"""Tile registers multiply as many channels at a time."""
_HALF_RANGE = 128
_MOST_STEPS = 2**31 // (255 * 128)
"""The depth up to which sums of products of bytes fit in an int32."""


class _Dequantized(NamedTuple):
    """``(values - zero_point) * scale``; without a zero point, ``values * scale``."""

    values: relax.Expr
    scale: relax.Expr
    zero_point: relax.Expr | None


class _Weights(NamedTuple):
    """A matrix ``[depth, columns]`` of bytes, and the scale of each column or of all."""

    values: Array
    scale: Array


def multiply_bytes(machine: Machine) -> tvm.transform.Pass:
    """A pass that multiplies bytes by the constant matrices of quantized models.

    Args:
        machine: the processor, whose instructions decide which products are those of integers.
    """

    @relax.transform.function_pass(opt_level=0, name="MultiplyBytes")
    def multiply(
        function: relax.Function, module: tvm.IRModule, _context: tvm.transform.PassContext
    ) -> relax.Function:
        rewritten = _Multiplier(module, machine).visit_expr(function)
        return relax.analysis.remove_all_unused(rewritten)

    return multiply


@mutator
class _Multiplier(ValueMutator):
    def __init__(self, module: tvm.IRModule, machine: Machine) -> None:
        super().__init__(module)
        self._machine = machine

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        operator = operator_of(call)
        replacement = None
        if operator == "matmul" and str(call.ty.dtype) == _RESULT:
            replacement = self._product(*call.args)
        elif operator in _CONVOLUTIONS and self._machine.has_tiles:
            replacement = self._by_tiles(call)
        return call if replacement is None else replacement

    def _product(self, data: relax.Expr, matrix: relax.Expr) -> relax.Expr | None:
        """A product by a matrix of bytes; None for other matrices."""
        weights = self._weights(matrix)
        if weights is None:
            return None
        of_integers = self._of_integers(data, weights)
        return self._of_floats(data, weights) if of_integers is None else of_integers

    def _by_tiles(self, call: relax.Call) -> relax.Expr | None:
        """A convolution of whole numbers in bfloat16; None for others, and where tiles would not pay."""
        data, weights = self._dequantized(call.args[0]), self._constant_factor(call.args[1])
        if data is None or weights is None or not _suits_tiles(call):
            return None
        scale, zero_point = self._known(self._uncast(data.scale)), self._integers(data.zero_point)
        if scale is None or not isinstance(zero_point, np.ndarray) or (scale.size, zero_point.size) != (1, 1):
            return None
        values, scales = weights
        if scales.size not in (1, len(values)) or scales.size != scales.shape[0]:
            return None
        emit = self.builder_.emit
        shifted = emit(relax.op.astype(data.values, _RESULT))
        if zero_point.any():
            number = relax.const(float(zero_point.reshape(())), _RESULT)
            shifted = emit(relax.op.subtract(shifted, number))
        kernel = constant_of(values.astype(np.dtype(_WHOLE)))
        product = relax.Call(call.op, [emit(relax.op.astype(shifted, _WHOLE)), kernel], call.attrs)
        by_channel = (scale.reshape(()) * scales).astype(np.float32).reshape(-1, *([1] * (values.ndim - 2)))
        return relax.op.multiply(emit(product), constant_of(by_channel))

    def _of_floats(self, data: relax.Expr, weights: _Weights) -> relax.Expr:
        product = relax.op.matmul(data, constant_of(weights.values), out_dtype=_RESULT)
        return relax.op.multiply(self.builder_.emit(product), constant_of(weights.scale))

    def _of_integers(self, data: relax.Expr, weights: _Weights) -> relax.Expr | None:
        """The product of bytes; None if the left factor has others, or no instruction multiplies them."""
        factor = self._dequantized(data)
        if factor is None or not self._is_by_rows(factor, data.ty.ndim):
            return None
        dtype = str(factor.values.ty.dtype)
        values, zero_point = factor.values, self._integers(factor.zero_point)
        if not self._can_multiply(dtype):
            if dtype == "uint8" or not self._can_multiply("uint8"):
                return None
            values, zero_point = self._unsigned(values), self._plus(zero_point, _HALF_RANGE)
        emit = self.builder_.emit
        sums = emit(relax.op.matmul(values, constant_of(weights.values), out_dtype=_SUMS))
        of_columns = weights.values.sum(0, dtype=np.int32)
        shift = self._times(zero_point, of_columns)
        if shift is not None:
            sums = emit(relax.op.subtract(sums, shift))
        return relax.op.multiply(emit(relax.op.astype(sums, _RESULT)), self._scale(factor, weights))

    def _can_multiply(self, dtype: str) -> bool:
        return self._machine.find_dot(dtype, _WEIGHTS, _SUMS) is not None

    def _unsigned(self, values: relax.Expr) -> relax.Expr:
        wide = self.builder_.emit(relax.op.astype(values, "int16"))
        moved = self.builder_.emit(relax.op.add(wide, relax.const(_HALF_RANGE, "int16")))
        return self.builder_.emit(relax.op.astype(moved, "uint8"))

    def _integers(self, zero_point: relax.Expr | None) -> Array | relax.Expr:
        """A zero point in int32: an array if it is constant."""
        if zero_point is None:
            return np.zeros((), np.int32)
        cast = self.binding(zero_point)
        if operator_of(cast) == "astype":
            zero_point = cast.args[0]
        known = self._known(zero_point)
        if known is not None:
            return known.astype(np.int32)
        return self.builder_.emit(relax.op.astype(zero_point, _SUMS))

    def _plus(self, zero_point: Array | relax.Expr, number: int) -> Array | relax.Expr:
        if isinstance(zero_point, np.ndarray):
            return np.asarray(zero_point + np.int32(number))
        return self.builder_.emit(relax.op.add(zero_point, relax.const(number, _SUMS)))

    def _times(self, zero_point: Array | relax.Expr, of_columns: Array) -> relax.Expr | None:
        """What zero points add to the sums; None if that is nothing."""
        if isinstance(zero_point, np.ndarray):
            return constant_of(zero_point * of_columns) if zero_point.any() else None
        return self.builder_.emit(relax.op.multiply(zero_point, constant_of(of_columns)))

    def _scale(self, factor: _Dequantized, weights: _Weights) -> relax.Expr:
        scale = self._uncast(factor.scale)
        known = self._known(scale)
        if known is not None:
            return constant_of((known * weights.scale).astype(np.float32))
        if str(scale.ty.dtype) != _RESULT:
            scale = self.builder_.emit(relax.op.astype(scale, _RESULT))
        return self.builder_.emit(relax.op.multiply(scale, constant_of(weights.scale)))

    def _weights(self, matrix: relax.Expr) -> _Weights | None:
        """The matrix as bytes; None if it is not constant, has other numbers, or zero points."""
        bound = self.binding(matrix)
        is_transposed = operator_of(bound) == "permute_dims"
        found = self._constant_factor(bound.args[0] if is_transposed else matrix)
        if found is None or matrix.ty.ndim != 2:
            return None
        values, scale = (each.T if is_transposed else each for each in found)
        if scale.shape[0] != 1 or values.shape[0] > _MOST_STEPS:
            return None
        return _Weights(np.ascontiguousarray(values), scale.reshape(-1).astype(np.float32))

    def _constant_factor(self, expression: relax.Expr) -> tuple[Array, Array] | None:
        """Constant bytes without a zero point, and their scale, which has as many dimensions."""
        found = self._dequantized(expression)
        values = None if found is None else self._known(found.values)
        if found is None or values is None or values.dtype != _WEIGHTS:
            return None
        scale, zero_point = self._known(self._uncast(found.scale)), self._integers(found.zero_point)
        if scale is None or not isinstance(zero_point, np.ndarray) or zero_point.any():
            return None
        return values, scale.reshape((1,) * (values.ndim - scale.ndim) + scale.shape)

    def _dequantized(self, expression: relax.Expr) -> _Dequantized | None:
        product = self.binding(self._uncast(expression))
        if operator_of(product) != "multiply":
            return None
        for wide, scale in (product.args, reversed(product.args)):
            found = self._shifted(self._uncast(wide), scale)
            if found is not None:
                return found
        return None

    def _shifted(self, wide: relax.Expr, scale: relax.Expr) -> _Dequantized | None:
        zero_point, cast = None, self.binding(wide)
        if operator_of(cast) == "subtract":
            wide, zero_point = cast.args
            cast = self.binding(self._uncast(wide))
        if operator_of(cast) != "astype" or str(cast.args[0].ty.dtype) not in _BYTES:
            return None
        return _Dequantized(cast.args[0], scale, zero_point)

    def _uncast(self, expression: relax.Expr) -> relax.Expr:
        """An expression before casts between floating-point types of at least 32 bits."""
        while True:
            cast = self.binding(expression)
            dtypes = (
                {str(each.ty.dtype) for each in (cast, *cast.args)} if operator_of(cast) == "astype" else ()
            )
            if not dtypes or not dtypes.issubset(_FLOATS):
                return expression
            expression = cast.args[0]

    def _is_by_rows(self, factor: _Dequantized, rank: int) -> bool:
        """Whether the scale and the zero point are the same along the depth."""
        types = [each.ty for each in (factor.scale, factor.zero_point) if each is not None]
        return all(kind.ndim == 0 or (kind.ndim <= rank and _is_one(kind.shape[-1])) for kind in types)

    def _known(self, expression: relax.Expr) -> Array | None:
        """The value of a tensor that follows from constants; None if it is unknown."""
        value = self.constant(expression)
        call = self.binding(expression)
        if value is not None or not isinstance(call, relax.Call):
            return value if isinstance(value, np.ndarray) else None
        evaluate = EVALUATORS.get(operator_of(call))
        if evaluate is None:
            return None
        arguments = [self._argument(each) for each in call.args]
        return None if any(each is None for each in arguments) else evaluate(call.attrs, *arguments)

    def _argument(self, expression: relax.Expr) -> Any:
        is_tensor = isinstance(expression.ty, relax.TensorType)
        return self._known(expression) if is_tensor else self.constant(expression)


def _suits_tiles(call: relax.Call) -> bool:
    """Whether tile registers multiply the channels of a convolution in whole steps."""
    sizes = static_shape(call.args[1])
    return (
        sizes is not None
        and int(call.attrs.groups) == 1
        and all(size % _LEAST_CHANNELS == 0 for size in sizes[:2])
    )


def _is_one(size: Any) -> bool:
    return isinstance(size, tvm.tirx.IntImm) and int(size) == 1
