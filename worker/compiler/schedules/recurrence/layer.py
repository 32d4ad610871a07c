"""Recurrent layers: one loop over the steps of a sequence, both directions of a layer together.

The products of the inputs with their weights, and the biases, are already in ``inputs``, since one product of
all steps is faster than one for each. What is left depends on the step before::

    for step in steps:                                                    # all threads together
        old, new = hidden[step % 2], hidden[1 - step % 2]
        for task in directions * tiles of rows * tiles of units:          # threads divide them, and meet
            sums[row, gate, unit] = inputs[time, row, gate, unit]         # in registers
            for k in depth:
                for row, gate, vector of units:                           # unrolled
                    sums[row, gate, unit] += old[row, k] * weights[task, k, gate, unit]
            new[row, unit], cells[row, unit] = cell(sums, cells, old)     # vectors, unrolled
            outputs[time, row, unit] = new[row, unit]

``time`` is the step, or the same from the end in the second direction. All gates of a unit belong to one
tile, so the cell's formula reads registers. The weights of a tile are consecutive in memory, in the order of
the loops. A projection is a second loop over tiles in each step, which reads the results of the first.

Threads take whole sequences, each a direction and a tile of rows, if there are enough of them: the loop over
tasks is then outside the steps, and threads never meet. Otherwise all threads run one loop over the steps,
divide the tiles of each step, and meet once after it. A thread gets the same tiles in every step, so their
weights stay in its own L2: for an LSTM of 256 units and two threads, 512 KiB each. The loop over ``depth``
reads them at the speed of L2, which bounds a step. Steps of very little work stay on one thread.

Edges: the last tile of rows or units moves back over its neighbor, and computes some elements twice. Tiles of
rows have states of their own, since two threads may be at different steps of the same rows. Tiles of units go
from the old states to the same new ones, since states have two copies. A dynamic batch has a version for at
least a tile's rows, and one for single rows. With lengths, a row's states stop at its length, its outputs are
zero from there on, and the second direction begins at its last element, as in packed sequences.

Source: J. Appleyard et al., "Optimizing Performance of Recurrent Neural Networks on GPUs", 2016, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.nest import INDEX, Size
from worker.compiler.schedules.recurrence.plan import Plan, Recurrence, Tiling


@dataclass(frozen=True)
class Kinds:
    """The shapes of the function's tensors, by name, in order."""

    inputs: Mapping[str, tuple[tuple[Any, ...], str]]
    results: Mapping[str, tuple[tuple[Any, ...], str]]


def kinds_of(asked: Recurrence, plan: Plan, length: Size, batch: Size) -> Kinds:
    """The tensors that the function takes and returns, for these sizes of its dynamic axes."""
    directions, units, dtype = asked.directions, asked.units, asked.dtype
    outer = (batch, length) if asked.batch_first else (length, batch)
    hidden, kept = (directions, batch, asked.outputs), (directions, batch, units)
    weights = (directions, plan.units.count, asked.outputs, asked.cell.gates, plan.units.width)
    inputs: dict[str, tuple[tuple[Any, ...], str]] = {
        "inputs": ((*outer, directions, asked.cell.gates, units), dtype),
        "weights": (weights, dtype),
        "first_hidden": (hidden, dtype),
    }
    results = {"outputs": ((*outer, directions, asked.outputs), dtype), "last_hidden": (hidden, dtype)}
    if asked.cell.keep is not None:
        inputs["first_kept"], results["last_kept"] = (kept, dtype), (kept, dtype)
    if asked.cell.inner is not None:
        inputs["inner_bias"] = ((directions, units), dtype)
    if plan.projected is not None:
        panels = (directions, plan.projected.count, units, plan.projected.width)
        inputs["projection"] = (panels, dtype)
    if asked.has_lengths:
        inputs["lengths"] = ((batch,), "int64")
    return Kinds(inputs, results)


