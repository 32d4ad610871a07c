"""What the cost model sees of a plan: numbers by name.

The processor, the sizes that the family derives its plans from, and the plan's own numbers, each under the
name of its dataclass; what the family's model expects (``rank``, ``cycles``); and a few quotients that decide
whether a plan fits registers, caches and threads. Sizes are logarithms, so that thresholds are ratios.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from math import ceil, log2
from typing import Any

import tvm

from bessemer.contract.cost_model import Features
from bessemer.contract.triple import architecture_of
from worker.compiler.schedules.families.convolution.conv2d import ConvolutionPlan, ConvolutionShape
from worker.compiler.schedules.families.convolution.conv2d import plan_cycles as convolution_cycles
from worker.compiler.schedules.families.convolution.depthwise import WindowPlan, WindowShape
from worker.compiler.schedules.families.convolution.grouped_plan import GroupedPlan, GroupedShape
from worker.compiler.schedules.families.convolution.grouped_plan import cycles_of as grouped_cycles
from worker.compiler.schedules.families.convolution.winograd_plan import WinogradPlan, WinogradShape
from worker.compiler.schedules.families.convolution.winograd_plan import cycles_of as winograd_cycles
from worker.compiler.schedules.families.matmul.plan import MatmulPlan, MatmulShape
from worker.compiler.schedules.families.matmul.plan import plan_cycles as matmul_cycles
from worker.compiler.schedules.families.matmul.tile_plan import AmxPlan, tile_cycles
from worker.compiler.schedules.processors import Machine, machine_of

_BYTES = 4
HOST_TRIPLE = "x86_64-unknown-linux-gnu"


def family_of(plan: Any) -> str:
    """The name of the family that a plan belongs to, such as ``convolution``."""
    return type(plan).__name__.removesuffix("Plan").lower()


def kind_of(target: tvm.target.Target) -> str:
    """What a model is judged for: architecture, width of vectors, and one thread or several.

    Such as ``x86_64 512 serial`` and ``x86_64 256 parallel``.
    """
    machine = machine_of(target)
    architecture = architecture_of(str(target.attrs.get("mtriple", HOST_TRIPLE)))
    return f"{architecture} {machine.vector_bits} {'serial' if machine.threads == 1 else 'parallel'}"


def features_of(
    plans: Sequence[Any], known: Sequence[Any], shapes: Sequence[Any], machine: Machine
) -> list[Features]:
    """The features of some plans of a function.

    Args:
        plans: plans of its family.
        known: all plans that the family ranks, in its order of preference.
        shapes: the sizes that they follow from.
        machine: the processor.
    """
    places = {plan: place for place, plan in enumerate(known)}
    common = dict(_of_machine(machine))
    for shape in shapes:
        common |= dict(_numbers(type(shape).__name__, shape))
    cycles = [estimated_cycles(plan, shapes, machine) for plan in plans]
    best = estimated_cycles(known[0], shapes, machine) if known else None
    return [
        {
            **common,
            **dict(_numbers(type(plan).__name__, plan)),
            **_expected(places.get(plan), own, best),
            **dict(_pressures(plan, shapes, machine)),
        }
        for plan, own in zip(plans, cycles, strict=True)
    ]


def estimated_cycles(plan: Any, shapes: Sequence[Any], machine: Machine) -> float | None:
    """The cycles that the family's model expects of a plan; None if it counts none."""
    match plan, *shapes:
        case MatmulPlan(), MatmulShape() as product, *_:
            return matmul_cycles(plan, product, machine)
        case AmxPlan(), MatmulShape() as product, *_:
            return tile_cycles(plan, product, machine)
        case ConvolutionPlan(), ConvolutionShape() as image, *_:
            return convolution_cycles(plan, image, machine)
        case WinogradPlan(), WinogradShape() as tiles, *_:
            return winograd_cycles(plan, tiles, machine)
        case GroupedPlan(), GroupedShape() as bundles, *_:
            return grouped_cycles(plan, bundles, machine)
    return None


def _expected(place: int | None, cycles: float | None, best: float | None) -> Features:
    """The family's opinion: a plan's place, its cycles, and how many more they are than the first plan's."""
    found = {} if place is None else {"rank": log2(1 + place)}
    if cycles is not None and best is not None:
        found |= {"cycles": log2(max(cycles, 1.0)), "cycles.ratio": log2(max(cycles, 1.0) / max(best, 1.0))}
    return found


def _of_machine(machine: Machine) -> Iterator[tuple[str, float]]:
    for name in ("vector_bits", "registers", "threads", "fma_ports", "fma_latency", "loads_per_cycle"):
        yield f"machine.{name}", float(getattr(machine, name))
    yield "machine.l1", log2(machine.l1_bytes)
    yield "machine.l2", log2(machine.l2_bytes)


