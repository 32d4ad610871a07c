"""Products of narrow numbers, by instructions that multiply groups of them.

Claims products whose factors are casts of operands that ``dot_instructions`` lists to the dtype of the sums,
with a constant depth and constant columns. Tasks, chunks, edges and the epilogue are those of ``loops``; the
tile's sums are computed as::

    for k in groups of the depth:
        for row group, column group:                                     # unrolled
            sums[row group, column group] += instruction(left[row group, k], right[k, column group])
    kept[row, vector, lanes] = the sums of each row, shuffled

A row group is one row, or two for an instruction with 2 x 2 sums. Its groups are loaded from both rows and
joined, so the left operand is read in place. The right operand is ``[panels, groups, columns * group]``: each
column's group is contiguous. Constant weights are packed so (``pack_linear``); tasks copy panels of others.

Edges: if the depth is not a multiple of the group, zeros fill the last group: of the left operand in
registers, of the right one in memory. A single row is paired with itself. Floating-point sums join ``kept``
after every ``steps`` of the depth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import Places, split_place, step_along, uses
from worker.compiler.schedules.dot_instructions import DotInstruction, held_dtype
from worker.compiler.schedules.families.matmul.loops import OfRows, Origin, Writer
from worker.compiler.schedules.families.matmul.plan import MatmulShape, RightOperand, Unit
from worker.compiler.schedules.families.matmul.product import Product
from worker.compiler.schedules.processors import Machine


@dataclass(frozen=True)
class Dot:
    """A product by an instruction, with the operands before their casts."""

    instruction: DotInstruction
    left: Any
    right: Any


def unit_of(instruction: DotInstruction, bits: int) -> Unit:
    """What an instruction multiplies, as plans count it."""
    return Unit(instruction.rows, instruction.group, bits)


def find_dot_product(product: Product, machine: Machine) -> Dot | None:
    """The instruction for a product; None if the processor has none, or if its loops cannot use it."""
    left, right = product.left, product.right
    if not isinstance(left, tirx.Cast) or not isinstance(right, tirx.Cast):
        return None
    if product.column.is_dynamic or product.depth.is_dynamic:
        return None
    dtypes = nest.dtype_of(left.value), nest.dtype_of(right.value)
    found = machine.find_dot(*dtypes, product.dtype)
    if found is None:
        return None
    if found.left == "bfloat16" and not all(isinstance(one.value, TensorLoad) for one in (left, right)):
        return None
    if product.packed is not None and product.packed_group != found.group:
        return None
    return Dot(found, left.value, right.value)


def dot_shape(product: Product, dot: Dot) -> MatmulShape:
    """The sizes that a plan depends on."""
    return replace(product.shape, unit=unit_of(dot.instruction, nest.bits_of(nest.dtype_of(dot.left))))


def grouped_operand(product: Product) -> RightOperand:
    """How the right operand lies in memory: packed, or to be copied."""
    return RightOperand(columns=product.packed, contiguous=False)


def _held(value: Any) -> Any:
    """Elements of an operand as registers and copies hold them."""
    dtype, x, lanes = nest.dtype_of(value).partition("x")
    held = held_dtype(dtype)
    return value if held == dtype else tirx.reinterpret(f"{held}{x}{lanes}", value)


@dataclass(frozen=True)
class DotWriter(Writer):
    """Writes the loops of one product by an instruction."""

    dot: Dot

    @property
    def _instruction(self) -> DotInstruction:
        return self.dot.instruction

    @property
    def _row_groups(self) -> int:
        return nest.ceil_div(self.plan.tile.rows, self._instruction.rows)

    @property
    def _column_groups(self) -> int:
        return self.plan.tile.columns // self._instruction.columns

    def tasks(self) -> tirx.Stmt:
        """All loops."""
        loops, imported = super().tasks(), self._instruction.imported
        return loops if imported is None else nest.importing(imported, loops)

    def _ramp(self, start: Any, lanes: int) -> Any:
        first = self._number(start) if isinstance(start, int) else start
        return tirx.Ramp(first, self._number(1), lanes)

    def _number(self, value: int) -> Any:
        return tirx.IntImm(self._index, value)

    def _copy_panel(self, column: Any, places: Places) -> tuple[Any, tirx.Stmt]:
        """Copy columns of the right operand in groups; steps and columns that do not exist become zeros."""
        product, group, columns = self.product, self._instruction.group, self.plan.tile.columns
        dtype, depth = held_dtype(nest.dtype_of(self.dot.right)), product.depth.size
        width = min(columns, product.column.size)
        whole, rest = divmod(depth, group)
        panel = nest.workspace((whole + (rest > 0), columns * group), dtype, "panel")
        zero = nest.constant(0, dtype)

        def of_column(at: Any, lane: Any, steps: int) -> tirx.Stmt:
            def element(member: Any) -> tirx.Stmt:
                place = {product.depth.var: at * group + member, product.column.var: column + lane}
                value = nest.substitute(self.dot.right, {**places, **place})
                return nest.store(panel, _held(value), at, lane * group + member)

            def blank(member: Any) -> tirx.Stmt:
                return nest.store(panel, zero, at, lane * group + steps + member)

            filled = nest.unrolled(steps, element, self._index)
            if steps == group:
                return filled
            return nest.sequence(filled, nest.unrolled(group - steps, blank, self._index))

        def row(at: Any, steps: int) -> tirx.Stmt:
            present = nest.serial(width, lambda lane: of_column(at, lane, steps), self._index)
            if width == columns:
                return present

            def blank(number: Any) -> tirx.Stmt:
                return nest.store(panel, zero, at, number + width * group)

            return nest.sequence(present, nest.serial((columns - width) * group, blank, self._index))

        rows = [nest.serial(whole, lambda at: row(at, group), self._index)] if whole else []
        return panel, nest.sequence(*rows, *([row(self._number(whole), rest)] if rest else []))

    def _all_depth(self, of_rows: OfRows, most_tiles: int) -> tirx.Stmt:
        return of_rows(self._tile)

    def _tile(self, origin: Origin) -> tirx.Stmt:
        tile, one, depth = self.plan.tile, self._instruction, self.product.depth.size
        sums = nest.registers((self._row_groups, self._column_groups, one.lanes), one.sums, "sums")
        kept = nest.registers((tile.rows, tile.vectors, tile.lanes), one.sums, "kept")
        is_whole = one.sums == "int32" or depth <= self.plan.steps
        step = depth if is_whole else self.plan.steps // one.group * one.group
        whole, rest = divmod(depth, step)
        if is_whole:
            computed = [*self._group_sums(sums, self._number(0), depth, origin), *self._keep(kept, sums)]
        else:
            clear = self._each(lambda *at: nest.store(kept, self._zero, *at))
            add = self._keep(kept, sums, joins=True)

            def part(index: Any) -> tirx.Stmt:
                return nest.sequence(*self._group_sums(sums, index * step, step, origin), *add)

            last = [*self._group_sums(sums, self._number(whole * step), rest, origin), *add] if rest else []
            computed = [clear, nest.serial(whole, part, self._index), *last]
        return nest.sequence(
            nest.declare(sums),
            nest.declare(kept),
            *computed,
            *self._stores(lambda *at: kept[at], origin),
        )

    def _each_group(self, statement: Any) -> tirx.Stmt:
        """An unrolled statement for every vector of sums."""

        def row(p: Any) -> tirx.Stmt:
            return nest.unrolled(self._column_groups, lambda c: statement(p, c), self._index)

        return nest.unrolled(self._row_groups, row, self._index)

    def _group_sums(self, sums: Any, start: Any, steps: int, origin: Origin) -> list[tirx.Stmt]:
        """Clear the sums, then accumulate ``steps`` of the depth from ``start``, a multiple of the group."""
        one = self._instruction
        line = self._ramp(0, one.lanes)
        zeros = tirx.Broadcast(self._zero, one.lanes)
        whole, rest = divmod(steps, one.group)

        def step(at: Any, left: Any) -> tirx.Stmt:
            def add(p: Any, c: Any) -> tirx.Stmt:
                value = one.add(sums[p, c, line], left(p), self._right_group(at, c, origin))
                return nest.store(sums, value, p, c, line)

            return self._each_group(add)

        first = start // one.group

        def of_group(index: Any) -> tirx.Stmt:
            at = first + index
            return self._with_left(at, one.group, origin, lambda left: step(at, left))

        clear = self._each_group(lambda p, c: nest.store(sums, zeros, p, c, line))
        groups = [nest.serial(whole, of_group, self._index)] if whole else []
        if rest:
            at = first + whole
            groups.append(self._with_left(at, rest, origin, lambda left: step(at, left)))
        return [clear, *groups]

    def _with_left(self, at: Any, steps: int, origin: Origin, body: Any) -> tirx.Stmt:
        """A statement that reads vectors of the left operand: in place, or filled up in registers."""
        one = self._instruction
        if steps == one.group and self._is_contiguous:
            return body(lambda p: self._loaded(at, p, origin))
        shape = (self._row_groups, one.rows * one.group)
        dtype = held_dtype(nest.dtype_of(self.dot.left))
        edge = nest.registers(shape, dtype, "edge")

        def of_group(p: Any) -> tirx.Stmt:
            return nest.sequence(
                *(
                    nest.store(
                        edge,
                        _held(self._left_element(at * one.group + member, p, i, origin))
                        if member < steps
                        else nest.constant(0, dtype),
                        p,
                        self._number(i * one.group + member),
                    )
                    for i in range(one.rows)
                    for member in range(one.group)
                )
            )

        filled = nest.unrolled(self._row_groups, of_group, self._index)

        def vector(p: Any) -> Any:
            if one.rows > 1:
                return edge[p, self._ramp(0, one.rows * one.group)]
            return self._repeated(edge[p, self._ramp(0, one.group)])

        return nest.sequence(nest.declare(edge), filled, body(vector))

    @property
    def _is_contiguous(self) -> bool:
        """Whether the left operand's depth is contiguous in memory."""
        left, depth = self.dot.left, self.product.depth
        return (
            isinstance(left, TensorLoad)
            and step_along(left, depth) == 1
            and not any(uses(index, depth) for index in left.indices[:-1])
        )

    def _left_places(self, step: Any, p: Any, i: int, origin: Origin) -> Places:
        row = origin.row + (p * self._instruction.rows + i if self.plan.tile.rows > 1 else 0)
        return {**origin.batch, **split_place(row, self.product.rows), self.product.depth.var: step}

    def _left_element(self, step: Any, p: Any, i: int, origin: Origin) -> Any:
        return nest.substitute(self.dot.left, self._left_places(step, p, i, origin))

    def _loaded(self, at: Any, p: Any, origin: Origin) -> Any:
        """The groups of a row group, from memory."""
        one, left = self._instruction, self.dot.left

        def of_row(i: int) -> Any:
            places = self._left_places(at * one.group, p, i, origin)
            *outer, last = (nest.substitute(index, places) for index in left.indices)
            return _held(left.source[(*outer, self._ramp(last, one.group))])

        if one.rows == 1:
            return self._repeated(of_row(0))
        lanes = one.rows * one.group
        return tirx.Shuffle(
            [of_row(i) for i in range(one.rows)], [tirx.IntImm("int32", lane) for lane in range(lanes)]
        )

    def _repeated(self, group: Any) -> Any:
        """One group for every column: 32 bits in each lane."""
        one = self._instruction
        word = tirx.reinterpret("int32", group)
        return tirx.reinterpret(
            f"{nest.dtype_of(self.dot.left)}x{one.columns * one.group}", tirx.Broadcast(word, one.columns)
        )

    def _right_group(self, at: Any, c: Any, origin: Origin) -> Any:
        """The groups of a column group."""
        one = self._instruction
        lanes = one.columns * one.group
        place = self._ramp(c * lanes, lanes)
        if origin.copy is not None:
            return origin.copy[at, place]
        (packed,) = nest.loads_of(self.dot.right)
        return _held(packed.source[origin.panel, at, place])

    def _keep(self, kept: Any, sums: Any, joins: bool = False) -> list[tirx.Stmt]:
        """Store the sums, or add them, row by row."""
        one, tile = self._instruction, self.plan.tile
        across = tile.lanes // one.columns
        line = self._ramp(0, one.lanes)

        def row(r: int, v: int) -> tirx.Stmt:
            p, i = divmod(r, one.rows)
            vectors = [sums[self._number(p), self._number(v * across + c), line] for c in range(across)]
            lanes = [
                c * one.lanes + i * one.columns + column
                for c in range(across)
                for column in range(one.columns)
            ]
            value = (
                vectors[0]
                if across == 1 and one.rows == 1
                else tirx.Shuffle(vectors, [tirx.IntImm("int32", lane) for lane in lanes])
            )
            at = (self._number(r), self._number(v), self._ramp(0, tile.lanes))
            return nest.store(kept, kept[at] + value if joins else value, *at)

        return [row(r, v) for r in range(tile.rows) for v in range(tile.vectors)]