def write_recurrence(asked: Recurrence, plan: Plan) -> tirx.PrimFunc:
    """A scheduled function of the tensors of ``kinds_of``."""
    length = tirx.Var("length", INDEX) if asked.length is None else asked.length
    batch = tirx.Var("batch", INDEX) if asked.batch is None else asked.batch
    kinds = kinds_of(asked, plan, length, batch)
    function = nest.signature(kinds.inputs, kinds.results)
    tensors = dict(zip((*kinds.inputs, *kinds.results), function.params, strict=True))
    writer = _LayerWriter(asked, plan, tensors, length, batch)
    return nest.with_loops(function, writer.loops())


@dataclass(frozen=True)
class Task:
    """Some rows of one direction: the first in the batch, the first in the states, and their number."""

    direction: Any
    row: Any
    state_row: Any
    rows: int


class _LayerWriter:
    """Writes the loops."""

    def __init__(
        self, asked: Recurrence, plan: Plan, tensors: Mapping[str, Any], length: Size, batch: Size
    ) -> None:
        self._asked, self._plan, self._tensors = asked, plan, tensors
        self._length, self._batch = length, batch
        states = (2, asked.directions, nest.ceil_div(batch, plan.rows) * plan.rows)
        self._hidden = nest.workspace((*states, asked.outputs), asked.dtype, "hidden")
        self._kept = nest.workspace((*states, asked.units), asked.dtype, "kept")
        self._inner = nest.workspace((*states[1:], asked.units), asked.dtype, "inner")

    def loops(self) -> tirx.Stmt:
        """All loops; with a dynamic batch, a version for at least a tile's rows and one for single rows."""
        rows = self._plan.rows
        loops = self._with_rows(rows)
        if rows > 1 and not isinstance(self._batch, int):
            loops = nest.either(self._batch >= rows, loops, self._with_rows(1))
        return nest.sequence(*map(nest.declare, self._states()), loops)

    def _states(self) -> list[Any]:
        """The buffers of states."""
        buffers = [self._hidden]
        buffers += [self._kept] if self._asked.cell.keep is not None else []
        return buffers + ([self._inner] if self._asked.projected is not None else [])

    def _with_rows(self, rows: int) -> tirx.Stmt:
        groups = nest.ceil_div(self._batch, rows)

        def task(number: Any) -> Task:
            directions = self._asked.directions
            row = state_row = number // directions * rows
            if rows > 1 and not (isinstance(self._batch, int) and self._batch % rows == 0):
                row = tirx.min(row, nest.constant(0, INDEX) + (self._batch - rows))
            return Task(number % directions, row, state_row, rows)

        loops = self._shared if self._plan.shared else self._apart
        return loops(self._asked.directions * groups, task)

    def _apart(self, count: Size, task: Callable[[Any], Task]) -> tirx.Stmt:
        """Each thread takes whole sequences."""

        def whole(number: Any) -> tirx.Stmt:
            return self._whole(task(number))

        return nest.tasks(count, whole, INDEX, parallel=self._plan.parallel)

    def _whole(self, task: Task) -> tirx.Stmt:
        def step(place: Any) -> tirx.Stmt:
            return nest.sequence(
                *(
                    nest.serial(tiling.count, partial(tile, task, place), INDEX)
                    for tiling, tile in self._phases()
                )
            )

        return nest.sequence(self._begin(task), nest.serial(self._length, step, INDEX), self._end(task))

    def _shared(self, count: Size, task: Callable[[Any], Task]) -> tirx.Stmt:
        """All threads take parts of each step, and meet after it."""

        def phase(place: Any, tiling: Tiling, tile: Any) -> tirx.Stmt:
            def part(number: Any) -> tirx.Stmt:
                return tile(task(number // tiling.count), place, number % tiling.count)

            return nest.divided(count * tiling.count, part, INDEX)

        def step(place: Any) -> tirx.Stmt:
            return nest.sequence(*(phase(place, *each) for each in self._phases()))

        every = partial(nest.serial, count, dtype=INDEX)
        return nest.sequence(
            every(lambda number: self._begin(task(number))),
            nest.together(nest.serial(self._length, step, INDEX)),
            every(lambda number: self._end(task(number))),
        )

    def _phases(self) -> list[tuple[Tiling, Callable[[Task, Any, Any], tirx.Stmt]]]:
        """The loops of a step: over tiles of units, then of the projected hidden state."""
        units: list[tuple[Tiling, Callable[[Task, Any, Any], tirx.Stmt]]]
        units = [(self._plan.units, self._units_tile)]
        return (
            units if self._plan.projected is None else [*units, (self._plan.projected, self._projected_tile)]
        )

    def _begin(self, task: Task) -> tirx.Stmt:
        def copy(states: Any, first: Any, size: int) -> tirx.Stmt:
            def element(row: Any, unit: Any) -> tirx.Stmt:
                value = first[task.direction, task.row + row, unit]
                return nest.store(states, value, 0, task.direction, task.state_row + row, unit)

            return self._each(task, size, element)

        return self._copies(copy, "first")

    def _end(self, task: Task) -> tirx.Stmt:
        final = self._length % 2

        def copy(states: Any, last: Any, size: int) -> tirx.Stmt:
            def element(row: Any, unit: Any) -> tirx.Stmt:
                value = states[final, task.direction, task.state_row + row, unit]
                return nest.store(last, value, task.direction, task.row + row, unit)

            return self._each(task, size, element)

        return self._copies(copy, "last")

    def _copies(self, copy: Callable[[Any, Any, int], tirx.Stmt], which: str) -> tirx.Stmt:
        copies = [copy(self._hidden, self._tensors[f"{which}_hidden"], self._asked.outputs)]
        if self._asked.cell.keep is not None:
            copies.append(copy(self._kept, self._tensors[f"{which}_kept"], self._asked.units))
        return nest.sequence(*copies)

    def _each(self, task: Task, size: int, element: Callable[[Any, Any], tirx.Stmt]) -> tirx.Stmt:
        def row(number: Any) -> tirx.Stmt:
            return nest.serial(size, lambda unit: element(number, unit), INDEX)

        return nest.serial(task.rows, row, INDEX)

    def _units_tile(self, task: Task, step: Any, tile: Any) -> tirx.Stmt:
        asked, tiling, cell = self._asked, self._plan.units, self._asked.cell
        sums = nest.registers((task.rows, cell.gates, tiling.vectors, tiling.lanes), asked.dtype, "sums")

        def clear(row: Any, gate: Any, vector: Any, lane: Any) -> tirx.Stmt:
            unit = tiling.first(tile) + vector * tiling.lanes + lane
            if int(gate) == cell.inner:
                value = self._tensors["inner_bias"][task.direction, unit]
            else:
                value = self._input(task, step, row, gate, unit)
            return nest.store(sums, value, row, gate, vector, lane)

        def add(k: Any, row: Any, gate: Any, vector: Any, lane: Any) -> tirx.Stmt:
            old = self._hidden[step % 2, task.direction, task.state_row + row, k]
            weight = self._tensors["weights"][task.direction, tile, k, gate, vector * tiling.lanes + lane]
            at = (row, gate, vector, lane)
            return nest.store(sums, sums[at] + old * weight, *at)

        def update(row: Any, vector: Any, lane: Any) -> tirx.Stmt:
            unit = tiling.first(tile) + vector * tiling.lanes + lane
            gates = [nest.constant(gate, INDEX) for gate in range(cell.gates)]
            found = [sums[row, gate, vector, lane] for gate in gates]
            given = [self._input(task, step, row, gate, unit) for gate in gates]
            at = (task.direction, task.state_row + row, unit)
            if cell.keep is None:
                return self._show(
                    task, step, row, unit, cell.show(found, given, self._hidden[(step % 2, *at)])
                )
            old, new = (step % 2, *at), (1 - step % 2, *at)
            kept = self._held(task, step, row, cell.keep(found, self._kept[old]), self._kept[old])
            shown = cell.show(found, given, self._kept[new])
            return nest.sequence(nest.store(self._kept, kept, *new), self._show(task, step, row, unit, shown))

        def each(body: Callable[..., tirx.Stmt], *sizes: int) -> tirx.Stmt:
            return _unrolled(sizes, tiling.lanes, body)

        everything = (task.rows, cell.gates, tiling.vectors)
        return nest.sequence(
            nest.declare(sums),
            each(clear, *everything),
            nest.serial(asked.outputs, lambda k: each(partial(add, k), *everything), INDEX),
            each(update, task.rows, tiling.vectors),
        )

    def _projected_tile(self, task: Task, step: Any, tile: Any) -> tirx.Stmt:
        tiling = self._plan.projected
        assert tiling is not None
        sums = nest.registers((task.rows, tiling.vectors, tiling.lanes), self._asked.dtype, "projected")

        def clear(*at: Any) -> tirx.Stmt:
            return nest.store(sums, nest.constant(0, self._asked.dtype), *at)

        def add(k: Any, row: Any, vector: Any, lane: Any) -> tirx.Stmt:
            inner = self._inner[task.direction, task.state_row + row, k]
            weight = self._tensors["projection"][task.direction, tile, k, vector * tiling.lanes + lane]
            return nest.store(sums, sums[row, vector, lane] + inner * weight, row, vector, lane)

        def write(row: Any, vector: Any, lane: Any) -> tirx.Stmt:
            unit = tiling.first(tile) + vector * tiling.lanes + lane
            return self._output(task, step, row, unit, sums[row, vector, lane])

        each = partial(_unrolled, (task.rows, tiling.vectors), tiling.lanes)
        return nest.sequence(
            nest.declare(sums),
            each(clear),
            nest.serial(self._asked.units, lambda k: each(partial(add, k)), INDEX),
            each(write),
        )

    def _show(self, task: Task, step: Any, row: Any, unit: Any, value: Any) -> tirx.Stmt:
        if self._asked.projected is not None:
            return nest.store(self._inner, value, task.direction, task.state_row + row, unit)
        return self._output(task, step, row, unit, value)

    def _output(self, task: Task, step: Any, row: Any, unit: Any, value: Any) -> tirx.Stmt:
        at = (task.direction, task.state_row + row, unit)
        old, new = self._hidden[(step % 2, *at)], (1 - step % 2, *at)
        shown = self._hidden[new]
        if self._asked.has_lengths:
            is_over = step >= self._tensors["lengths"][task.row + row]
            shown = tirx.Select(is_over, nest.constant(0, self._asked.dtype), shown)
        return nest.sequence(
            nest.store(self._hidden, self._held(task, step, row, value, old), *new),
            nest.store(self._tensors["outputs"], shown, *self._output_place(task, step, row, unit)),
        )

    def _held(self, task: Task, step: Any, row: Any, new: Any, old: Any) -> Any:
        """The new state, or the old one after the end of a row."""
        if not self._asked.has_lengths:
            return new
        return tirx.Select(step < self._tensors["lengths"][task.row + row], new, old)

    def _input(self, task: Task, step: Any, row: Any, gate: Any, unit: Any) -> Any:
        return self._tensors["inputs"][(*self._place(task, step, row), task.direction, gate, unit)]

    def _output_place(self, task: Task, step: Any, row: Any, unit: Any) -> tuple[Any, ...]:
        return (*self._place(task, step, row), task.direction, unit)

    def _place(self, task: Task, step: Any, row: Any) -> tuple[Any, Any]:
        """The first two indices of inputs and outputs."""
        time, row = self._time(task, step, row), task.row + row
        return (row, time) if self._asked.batch_first else (time, row)

    def _time(self, task: Task, step: Any, row: Any) -> Any:
        if self._asked.directions == 1:
            return step
        backward = self._length - 1 - step
        if self._asked.has_lengths:
            own = self._tensors["lengths"][task.row + row]
            backward = tirx.Select(step < own, own - 1 - step, step)
        return tirx.Select(task.direction == 0, step, backward)


def _unrolled(sizes: tuple[int, ...], lanes: int, body: Callable[..., tirx.Stmt]) -> tirx.Stmt:
    """Unrolled loops around a vectorized one, with constant indices."""
    if not sizes:
        return nest.vectorized(lanes, lambda lane: body(lane), INDEX)
    first, *others = sizes
    return nest.sequence(
        *(
            _unrolled(tuple(others), lanes, partial(body, nest.constant(index, INDEX)))
            for index in range(first)
        )
    )
