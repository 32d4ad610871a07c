"""Recurrent layers on top of each other: threads work on several layers at a time, a part of the steps each.

A layer can begin a part as soon as the layer below has finished it, so a thread computes one layer's part
while another computes the next part of the layer below::

    for stage in stages:
        for thread in threads:                                            # parallel
            layer, part = turns[stage, thread]
            if layer == 0:  given[0] = inputs[steps of part]
            else:           given[layer] = biases[layer] + outputs[steps of part] · input_weights[layer]
            for step in steps of part:
                one step of the layer, which reads given[layer]           # as in recurrence/layer.py
                outputs[time] = new

    stage      1      2      3      4      5      6            three layers, two threads
    thread 1   0:0    1:0    2:0    2:1    1:2    2:2          layer:part
    thread 2          0:1    1:1    0:2    0:3    1:3

Threads meet once a stage instead of once a step. The layers share one tensor of outputs: a layer replaces its
inputs after it has multiplied them. ``given`` is as long as a part and stays in a cache. The products of the
first layer's inputs are ``inputs``, computed before for all steps. Parts are long enough that a stage takes
many times as long as waking the threads, and short enough to be many.

Used for one direction, a fixed length and batch, and fewer rows than threads. Otherwise each layer is a
function of its own, whose threads take rows or directions.

Source: J. Appleyard et al., "Optimizing Performance of Recurrent Neural Networks on GPUs", 2016, section 3.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any

from tvm import tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.nest import INDEX
from worker.compiler.schedules.processors import Machine
from worker.compiler.schedules.recurrence.layer import Kinds, LayerWriter, Task, kinds_of, unrolled
from worker.compiler.schedules.recurrence.plan import (
    MAX_ROWS,
    Plan,
    Recurrence,
    Tiling,
    best_tile,
)

_PART_WORK = 1 << 22
"""Multiply-adds of a part, about a hundred microseconds."""
_MIN_STEPS = 4
_MIN_PARTS = 4

Turns = tuple[tuple[tuple[int, int] | None, ...], ...]
"""By stage and thread, a layer and its part; None for a thread that rests."""


@dataclass(frozen=True)
class StackPlan:
    """How layers are computed.

    Attributes:
        layer: how a step is computed.
        rows: rows of a tile of the inputs' product.
        products: tiles of units of the inputs' product.
        steps: of a part.
        turns: who does what.
    """

    layer: Plan
    rows: int
    products: Tiling
    steps: int
    turns: Turns


def plan_stack(asked: Recurrence, layers: int, machine: Machine) -> StackPlan | None:
    """The plan for layers of the same kind on top of each other; None if they are better computed in turn."""
    length, batch = asked.length, asked.batch
    if layers == 1 or asked.directions != 1 or asked.projected or asked.has_lengths:
        return None
    if length is None or batch is None or batch >= min(machine.threads, MAX_ROWS):
        return None
    steps = max(_MIN_STEPS, ceil(_PART_WORK / (2 * batch * asked.cell.gates * asked.units**2)))
    parts = ceil(length / steps)
    if parts < _MIN_PARTS:
        return None
    steps = ceil(length / parts)
    alone = replace(machine, threads=1)
    rows, products = best_tile(asked, steps * batch, alone, shared=False)
    _, units = best_tile(asked, batch, alone, shared=False, fewest=batch)
    return StackPlan(
        layer=Plan(batch, units, None, parallel=False, shared=False),
        rows=rows,
        products=products,
        steps=steps,
        turns=take_turns(layers, ceil(length / steps), machine.threads),
    )


def take_turns(layers: int, parts: int, threads: int) -> Turns:
    """Turns in which each part follows the one before and its own of the layer below; upper layers first."""
    done, turns = [0] * layers, []
    while done[-1] < parts:
        ready = [
            layer
            for layer in reversed(range(layers))
            if done[layer] < (parts if layer == 0 else done[layer - 1])
        ][:threads]
        rest = [None] * (min(threads, layers) - len(ready))
        turns.append((*((layer, done[layer]) for layer in ready), *rest))
        for layer in ready:
            done[layer] += 1
    return tuple(turns)


def stack_kinds(asked: Recurrence, layers: int, plan: StackPlan) -> Kinds:
    """The tensors that the function takes and returns."""
    assert asked.length is not None
    assert asked.batch is not None
    of_all = _of_all(asked, layers)
    one = kinds_of(asked, plan.layer, asked.length, asked.batch)
    every = kinds_of(of_all, plan.layer, asked.length, asked.batch)
    gates, tiling = asked.cell.gates, plan.products
    panels = (layers - 1, tiling.count, asked.units, gates, tiling.width)
    return Kinds(
        inputs={
            **every.inputs,
            "inputs": one.inputs["inputs"],
            "input_weights": (panels, asked.dtype),
            "biases": ((layers - 1, gates, asked.units), asked.dtype),
            "turns": ((len(plan.turns), len(plan.turns[0]), 2), "int64"),
        },
        results={**every.results, "outputs": one.results["outputs"]},
    )


def write_stack(asked: Recurrence, layers: int, plan: StackPlan) -> tirx.PrimFunc:
    """A scheduled function of the tensors of ``stack_kinds``."""
    kinds = stack_kinds(asked, layers, plan)
    function = nest.signature(kinds.inputs, kinds.results)
    tensors = dict(zip((*kinds.inputs, *kinds.results), function.params, strict=True))
    return nest.with_loops(function, _StackWriter(asked, layers, plan, tensors).loops())


def _of_all(asked: Recurrence, layers: int) -> Recurrence:
    """The layers as directions of one layer: states and weights of both are equally arranged."""
    return Recurrence(
        cell=asked.cell,
        directions=layers,
        units=asked.units,
        projected=None,
        length=asked.length,
        batch=asked.batch,
        batch_first=asked.batch_first,
        has_lengths=False,
        dtype=asked.dtype,
    )


class _StackWriter(LayerWriter):
    """Writes the loops."""

    def __init__(self, asked: Recurrence, layers: int, plan: StackPlan, tensors: Mapping[str, Any]) -> None:
        assert asked.length is not None
        assert asked.batch is not None
        super().__init__(_of_all(asked, layers), plan.layer, tensors, asked.length, asked.batch)
        self._layers, self._stack, self._rows = layers, plan, asked.batch
        given = (layers, plan.steps * asked.batch, asked.cell.gates, asked.units)
        self._given = nest.workspace(given, asked.dtype, "given")

    def loops(self) -> tirx.Stmt:
        """All loops."""
        turns, threads = len(self._stack.turns), len(self._stack.turns[0])

        def stage(number: Any) -> tirx.Stmt:
            return nest.parallel(threads, lambda thread: self._turn(number, thread), INDEX)

        def each(body: Any) -> tirx.Stmt:
            return nest.serial(self._layers, lambda layer: body(self._task(layer)), INDEX)

        return nest.sequence(
            *map(nest.declare, self._states()),
            nest.declare(self._given),
            each(self._begin),
            nest.serial(turns, stage, INDEX),
            each(self._end),
        )

    def _task(self, layer: Any) -> Task:
        return Task(layer, nest.constant(0, INDEX), self._rows)

    def _turn(self, stage: Any, thread: Any) -> tirx.Stmt:
        turns = self._tensors["turns"]

        def work(layer: Any, first: Any) -> tirx.Stmt:
            count = nest.smaller(nest.constant(self._stack.steps, INDEX), self._length - first)

            def step(place: Any) -> tirx.Stmt:
                tile = partial(self._units_tile, self._task(layer), first + place)
                return nest.serial(self._plan.units.count, tile, INDEX)

            return nest.sequence(
                nest.either(layer == 0, self._copy(first, count), self._multiply(layer, first)),
                nest.serial(count, step, INDEX),
            )

        values = [(turns[stage, thread, 0], "layer"), (turns[stage, thread, 1], "first")]
        return nest.all_named(
            values,
            lambda layer, first: nest.either(
                layer >= 0, work(layer, first), tirx.Evaluate(nest.constant(0, INDEX))
            ),
        )

    def _copy(self, first: Any, count: Any) -> tirx.Stmt:
        """The first layer's part of the inputs."""

        def element(row: Any, gate: Any, unit: Any) -> tirx.Stmt:
            zero = nest.constant(0, INDEX)
            value = self._tensors["inputs"][(*self._sequence_place(first, row), zero, gate, unit)]
            return nest.store(self._given, value, zero, row, gate, unit)

        def gates(row: Any) -> tirx.Stmt:
            def units(gate: Any) -> tirx.Stmt:
                return nest.serial(self._asked.units, partial(element, row, gate), INDEX)

            return nest.serial(self._asked.cell.gates, units, INDEX)

        return nest.serial(count * self._rows, gates, INDEX)

    def _multiply(self, layer: Any, first: Any) -> tirx.Stmt:
        """A part of the inputs of a later layer. Missing steps of the last part repeat the last step."""
        asked, plan = self._asked, self._stack
        total = plan.steps * self._rows
        rows, tiling = min(plan.rows, total), plan.products
        below = layer - 1

        def tile(number: Any, block: Any) -> tirx.Stmt:
            row = number * rows
            if total % rows:
                row = tirx.min(row, nest.constant(total - rows, INDEX))
            shape = (rows, asked.cell.gates, tiling.vectors, tiling.lanes)
            sums = nest.registers(shape, asked.dtype, "products")

            def unit(vector: Any, lane: Any) -> Any:
                return tiling.first(block) + vector * tiling.lanes + lane

            def clear(at: Any, gate: Any, vector: Any, lane: Any) -> tirx.Stmt:
                bias = self._tensors["biases"][below, gate, unit(vector, lane)]
                return nest.store(sums, bias, at, gate, vector, lane)

            def add(k: Any, at: Any, gate: Any, vector: Any, lane: Any) -> tirx.Stmt:
                place = self._sequence_place(first, row + at)
                zero = nest.constant(0, INDEX)
                factor = self._tensors["outputs"][(*place, zero, k)]
                column = vector * tiling.lanes + lane
                weight = self._tensors["input_weights"][below, block, k, gate, column]
                here = (at, gate, vector, lane)
                return nest.store(sums, sums[here] + factor * weight, *here)

            def write(at: Any, gate: Any, vector: Any, lane: Any) -> tirx.Stmt:
                value = sums[at, gate, vector, lane]
                return nest.store(self._given, value, layer, row + at, gate, unit(vector, lane))

            each = partial(unrolled, shape[:-1], tiling.lanes)
            return nest.sequence(
                nest.declare(sums),
                each(clear),
                nest.serial(asked.units, lambda k: each(partial(add, k)), INDEX),
                each(write),
            )

        def tiles(block: Any) -> tirx.Stmt:
            return nest.serial(ceil(total / rows), lambda number: tile(number, block), INDEX)

        return nest.serial(tiling.count, tiles, INDEX)

    def _sequence_place(self, first: Any, row: Any) -> tuple[Any, Any]:
        """The first two indices of a tensor of sequences, for a row of a part: its steps times the batch."""
        last = nest.constant(int(self._length) - 1, INDEX)
        time = tirx.min(first + row // self._rows, last)
        number = row % self._rows
        return (number, time) if self._asked.batch_first else (time, number)

    def _input(self, task: Task, step: Any, row: Any, gate: Any, unit: Any) -> Any:
        place = step % self._stack.steps * self._rows + row
        return self._given[task.direction, place, gate, unit]

    def _time(self, task: Task, step: Any, row: Any) -> Any:
        return step

    def _output_place(self, task: Task, step: Any, row: Any, unit: Any) -> tuple[Any, ...]:
        return (*self._place(task, step, row), nest.constant(0, INDEX), unit)