def _numbers(prefix: str, value: Any) -> Iterator[tuple[str, float]]:
    """The numbers of a dataclass and of those in it, as logarithms of one more."""
    if isinstance(value, bool | int | float):
        yield prefix, log2(1 + max(0.0, float(value)))
    elif isinstance(value, tuple):
        for place, each in enumerate(value):
            yield from _numbers(f"{prefix}.{place}", each)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _numbers(f"{prefix}.{field.name}", getattr(value, field.name))


def _pressures(plan: Any, shapes: Sequence[Any], machine: Machine) -> Iterator[tuple[str, float]]:
    """What fills registers, caches and threads: logarithms of shares of their sizes."""
    match plan, *shapes:
        case MatmulPlan(), MatmulShape() as product, *_:
            yield from _of_product(plan, product, machine)
        case ConvolutionPlan(), ConvolutionShape() as image, *_:
            yield from _of_convolution(plan, image, machine)
        case WinogradPlan(), WinogradShape() as tiles, *_:
            strip = tiles.points * plan.strip * (tiles.inputs + tiles.blocks) * tiles.lanes * _BYTES
            weights = tiles.weight_bytes
            yield from _caches("strip", strip, machine)
            yield from _caches("weights", weights / plan.parts, machine)
            yield from _tasks(ceil(tiles.tiles / plan.strip) * plan.parts, machine)
            yield "registers", (plan.tiles + 1) * tiles.blocks / machine.registers
            yield "rest", _rest(plan.strip, plan.tiles)
        case GroupedPlan(), GroupedShape() as bundles, *_:
            yield from _caches("band", bundles.pixel_bytes(plan.band), machine)
            yield from _tasks(bundles.batch * bundles.bundles * ceil(bundles.rows / plan.band), machine)
            yield "registers", (plan.columns + plan.taps) * plan.vectors / machine.registers
            yield "rest", _rest(bundles.columns, plan.columns)
        case WindowPlan(), WindowShape() as windows, *_:
            band = (plan.band_rows + windows.taps) * windows.columns * machine.vector_bits // 8
            yield from _caches("band", band, machine)
            yield from _tasks(windows.tasks * ceil(windows.rows / plan.band_rows), machine)
            yield "registers", (plan.columns + 2) / machine.registers
            yield "rest", _rest(windows.columns, plan.columns)


def _of_product(plan: MatmulPlan, shape: MatmulShape, machine: Machine) -> Iterator[tuple[str, float]]:
    tile = plan.tile
    depth = plan.steps if plan.parts_outside else shape.depth
    row_bytes, panel_bytes = depth * shape.bits // 8, depth * tile.columns * shape.bits // 8
    rows, panels = ceil(shape.rows / tile.rows), ceil(shape.columns / tile.columns)
    yield from _caches("panel", panel_bytes, machine)
    yield from _caches("chunk", plan.chunk_tiles * tile.rows * row_bytes, machine)
    yield from _caches("weights", shape.batches * shape.depth * shape.columns * shape.bits // 8, machine)
    yield from _tasks(shape.batches * panels * ceil(rows / plan.chunk_tiles), machine)
    yield "registers", (tile.rows * tile.chains + 1) * tile.vectors / machine.registers
    yield "rest", _rest(shape.rows, tile.rows)
    yield "rest.columns", _rest(shape.columns, tile.columns)
    yield "loads", (tile.rows + tile.vectors) / (tile.rows * tile.vectors)


def _of_convolution(
    plan: ConvolutionPlan, shape: ConvolutionShape, machine: Machine
) -> Iterator[tuple[str, float]]:
    tile, vector_bytes = plan.tile, machine.vector_bits // 8
    weights = tile.blocks * vector_bytes * shape.taps / tile.parts
    image = shape.image * shape.bits // 8
    pixels = tile.joined * shape.columns
    yield from _caches("panel", weights, machine)
    yield from _caches("weights", shape.weights * shape.bits // 8, machine)
    yield from _caches("image", image, machine)
    yield from _caches("band", image / max(1, shape.batch * shape.rows) * tile.joined, machine)
    rows = shape.rows // tile.joined
    yield from _tasks(shape.batch * shape.groups * (shape.blocks // tile.blocks) * rows, machine)
    yield "registers", (tile.columns + 1) * tile.blocks / machine.registers
    yield "rest", _rest(pixels, tile.columns)
    yield "loads", (tile.blocks + tile.columns) / (tile.blocks * tile.columns)


def _caches(name: str, size: float, machine: Machine) -> Iterator[tuple[str, float]]:
    yield f"{name}.l1", log2(max(size, 1.0) / machine.l1_bytes)
    yield f"{name}.l2", log2(max(size, 1.0) / machine.l2_bytes)


def _tasks(tasks: int, machine: Machine) -> Iterator[tuple[str, float]]:
    yield "tasks", log2(max(1, tasks))
    yield "unequal", ceil(tasks / machine.threads) * machine.threads / max(1, tasks)


def _rest(size: int, part: int) -> float:
    """The share of the work that the last, shorter part wastes."""
    return ceil(size / part) * part / size - 1
