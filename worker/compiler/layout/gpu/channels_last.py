"""Keep images with their channels last between convolutions, as GPUs read them.

    y = nn.conv2d(x, W)                 lv = permute_dims(x, (0, 2, 3, 1))
    z = nn.relu(y)               →      lv1 = nn.conv2d(lv, W')                  NHWC, weights in OHWI
    r = nn.softmax(z, axis=1)           lv2 = nn.relu(lv1)
                                        lv3 = permute_dims(lv2, (0, 3, 1, 2))
                                        r = nn.softmax(lv3, axis=1)

Neighboring threads then read neighboring channels, in vectors of 16 bytes, for every kernel size and stride.
A convolution starts a region with channels last; ``RULES`` names the operators that stay in it. The pass
transposes only at the region's borders, once per tensor. Constant weights are transposed at compile time.

``few_channels`` packs images of up to three channels instead.

A transposed convolution whose windows do not overlap is a linear layer at each pixel::

    y = nn.conv2d_transpose(x, W), strides = kernel     →      lv = matmul(x, W')           [N, H, W, kh kw O]
                                                               y  = its pixels in windows of kh by kw

TVM's ``ConvertLayout`` returns to channels first at every operator with a constant, such as a bias.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.ir import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from worker.compiler.layout.blocked.operator_rules import ELEMENTWISE
from worker.compiler.layout.constants import array_of, constant_of
from worker.compiler.layout.gpu.few_channels import convolve_few_channels, few_channels
from worker.compiler.layout.relax_graph import static_shape

Array = NDArray[Any]
_LAST, _FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
_RESHAPES = ("relax.reshape", "relax.squeeze", "relax.flatten")
_PLACE = {0: 0, 1: 3, 2: 1, 3: 2}
"""Where a dimension of NCHW lies in NHWC."""


@tvm.transform.module_pass(opt_level=0, name="ChannelsLast")
def channels_last(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Compute convolutions, and what lies between them, with the channels last."""
    graph = ChannelsLastGraph(module)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            graph.builder_.update_func(variable, graph.visit_expr(function))
    return graph.builder_.get()


