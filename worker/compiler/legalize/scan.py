"""Running sums and products along one axis.

    cumsum(x, axis)   x as [before, along, after]

    parallel if worth it: for task in before * chunks of after
        running = registers[vectors, lanes], cleared
        for step in along
            for each vector of the chunk
                running = join(running, source[before, step, vector])
                scanned[before, step, vector] = running

A scan is serial along its axis, since each result needs the one before. The running values stay in
registers, so that each element is read and written once. Along the last axis ``after`` is 1: a row is one
chain of additions, four cycles each. TVM's form goes through memory element by element.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any

from tvm import tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.families.columns import chunk_vectors
from worker.compiler.schedules.nest import INDEX, signature
from worker.compiler.schedules.processors import WORK_PER_THREAD, Machine, threads_pay


@dataclass(frozen=True)
class Join:
    """A scan: its name, how it joins two numbers, and its first value."""

    name: str
    join: Callable[[Any, Any], Any]
    first: int


SUM = Join("cumsum", lambda one, other: one + other, 0)
PRODUCT = Join("cumprod", lambda one, other: one * other, 1)


def write_scan(
    sizes: tuple[int, int, int], dtype: str, result: str, join: Join, machine: Machine
) -> tirx.PrimFunc:
    """A scheduled function from ``[before, along, after]`` of ``dtype`` to the same shape of ``result``."""
    before, along, after = sizes
    threads = machine.threads if threads_pay(machine.threads, before * along * after, WORK_PER_THREAD) else 1
    lanes = min(after, machine.lanes(nest.bits_of(result)))
    vectors = chunk_vectors(after, lanes, before, threads)
    chunk = vectors * lanes
    chunks = ceil(after / chunk)
    function = signature({"source": (sizes, dtype)}, {"scanned": (sizes, result)})
    source, scanned = function.params

    def task(number: Any) -> tirx.Stmt:
        first = tirx.Min(number % chunks * chunk, nest.constant(after - chunk, INDEX))
        running = nest.registers((vectors, lanes), result, "running")

        def step(place: Any) -> tirx.Stmt:
            def element(vector: Any, lane: Any) -> tirx.Stmt:
                at = (number // chunks, place, first + (vector * lanes + lane))
                value = join.join(running[vector, lane], source[at].astype(result))
                keep = nest.store(running, value, vector, lane)
                return nest.sequence(keep, nest.store(scanned, running[vector, lane], *at))

            return each(element)

        def clear(vector: Any, lane: Any) -> tirx.Stmt:
            return nest.store(running, nest.constant(join.first, result), vector, lane)

        return nest.sequence(nest.declare(running), each(clear), nest.serial(along, step, INDEX))

    def each(element: Callable[[Any, Any], tirx.Stmt]) -> tirx.Stmt:
        def vector(number: Any) -> tirx.Stmt:
            return nest.vectorized(lanes, lambda lane: element(number, lane), INDEX)

        return nest.unrolled(vectors, vector, INDEX)

    return nest.with_loops(function, nest.tasks(before * chunks, task, INDEX, parallel=threads > 1))
