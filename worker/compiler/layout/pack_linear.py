"""Pack the weights of linear layers into the panels that their kernels read.

    y = matmul(x, W)      →      y = call_tir(linear, (x, packed W))

``W`` is ``[depth, columns]`` and constant, or depends on separate parameters alone. Packed it is ``[panels,
depth, panel columns]``: the columns of one panel lie side by side, so the kernel reads it front to back.
``matmul_plans`` chooses the panel width, the columns of its register tile; it is 32 where tile registers
compute the product. Vectors read each number of ``x`` once for every panel, so ``astype`` widens half
precision first.

    linear[..., column] = sum over k of x[..., k] * packed[panel, k, column - start]
    panel = column // width, start = min(panel * width, columns - width)

Where an instruction multiplies groups of narrow numbers (``schedules.dot_instructions``), the panels are
``[panels, groups, panel columns * group]``: a group of the depth of each column is contiguous, and zeros fill
up the last group.

If the width does not divide the columns, the last panel overlaps its neighbor. A matrix narrower than one
panel is padded with zeros, and ``start`` is 0. This pass packs a constant and keeps only the packed copy; for
a parameter it emits ``pack_weights``, which ``LiftTransformParams`` moves to load time. The loops are in
``schedules.families.matmul``. Packing into panels follows Goto and van de Geijn, "Anatomy of High-Performance
Matrix Multiplication" (2008).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable
from math import ceil, prod
from typing import Any, NamedTuple

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, te, tirx
from tvm.ir import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from worker.compiler.layout.constants import array_of, constant_of
from worker.compiler.layout.images import HALVES
from worker.compiler.layout.relax_graph import resolve, static_shape
from worker.compiler.layout.separate_parameters import Derivation, parameters_of
from worker.compiler.schedules.annotations import FUSES_OUTPUT, PACKED, PACKED_GROUP, PATTERN
from worker.compiler.schedules.blocks import guess
from worker.compiler.schedules.families.matmul.dots import unit_of
from worker.compiler.schedules.families.matmul.plan import MatmulShape, matmul_plans
from worker.compiler.schedules.families.matmul.tile_plan import PANEL, PARTS, faster_by_tiles
from worker.compiler.schedules.nest import bits_of
from worker.compiler.schedules.processors import Machine

_MATMUL = tvm.ir.Op.get("relax.matmul")


class PanelWidths:
    """The panel width of each matrix. The first entry point that uses one decides for the others.

    Then all read the same packed copy, and the library holds it once. If the first has too few rows for tile
    registers, the others do not use them either.
    """

    def __init__(self) -> None:
        self._chosen: dict[Hashable, int] = {}

    def of(self, matrix: Hashable, best: int) -> int:
        """The width for a matrix, which is ``best`` for the first that asks."""
        return self._chosen.setdefault(matrix, best)


def pack_linear_weights(machine: Machine, widths: PanelWidths | None = None) -> tvm.transform.Pass:
    """A pass that replaces products with constant matrices by kernels that read packed matrices.

    Args:
        machine: the processor.
        widths: the widths of matrices that several entry points use.
    """

    @tvm.transform.module_pass(opt_level=0, name="PackLinearWeights")
    def pack(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        packer = _Packer(module, machine, widths)
        for variable, function in module.functions_items():
            if isinstance(function, relax.Function):
                packer.builder_.update_func(variable, packer.packed(function))
        return packer.builder_.get()

    return pack


def pack_panels_tensor(columns: int, group: int = 1) -> Callable[[Any], Any]:
    """A kernel that does what ``pack_panels`` does."""

    def kernel(weights: Any) -> Any:
        depth, width = map(int, weights.shape)
        last = tirx.IntImm("int64", max(width - columns, 0))

        def element(panel: Any, step: Any, column: Any) -> Any:
            row, place = step * group + column % group, tirx.min(panel * columns, last) + column // group
            exists = [
                *([place < width] if width < columns else []),
                *([row < depth] if depth % group else []),
            ]
            if not exists:
                return weights[row, place]
            return tirx.if_then_else(tirx.all(*exists), weights[row, place], tirx.const(0, weights.dtype))

        sizes = (ceil(width / columns), ceil(depth / group), columns * group)
        shape = tuple(tirx.IntImm("int64", size) for size in sizes)
        return te.compute(shape, element, name="pack_weights")

    return kernel


def pack_panels(weights: NDArray[Any], columns: int, group: int = 1) -> NDArray[Any]:
    """``[depth, N]`` to ``[panels, groups, columns * group]``.

    The last panel overlaps, or is padded with zeros; so is the last group.
    """
    depth, width = weights.shape
    groups = ceil(depth / group)
    missing = (groups * group - depth, max(0, columns - width))
    if any(missing):
        weights = np.pad(weights, [(0, number) for number in missing])
    starts = [min(panel * columns, weights.shape[1] - columns) for panel in range(ceil(width / columns))]
    cut = np.stack([weights[:, start : start + columns] for start in starts])
    grouped = cut.reshape(len(starts), groups, group, columns).swapaxes(2, 3)
    return np.ascontiguousarray(grouped).reshape(len(starts), groups, columns * group)


class _Kernel(NamedTuple):
    """What distinguishes the kernels of operands of one shape."""

    width: int
    columns: int
    group: int
    dtype: str
    out_dtype: str


@mutator
class _Packer(PyExprMutator):
    def __init__(self, module: tvm.IRModule, machine: Machine, widths: PanelWidths | None) -> None:
        super().__init__(module)
        self._machine = machine
        self._widths = widths
        self._derivation = Derivation((), self.lookup_binding)
        self._products: dict[Hashable, relax.Call] = {}

    def packed(self, function: relax.Function) -> relax.Function:
        """The function with its products replaced."""
        self._derivation = Derivation(parameters_of(function), self.lookup_binding)
        return self.visit_expr(function)

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        shape = self._shape_of_weights(call)
        if shape is None:
            return call
        data, weights = call.args
        out_dtype = str(call.ty.dtype)
        dtype = str(weights.ty.dtype)
        dot = self._machine.find_dot(str(data.ty.dtype), dtype, out_dtype)
        sizes = MatmulShape(
            rows=prod(map(guess, list(data.ty.shape)[:-1])),
            depth=shape[0],
            columns=shape[1],
            bits=bits_of(out_dtype),
            unit=None if dot is None else unit_of(dot, bits_of(dtype)),
        )
        dtypes = str(data.ty.dtype), dtype, out_dtype
        by_tiles = static_shape(data) is not None and self._by_tiles(dtypes, sizes)
        if dot is None and out_dtype == "bfloat16":
            return call
        if dot is None and not by_tiles and dtypes[0] in HALVES and out_dtype not in HALVES:
            data = self.builder_.emit(relax.op.astype(data, out_dtype))
        columns = self._width(weights, sizes, by_tiles)
        kernel = _Kernel(shape[1], columns, 1 if dot is None else dot.group, dtype, out_dtype)
        return self._product(data, self._pack(weights, kernel), kernel)

    def _by_tiles(self, dtypes: tuple[str, str, str], sizes: MatmulShape) -> bool:
        """Whether tile registers compute a product of these dtypes, of the operands and of the sums."""
        parts = PARTS.get(dtypes[0])
        is_uniform = dtypes[0] == dtypes[1] and dtypes[2] == "float32"
        return parts is not None and is_uniform and faster_by_tiles(sizes, self._machine, parts)

    def _width(self, weights: relax.Expr, sizes: MatmulShape, by_tiles: bool) -> int:
        """The best panel width; one of whole vectors if entry points with more rows may read the panels."""
        tiles = (plan.tile for plan in matmul_plans(sizes, self._machine))
        if self._widths is None:
            return PANEL if by_tiles else next(tiles).columns
        whole = self._machine.lanes(sizes.bits)
        best = PANEL if by_tiles else next(tile.columns for tile in tiles if tile.lanes == whole)
        return self._widths.of((self._identity(weights), sizes.bits, sizes.unit), best)

    def _identity(self, weights: relax.Expr) -> Hashable:
        """Equal for equal constants, and for what is computed in the same way from parameters."""
        value = resolve(weights, self.lookup_binding)
        if isinstance(value, GenericConst):
            array = np.ascontiguousarray(array_of(value))
            data = array.view("uint8").data  # bfloat16 has no buffer of its own
            return array.shape, str(array.dtype), hashlib.blake2b(data, digest_size=16).digest()
        if isinstance(value, relax.Call):
            return value.op.name, str(value.attrs), *map(self._identity, value.args)
        return str(value)

    def _product(self, data: relax.Expr, packed: relax.Expr, kernel: _Kernel) -> relax.Call:
        """A call of a kernel; equal layers share the function that the first of them writes."""
        rows = static_shape(data)
        key = (kernel, rows, str(data.ty.dtype), static_shape(packed))
        first = self._products.get(key) if rows is not None else None
        if first is not None:
            return relax.Call(first.op, [first.args[0], relax.Tuple([data, packed])], ty_args=first.ty_args)
        self._products[key] = self.builder_.call_te(
            _compute(kernel),
            data,
            packed,
            primfunc_name_hint="linear",
            primfunc_attrs={PATTERN: FUSES_OUTPUT},
        )
        return self._products[key]

    def _pack(self, weights: relax.Expr, kernel: _Kernel) -> relax.Expr:
        constant = resolve(weights, self.lookup_binding)
        if isinstance(constant, GenericConst):
            return constant_of(pack_panels(array_of(constant), kernel.columns, kernel.group))
        pack = pack_panels_tensor(kernel.columns, kernel.group)
        return self.builder_.emit_te(pack, weights, primfunc_name_hint="pack_weights")

    def _shape_of_weights(self, call: relax.Call) -> tuple[int, ...] | None:
        """The shape of the matrix that a call multiplies by in every run; None for other calls."""
        if call.op != _MATMUL:
            return None
        data, weights = call.args
        shape = static_shape(weights)
        is_constant = isinstance(resolve(weights, self.lookup_binding), GenericConst)
        if not is_constant and (self._derivation.is_empty or not self._derivation.holds(weights)):
            return None
        if shape is None or len(shape) != 2 or 0 in shape:
            return None
        return shape if _is_known(data) else None


def _is_known(data: relax.Expr) -> bool:
    """Whether a tensor has rows of a known length; their number may be dynamic."""
    sizes = getattr(data.ty, "shape", None)
    if not isinstance(sizes, relax.ShapeExpr) or len(sizes) < 2 or not isinstance(sizes[-1], tirx.IntImm):
        return False
    return all(int(size) > 0 for size in sizes if isinstance(size, tirx.IntImm))


def _compute(kernel: _Kernel) -> Callable[[Any, Any], Any]:
    """``data [..., depth]`` times packed weights, to ``[..., width]``."""
    width, columns, group, _, out_dtype = kernel
    notes = {PACKED: columns} | ({PACKED_GROUP: group} if group > 1 else {})

    def linear(data: Any, packed: Any) -> Any:
        step = te.reduce_axis((tirx.IntImm("int64", 0), data.shape[-1]), "k")

        def element(*place: Any) -> Any:
            *row, column = place
            panel = column // columns
            start = (
                panel * columns
                if width % columns == 0 or width < columns
                else tirx.min(panel * columns, width - columns)
            )
            place = step // group, (column - start) * group + step % group
            factors = data[(*row, step)], packed[(panel, *place)]
            return te.sum(factors[0].astype(out_dtype) * factors[1].astype(out_dtype), axis=step)

        shape = [*data.shape[:-1], tirx.IntImm("int64", width)]
        return te.compute(shape, element, "linear", attrs=notes)

    return linear