@mutator
class ChannelsLastGraph(PyExprMutator):
    """A graph whose images stay with channels last; a plain one appears once, before its first reader."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._images: dict[relax.Var, relax.Var] = {}
        self._plain: set[relax.Var] = set()

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """Compute a binding with channels last where a rule says how."""
        value = binding.value
        single = self._single_pixel(value)
        if single is not None:
            super().visit_var_binding_(relax.VarBinding(binding.var, single))
            return
        rule = RULES.get(value.op.name) if _is_call(value) else None
        image = None if rule is None else rule(value, self)
        if image is None:
            super().visit_var_binding_(binding)
            return
        self._images[binding.var] = image
        if not isinstance(binding.var, relax.DataflowVar):
            self._plain.add(binding.var)
            super().visit_var_binding_(relax.VarBinding(binding.var, _first(image)))

    def visit_dataflow_var_(self, variable: relax.DataflowVar) -> relax.Expr:
        """Transpose an image back, once, for the first reader that needs it plain."""
        image = self._images.get(variable)
        if image is not None and variable not in self._plain:
            self._plain.add(variable)
            self.set_var_remap(variable, self.builder_.emit(_first(image)))
        return super().visit_dataflow_var_(variable)

    def _single_pixel(self, value: relax.Expr) -> relax.Expr | None:
        """A reshape of an image of one pixel, which has the same order in both layouts; None for others."""
        if not _is_call(value) or value.op.name not in _RESHAPES:
            return None
        image, sizes = self.ready(value.args[0]), static_shape(value.args[0])
        if image is None or sizes is None or static_shape(value) is None or sizes[2:] != (1, 1):
            return None
        return relax.op.reshape(image, static_shape(value))

    def ready(self, operand: relax.Expr) -> relax.Var | None:
        """The operand with channels last, if it is computed so."""
        return self._images.get(operand) if isinstance(operand, relax.Var) else None

    def image(self, operand: relax.Expr) -> relax.Expr | None:
        """The operand with channels last, transposed if necessary; None if it has not four dimensions."""
        ready = self.ready(operand)
        if ready is not None or operand.ty.ndim != len(_LAST):
            return ready
        if isinstance(operand, GenericConst):
            return _constant(np.transpose(array_of(operand), _LAST), operand)
        transposed = self.emit(_last(self.visit_expr(operand)))
        if isinstance(operand, relax.Var):
            self._images[operand] = transposed
            self._plain.add(operand)
        return transposed

    def plain(self, operand: relax.Expr) -> relax.Expr:
        """The plain operand in the new graph."""
        return self.visit_expr(operand)

    def emit(self, call: relax.Expr) -> relax.Var:
        """Emit a call whose operands already belong to the new graph."""
        return self.builder_.emit(call)


def _is_call(value: relax.Expr) -> bool:
    return isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op)


def _last(image: relax.Expr) -> relax.Expr:
    return _moved(image, _LAST)


def _first(image: relax.Expr) -> relax.Expr:
    return _moved(image, _FIRST)


def _moved(image: relax.Expr, axes: tuple[int, ...]) -> relax.Expr:
    """A transposition; a reshape if only dimensions of one element move."""
    sizes = static_shape(image)
    if sizes is not None:
        moved = tuple(sizes[axis] for axis in axes)
        if [axis for axis in axes if sizes[axis] > 1] == [axis for axis in range(4) if sizes[axis] > 1]:
            return relax.op.reshape(image, moved)
    return relax.op.permute_dims(image, axes)


def _constant(values: Array, of: GenericConst) -> relax.Expr:
    """A constant with the dtype of another, which numpy may lack."""
    dtype = str(of.value.dtype)
    laid_out = np.ascontiguousarray(values)
    return constant_of(laid_out) if str(laid_out.dtype) == dtype else relax.const(laid_out, dtype)


def _transposed(operand: relax.Expr, axes: tuple[int, ...], graph: ChannelsLastGraph) -> relax.Expr:
    """Weights in another order, at compile time if they are constant."""
    if isinstance(operand, GenericConst):
        return _constant(np.transpose(array_of(operand), axes), operand)
    return graph.emit(relax.op.permute_dims(graph.plain(operand), axes))


def _convolve(call: relax.Call, graph: ChannelsLastGraph) -> relax.Var | None:
    attributes = call.attrs
    if str(attributes.data_layout) != "NCHW" or str(attributes.kernel_layout) != "OIHW":
        return None
    packed = few_channels(call) if isinstance(call.args[1], GenericConst) else None
    if packed is not None:
        weights = _constant(packed.weights(array_of(call.args[1])), call.args[1])
        ready = graph.ready(call.args[0])
        image = graph.plain(call.args[0]) if ready is None else ready
        return convolve_few_channels(packed, image, ready is not None, weights, graph.builder_)
    data = graph.image(call.args[0])
    if data is None or static_shape(call) is None:
        return None
    weights = _transposed(call.args[1], _LAST, graph)
    return graph.emit(
        relax.op.nn.conv2d(
            data,
            weights,
            strides=attributes.strides,
            padding=attributes.padding,
            dilation=attributes.dilation,
            groups=int(attributes.groups),
            data_layout="NHWC",
            kernel_layout="OHWI",
            out_dtype=attributes.out_dtype or None,
        )
    )


def _convolve_transposed(call: relax.Call, graph: ChannelsLastGraph) -> relax.Var | None:
    """A transposed convolution without overlap, as a linear layer; others stay as they are."""
    attributes, weights = call.attrs, call.args[1]
    shape, sizes = static_shape(weights), static_shape(call.args[0])
    if shape is None or sizes is None or str(attributes.data_layout) != "NCHW":
        return None
    if str(attributes.kernel_layout) != "IOHW" or int(attributes.groups) != 1:
        return None
    depth, outputs, *window = shape
    is_plain = not any(map(int, (*attributes.padding, *attributes.output_padding)))
    if not is_plain or list(map(int, attributes.strides)) != window:
        return None
    if any(int(dilation) != 1 for dilation in attributes.dilation):
        return None
    data = graph.image(call.args[0])
    batch, _, rows, columns = sizes
    matrix: relax.Expr = _transposed(weights, _LAST, graph)
    joined = (depth, window[0] * window[1] * outputs)
    matrix = (
        _constant(array_of(matrix).reshape(joined), matrix)
        if isinstance(matrix, GenericConst)
        else graph.emit(relax.op.reshape(matrix, joined))
    )
    pixels = graph.emit(relax.op.reshape(data, (batch * rows * columns, depth)))
    product = graph.emit(relax.op.matmul(pixels, matrix, str(attributes.out_dtype or "") or None))
    parts = graph.emit(relax.op.reshape(product, (batch, rows, columns, *window, outputs)))
    moved = graph.emit(relax.op.permute_dims(parts, (0, 1, 3, 2, 4, 5)))
    return graph.emit(relax.op.reshape(moved, (batch, rows * window[0], columns * window[1], outputs)))


def _map(call: relax.Call, graph: ChannelsLastGraph) -> relax.Var | None:
    """An elementwise operator, if an operand has its channels last."""
    if call.ty.ndim != len(_LAST) or not any(graph.ready(operand) is not None for operand in call.args):
        return None
    operands = [_operand(operand, graph) for operand in call.args]
    if any(operand is None for operand in operands):
        return None
    return graph.emit(relax.Call(call.op, operands, call.attrs))


def _operand(operand: relax.Expr, graph: ChannelsLastGraph) -> relax.Expr | None:
    if not isinstance(operand.ty, relax.TensorType) or operand.ty.ndim == 0:
        return graph.plain(operand)
    if isinstance(operand, GenericConst) and operand.ty.ndim < len(_LAST):
        values = array_of(operand)
        widened = values.reshape((1,) * (4 - values.ndim) + values.shape)
        return _constant(np.transpose(widened, _LAST), operand)
    return graph.image(operand)


def _pool(call: relax.Call, graph: ChannelsLastGraph) -> relax.Var | None:
    data, attributes = graph.ready(call.args[0]), call.attrs
    if data is None or str(attributes.layout) != "NCHW":
        return None
    pool = relax.op.nn.max_pool2d if "max" in call.op.name else relax.op.nn.avg_pool2d
    return graph.emit(
        pool(
            data,
            pool_size=attributes.pool_size,
            strides=attributes.strides,
            padding=attributes.padding,
            dilation=attributes.dilation,
            ceil_mode=bool(attributes.ceil_mode),
            count_include_pad=bool(attributes.count_include_pad),
            layout="NHWC",
        )
    )


def _pool_adaptively(call: relax.Call, graph: ChannelsLastGraph) -> relax.Var | None:
    data = graph.ready(call.args[0])
    if data is None or str(call.attrs.layout) != "NCHW":
        return None
    return graph.emit(relax.op.nn.adaptive_avg_pool2d(data, call.attrs.output_size, layout="NHWC"))


def _reduce(call: relax.Call, graph: ChannelsLastGraph) -> relax.Var | None:
    """A mean, a sum or an extreme that keeps all four dimensions."""
    data = graph.ready(call.args[0])
    if data is None or not call.attrs.axis or not call.attrs.keepdims:
        return None
    axes = [_PLACE[int(axis) % len(_LAST)] for axis in call.attrs.axis]
    reduce: Callable[..., relax.Expr] = getattr(relax.op, call.op.name.removeprefix("relax."))
    return graph.emit(reduce(data, axis=axes, keepdims=True))


def _join(call: relax.Call, graph: ChannelsLastGraph) -> relax.Var | None:
    parts = tuple(call.args[0].fields) if isinstance(call.args[0], relax.Tuple) else ()
    if call.ty.ndim != len(_LAST) or not any(graph.ready(part) is not None for part in parts):
        return None
    if call.attrs.axis is None:
        return None
    images = [graph.image(part) for part in parts]
    return graph.emit(relax.op.concat(images, axis=_PLACE[int(call.attrs.axis) % len(_LAST)]))


Rule = Callable[[relax.Call, ChannelsLastGraph], relax.Var | None]
"""Computes a call with channels last, or returns None to leave it alone."""

RULES: dict[str, Rule] = {
    "relax.nn.conv2d": _convolve,
    "relax.nn.conv2d_transpose": _convolve_transposed,
    "relax.nn.max_pool2d": _pool,
    "relax.nn.avg_pool2d": _pool,
    "relax.nn.adaptive_avg_pool2d": _pool_adaptively,
    **{f"relax.{name}": _reduce for name in ("mean", "sum", "max", "min")},
    "relax.concat": _join,
    **{f"relax.{name}": _map for name in (*ELEMENTWISE, "astype", "divide", "exp", "sqrt")},
}
"""Rules by the operator's name."""
