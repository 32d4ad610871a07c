"""What families that write their loops over windows share: a function's blocks, and a tile of sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, NamedTuple

from tvm import s_tir, tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import Axis, Block, Places, is_expensive, read_block, result_at
from worker.compiler.schedules.families.convolution.windows import Windows, copy_rows
from worker.compiler.schedules.processors import Machine


@dataclass(frozen=True)
class WindowBlocks:
    """A function's blocks: the sums, the results, and the copy of the image with its border, if any."""

    main: Block
    last: Block
    border: Block | None

    @classmethod
    def read(cls, schedule: s_tir.Schedule, windows: Windows) -> WindowBlocks | None:
        """The blocks of a function; None if one has other loops than its variables."""
        main, last, border = (
            None if handle is None else read_block(schedule, handle, may_be_dynamic=True)
            for handle in (windows.main, windows.last, windows.border)
        )
        if main is None or last is None or (border is None) != (windows.border is None):
            return None
        return cls(main, last, border)

    @property
    def index(self) -> str:
        """The dtype of indices."""
        return nest.dtype_of(self.main.spatial[0].var)

    @property
    def lanes(self) -> int:
        """Channels of a block."""
        return self.main.spatial[-1].extent

    def weights_stay(self, machine: Machine) -> bool:
        """Whether all weights fit half of L2, so that each task or row may read all of them."""
        shape = self.main.body.reads[-1].source.shape
        if not all(isinstance(size, tirx.IntImm) for size in shape):
            return True
        size = prod(map(int, shape)) * (machine.vector_bits // 8 // self.lanes)
        return size <= machine.l2_bytes // 2

    def behind_border(self, tasks: tirx.Stmt, runs_parallel: bool) -> tirx.Stmt:
        """Copy the image with its border, if it has one; then run the tasks."""
        if self.border is None:
            return tasks
        copy = self.border.body.writes[0].source
        return nest.sequence(nest.declare(copy), copy_rows(self.border, runs_parallel), tasks)


class Origin(NamedTuple):
    """Where a tile begins: image, block of channels, row and column of the output."""

    batch: Any
    block: Any
    row: Any
    column: Any


@dataclass(frozen=True)
class RegisterTile:
    """Sums that stay in registers: of columns of a row, ``step`` apart, and of blocks of channels."""

    parts: WindowBlocks
    columns: int
    blocks: int
    origin: Origin
    step: int = 1

    def loops(self, total: Any, loop: Callable[[Axis, nest.Body], tirx.Stmt]) -> tirx.Stmt:
        """All loops of the tile.

        Args:
            total: a sum and what is added to it, as an expression of the variables of ``parts.main``.
            loop: writes the loop of a reduced axis.
        """
        main = self.parts.main
        summed, start = main.body.writes[0].source, main.body.init.value
        sums = nest.registers((self.columns, self.blocks, self.parts.lanes), str(summed.dtype), "sums")

        def inside(axes: Sequence[Axis], places: Places) -> tirx.Stmt:
            if not axes:
                return self._each(partial(add, places))
            axis, *rest = axes
            return loop(axis, lambda index: inside(rest, {**places, axis.var: index}))

        def add(places: Places, *at: Any) -> tirx.Stmt:
            place = zip(main.spatial, self._place(*at), strict=True)
            own = {**places, **{axis.var: index for axis, index in place}}
            value = nest.replace_loads(nest.substitute(total, own), summed, nest.always(sums[at]))
            return nest.store(sums, value, *at)

        clear = self._each(lambda *at: nest.store(sums, start, *at))
        return nest.sequence(nest.declare(sums), clear, inside(main.reduced, {}), *self._results(sums))

    def _results(self, sums: Any) -> list[tirx.Stmt]:
        """Apply the epilogue and store; an expensive epilogue is a loop, to bound the size of the code."""
        main, last = self.parts.main, self.parts.last

        def result(source: Any) -> Callable[..., tirx.Stmt]:
            return lambda *at: result_at(main, last, self._place(*at), source[at])

        if not is_expensive(last.body):
            return [self._each(result(sums))]
        kept = nest.workspace(sums.shape, str(sums.dtype), "kept")
        keep = self._each(lambda *at: nest.store(kept, sums[at], *at))
        return [nest.declare(kept), keep, self._each(result(kept), nest.serial)]

    def _each(
        self, statement: Callable[..., tirx.Stmt], loop: Callable[..., tirx.Stmt] = nest.unrolled
    ) -> tirx.Stmt:
        """A vectorized statement for every ``(column, block, lane)``."""
        lanes, index = self.parts.lanes, self.parts.index

        def vector(x: Any, b: Any) -> tirx.Stmt:
            return nest.vectorized(lanes, lambda lane: statement(x, b, lane), index)

        return loop(self.columns, lambda x: loop(self.blocks, lambda b: vector(x, b), index), index)

    def _place(self, x: Any, b: Any, lane: Any) -> tuple[Any, ...]:
        """The place of an element in the output."""
        batch, block, row, column = self.origin
        return batch, block + b, row, column + x * self.step, lane
