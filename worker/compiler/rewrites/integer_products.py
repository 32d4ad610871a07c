"""Multiply the bytes of quantized models instead of the numbers that they stand for.

The scales of a product's factors leave it, and so does the zero point of the left one::

    matmul((x - z) * s, W * t)      →   (matmul(x, W) - z * sums of the columns of W) * (s * t)
    matmul(y, W * t)                →   matmul(y, W) * t
    matmul(x, W)                    →   matmul(x + 128, W) - 128 * sums of the columns of W
    conv2d((x - z) * s, W * t)      →   conv2d(bfloat16(x - z), bfloat16(W)) * (s * t)

``x`` and the constant ``W`` are bytes. ``s`` and ``z`` have one number, or one for each row of a matrix, and
``t`` has one, or one for each column or channel.

``s``, ``z`` and ``t`` may be missing. The first form needs an instruction that multiplies bytes; its sums of
int32 are exact. If the instruction takes bytes of the other sign, it gets ``x + 128`` and ``z + 128``, or
``x - 128`` and ``z - 128``; so do the products that the model computes in int32, as the third form shows. The
second form reads a quarter of the bytes of float32 weights. The last form is for tile registers: bfloat16
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
from tvm import relax, topi
from tvm.ir import GenericConst
from tvm.relax.expr_functor import mutator
from tvm_ffi import structural_equal

from worker.compiler.layout.constants import array_of, constant_of
from worker.compiler.layout.relax_graph import operator_of, static_shape
from worker.compiler.rewrites.fold import ValueMutator, evaluated
from worker.compiler.schedules.annotations import ELEMENTWISE, PATTERN
from worker.compiler.schedules.processors import Machine

Array = NDArray[Any]

_BYTES = ("int8", "uint8")
_WEIGHTS, _SUMS, _RESULT = "int8", "int32", "float32"
_FLOATS = ("float32", "float64")
_TILE_DTYPE = "bfloat16"
"""A floating-point type that holds every sum of a byte and a zero point."""
_CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "nn.conv3d")
_CHANNEL_STEP = 32
"""Tile registers multiply as many channels at a time."""
_HALF_RANGE, _LARGEST = 128, 255
_MAX_DEPTH = 2**31 // (2 * _LARGEST * _HALF_RANGE)
"""The depth up to which an int32 holds sums of products of a byte and a difference of bytes."""


class _Dequantized(NamedTuple):
    """``(values - zero_point) * scale``; either may be missing. The values have the shape of the whole."""

    values: relax.Expr
    scale: relax.Expr | None
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

    @tvm.transform.module_pass(opt_level=0, name="MultiplyBytes")
    def multiply(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        multiplier = _Multiplier(module, machine)
        for variable, function in module.functions_items():
            if isinstance(function, relax.Function):
                rewritten = relax.analysis.remove_all_unused(multiplier.visit_expr(function))
                multiplier.builder_.update_func(variable, rewritten)
        return multiplier.builder_.get()

    return multiply


@mutator
class _Multiplier(ValueMutator):
    def __init__(self, module: tvm.IRModule, machine: Machine) -> None:
        super().__init__(module)
        self._machine = machine
        self._values: dict[relax.Var, Array | None] = {}

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        operator, dtype = operator_of(call), str(getattr(call.ty, "dtype", ""))
        replacement = None
        if operator == "matmul" and dtype == _RESULT:
            replacement = self._product(*call.args)
        elif operator == "matmul" and dtype == _SUMS:
            replacement = self._of_bytes(*call.args)
        elif operator in _CONVOLUTIONS and dtype == _RESULT and self._machine.has_tiles:
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
        scale, zero_point = self._known_scale(data), self._zero_point(data)
        if scale is None or not isinstance(zero_point, np.ndarray) or (scale.size, zero_point.size) != (1, 1):
            return None
        values, scales = weights
        by_channel = scale.reshape(()).astype(np.float64) * scales
        is_by_channel = scales.size == scales.shape[0] and scales.size in (1, len(values))
        if not (is_by_channel and _is_normal(by_channel)):
            return None
        emit = self.builder_.emit
        shifted = emit(relax.op.astype(data.values, _RESULT))
        if zero_point.any():
            number = relax.const(float(zero_point.reshape(())), _RESULT)
            shifted = emit(relax.op.subtract(shifted, number))
        kernel = constant_of(values.astype(np.dtype(_TILE_DTYPE)))
        product = relax.Call(call.op, [emit(relax.op.astype(shifted, _TILE_DTYPE)), kernel], call.attrs)
        spread = by_channel.astype(np.float32).reshape(-1, *([1] * (values.ndim - 2)))
        return relax.op.multiply(emit(product), constant_of(spread))

    def _of_bytes(self, data: relax.Expr, matrix: relax.Expr) -> relax.Expr | None:
        """A product that the model itself computes in int32, for an instruction that takes other bytes."""
        values, dtype = self._known(matrix), str(data.ty.dtype)
        if values is None or values.dtype != _WEIGHTS or values.ndim != 2 or values.shape[0] > _MAX_DEPTH:
            return None
        if dtype not in _BYTES or self._can_multiply(dtype):
            return None
        suitable = self._suitable(data, np.zeros((), np.int32))
        if suitable is None or not isinstance(suitable[1], np.ndarray):
            return None
        return self._sums(suitable[0], values, suitable[1])

    def _of_floats(self, data: relax.Expr, weights: _Weights) -> relax.Expr:
        product = relax.op.matmul(data, constant_of(weights.values), out_dtype=_RESULT)
        return self._scaled(product, weights.scale)

    def _of_integers(self, data: relax.Expr, weights: _Weights) -> relax.Expr | None:
        """The product of bytes; None if the left factor has others, or no instruction multiplies them."""
        factor = self._dequantized(data)
        if factor is None or not self._is_by_rows(factor, data.ty.ndim):
            return None
        zero_point = self._zero_point(factor)
        suitable = None if zero_point is None else self._suitable(factor.values, zero_point)
        if suitable is None:
            return None
        scale = self._joint_scale(factor, weights)
        if scale is None:
            return None
        values, shift = suitable
        return self._scaled(self._shifted_sums(values, weights.values, shift), scale)

    def _sums(self, values: relax.Expr, matrix: Array, zero_point: Array) -> relax.Expr:
        """The product of ``values - zero_point`` and a matrix, in int32."""
        sums = relax.op.matmul(values, constant_of(matrix), out_dtype=_SUMS)
        if not zero_point.any():
            return sums
        return self.builder_.call_te(
            topi.subtract,
            self.builder_.emit(sums),
            constant_of(zero_point * _of_columns(matrix)),
            primfunc_name_hint="subtract",
            primfunc_attrs={PATTERN: ELEMENTWISE},
        )

    def _shifted_sums(self, values: relax.Expr, matrix: Array, zero_point: Array | relax.Expr) -> relax.Expr:
        """The product of ``values - zero_point`` and a matrix, in float32.

        A zero point that is known at run time only may be any number.
        """
        emit = self.builder_.emit
        if isinstance(zero_point, np.ndarray):
            return relax.op.astype(emit(self._sums(values, matrix, zero_point)), _RESULT)
        sums = emit(relax.op.matmul(values, constant_of(matrix), out_dtype=_SUMS))
        of_columns = constant_of(_of_columns(matrix).astype(_RESULT))
        shift = emit(relax.op.multiply(zero_point, of_columns))
        return relax.op.subtract(emit(relax.op.astype(sums, _RESULT)), shift)

    def _scaled(self, product: relax.Expr, scale: Array | relax.Expr) -> relax.Expr:
        if isinstance(scale, np.ndarray):
            if (scale == 1).all():
                return product
            scale = constant_of(scale)
        return relax.op.multiply(self.builder_.emit(product), scale)

    def _can_multiply(self, dtype: str) -> bool:
        return self._machine.find_dot(dtype, _WEIGHTS, _SUMS) is not None

    def _suitable(
        self, values: relax.Expr, zero_point: Array | relax.Expr
    ) -> tuple[relax.Expr, Array | relax.Expr] | None:
        """Bytes that an instruction multiplies, and their zero point; None if no instruction does."""
        dtype = str(values.ty.dtype)
        if self._can_multiply(dtype):
            return values, zero_point
        other, distance = ("uint8", _HALF_RANGE) if dtype == "int8" else ("int8", -_HALF_RANGE)
        if not self._can_multiply(other):
            return None
        wide = self.builder_.emit(relax.op.astype(values, "int16"))
        moved = self.builder_.emit(relax.op.add(wide, relax.const(distance, "int16")))
        return self.builder_.emit(relax.op.astype(moved, other)), self._plus(zero_point, distance)

    def _zero_point(self, factor: _Dequantized) -> Array | relax.Expr | None:
        """A zero point: in int32 if it is constant, else in float32; None for a constant that is no byte."""
        if factor.zero_point is None:
            return np.zeros((), np.int32)
        known = self._known(factor.zero_point)
        if known is not None:
            is_byte = bool((np.abs(known) <= _LARGEST).all()) and bool((known == np.trunc(known)).all())
            return known.astype(np.int32) if is_byte else None
        if str(factor.zero_point.ty.dtype) == _RESULT:
            return factor.zero_point
        return self.builder_.emit(relax.op.astype(factor.zero_point, _RESULT))

    def _plus(self, zero_point: Array | relax.Expr, number: int) -> Array | relax.Expr:
        if isinstance(zero_point, np.ndarray):
            return np.asarray(zero_point + np.int32(number))
        return self.builder_.emit(relax.op.add(zero_point, relax.const(float(number), _RESULT)))

    def _joint_scale(self, factor: _Dequantized, weights: _Weights) -> Array | relax.Expr | None:
        """The product of both scales; None if float32 does not hold it."""
        known = self._known_scale(factor)
        if known is not None:
            joint = known.astype(np.float64) * weights.scale
            return joint.astype(np.float32) if _is_normal(joint) else None
        scale = self._uncast(factor.scale)
        if str(scale.ty.dtype) != _RESULT:
            scale = self.builder_.emit(relax.op.astype(scale, _RESULT))
        return self.builder_.emit(relax.op.multiply(scale, constant_of(weights.scale)))

    def _known_scale(self, factor: _Dequantized) -> Array | None:
        """The scale, which is 1 if it is missing; None if it is not constant."""
        return np.ones((), np.float32) if factor.scale is None else self._known(self._uncast(factor.scale))

    def _weights(self, matrix: relax.Expr) -> _Weights | None:
        """The matrix as bytes; None if it is not constant, has other numbers, or zero points."""
        bound = self.binding(matrix)
        is_transposed = operator_of(bound) == "permute_dims"
        found = self._constant_factor(bound.args[0] if is_transposed else matrix)
        if found is None or matrix.ty.ndim != 2:
            return None
        values, scale = (each.T if is_transposed else each for each in found)
        if scale.shape[0] != 1 or values.shape[0] > _MAX_DEPTH:
            return None
        return _Weights(np.ascontiguousarray(values), scale.reshape(-1).astype(np.float32))

    def _constant_factor(self, expression: relax.Expr) -> tuple[Array, Array] | None:
        """Constant bytes without a zero point, and their scale, which has as many dimensions."""
        found = self._dequantized(expression)
        values = None if found is None else self._known(found.values)
        if found is None or values is None or values.dtype != _WEIGHTS:
            return None
        scale, zero_point = self._known_scale(found), self._zero_point(found)
        if scale is None or not isinstance(zero_point, np.ndarray) or zero_point.any():
            return None
        return values, scale.reshape((1,) * (values.ndim - scale.ndim) + scale.shape)

    def _dequantized(self, expression: relax.Expr) -> _Dequantized | None:
        product = self.binding(self._uncast(expression))
        is_scaled = operator_of(product) == "multiply"
        pairs = (product.args, reversed(product.args)) if is_scaled else ((expression, None),)
        for wide, scale in pairs:
            found = self._shifted(wide, scale)
            if found is not None and structural_equal(found.values.ty.shape, expression.ty.shape):
                return found
        return None

    def _shifted(self, wide: relax.Expr, scale: relax.Expr | None) -> _Dequantized | None:
        zero_point, cast = None, self.binding(self._uncast(wide))
        if operator_of(cast) == "subtract":
            wide, zero_point = cast.args
            cast = self.binding(self._uncast(wide))
        if operator_of(cast) != "astype" or str(cast.args[0].ty.dtype) not in _BYTES:
            return None
        if str(cast.ty.dtype) not in _FLOATS:
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
        if not isinstance(expression, relax.Var):
            return self._computed(expression)
        if expression not in self._values:
            self._values[expression] = self._computed(expression)
        return self._values[expression]

    def _computed(self, expression: relax.Expr) -> Array | None:
        bound = self.binding(expression)
        if isinstance(bound, GenericConst):
            return array_of(bound)
        return evaluated(bound, self._argument) if isinstance(bound, relax.Call) else None

    def _argument(self, expression: relax.Expr) -> Any:
        is_tensor = isinstance(expression.ty, relax.TensorType)
        return self._known(expression) if is_tensor else self.constant(expression)


def _suits_tiles(call: relax.Call) -> bool:
    """Whether tile registers multiply the channels of a convolution in whole steps."""
    sizes = static_shape(call.args[1])
    return (
        sizes is not None
        and int(call.attrs.groups) == 1
        and all(size % _CHANNEL_STEP == 0 for size in sizes[:2])
    )


def _of_columns(matrix: Array) -> Array:
    """The sums of the columns of a matrix of bytes."""
    return np.asarray(matrix.sum(0, dtype=np.int32))


def _is_normal(values: Array) -> bool:
    """Whether float32 holds numbers with all their digits."""
    limits = np.finfo(np.float32)
    return bool(((np.abs(values) >= limits.tiny) & (np.abs(values) <= limits.max)).all())


def _is_one(size: Any) -> bool:
    return isinstance(size, tvm.tirx.IntImm) and int(size) == 1
