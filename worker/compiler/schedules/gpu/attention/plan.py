"""How to divide attention among warps of tensor cores: a model of the cycles ranks the possible plans."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import ceil
from typing import Any

from worker.compiler.schedules import nest
from worker.compiler.schedules.families.attention.blocks import AttentionBlocks
from worker.compiler.schedules.families.attention.plan import AttentionShape
from worker.compiler.schedules.gpu.chips import Gpu
from worker.compiler.schedules.gpu.products.plan import PAD
from worker.compiler.schedules.gpu.products.threads import WARP

Expression = Any

ROWS = 16
"""The queries of a fragment."""
STAGES = 2
"""The tiles of keys and values that shared memory holds."""
_GRAIN = 16
"""Keys, depth and width are padded to a multiple of this."""
_MOST_DEPTH = 128
_MOST_KEYS = 128
_MOST_REGISTERS, _MOST_BESIDE_MASKS = 160, 128
"""Registers for scores, result and queries: a mask's numbers need some, too."""
_PRODUCT_CYCLES = 3
"""A multiprocessor's cycles for 16 by 8 by 16 products."""
_SCORE_CYCLES = 0.12
"""A multiprocessor's cycles from a score to its power."""
_RESCALE_CYCLES = 0.02
"""A multiprocessor's cycles to rescale a feature of the result."""
_WARP_CYCLES = 60
"""A multiprocessor's cycles for a warp's shuffles and its wait in a tile."""
_SHARED_BYTES_PER_CYCLE = 128
_L2_BYTES_PER_CYCLE = 40
_TILE_LATENCY, _BLOCK_LATENCY = 500, 1500


@dataclass(frozen=True)
class AttentionPlan:
    """How warps divide attention.

    Attributes:
        warps: warps of a block.
        fragments: fragments of 16 queries of a warp.
        keys: keys of a tile.
        depth: the head's size, padded.
        width: the features of the result, padded.
        bits: bits of an element.
    """

    warps: int
    fragments: int
    keys: int
    depth: int
    width: int
    bits: int = 16

    @property
    def steps(self) -> int:
        """The steps of the depth, or keys, of one instruction: two vectors of 16 bytes."""
        return 256 // self.bits

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return self.warps * WARP

    @property
    def queries(self) -> int:
        """The queries of a block."""
        return self.warps * self.fragments * ROWS

    @property
    def registers(self) -> int:
        """The scores, results and queries of a thread."""
        return self.fragments * (self.keys + self.width + self.depth * self.bits // 32) // 2

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a block."""
        tiles = self.queries * self.depth + STAGES * self.keys * (self.depth + self.width)
        return max(self.bits // 8 * tiles, self.warps * ROWS * (self.width + PAD) * 4)


def attention_plans(blocks: AttentionBlocks, gpu: Gpu) -> tuple[AttentionPlan, ...]:
    """The plans for attention by tensor cores, the best guess first; none if they cannot multiply it.

    Args:
        blocks: the attention.
        gpu: the GPU; float32 needs ``tf32``.
    """
    shape = blocks.shape
    is_tensor = {"float16": True, "bfloat16": gpu.has_bfloat16, "float32": gpu.has_bfloat16 and gpu.tf32}
    if not is_tensor.get(blocks.dtype, False):
        return ()
    depth, width = _filled(shape.depth), _filled(shape.width)
    most_keys = min(_MOST_KEYS, _filled(shape.keys))
    plans = [
        AttentionPlan(warps, fragments, keys, depth, width, shape.bits)
        for warps, fragments, keys in product((4, 2, 8), (1, 2), range(_GRAIN, most_keys + 1, _GRAIN))
        if max(depth, width) <= _MOST_DEPTH
    ]
    most = _MOST_BESIDE_MASKS if has_masks(blocks, blocks.weight_number) else _MOST_REGISTERS
    fitting = [
        plan
        for plan in plans
        if plan.registers <= most and 2 * plan.shared_bytes <= gpu.shared_bytes_per_multiprocessor
    ]

    return tuple(sorted(fitting, key=lambda plan: _cycles(plan, blocks.shape, gpu)))


def _cycles(plan: AttentionPlan, shape: AttentionShape, gpu: Gpu) -> float:
    """The cycles of a multiprocessor: of its blocks together, or what each waits, if that is longer."""
    groups = ceil(shape.queries / plan.queries)
    tiles = ceil(shape.keys / plan.keys)
    rounds = ceil(shape.batches * groups / gpu.multiprocessors)
    resident = min(
        gpu.shared_bytes_per_multiprocessor // (plan.shared_bytes + 1024),
        gpu.registers_per_multiprocessor // (plan.threads * min(255, plan.registers + 72)),
    )
    busy = rounds * ceil(shape.queries / (plan.fragments * ROWS)) / groups
    size = plan.bits // 8
    products = plan.fragments * plan.keys * (plan.depth + plan.width) / 128 * _PRODUCT_CYCLES * size / 2
    softmax = plan.fragments * ROWS * (plan.keys * _SCORE_CYCLES + plan.width * _RESCALE_CYCLES)
    softmax += _WARP_CYCLES
    loads = plan.keys * (plan.depth + plan.width) * size / _SHARED_BYTES_PER_CYCLE
    fill = plan.keys * (plan.depth + plan.width) * size / _L2_BYTES_PER_CYCLE
    work = tiles * (max(busy * (products + softmax), busy * loads, rounds * fill) + 0.2 * rounds * fill)
    alone = tiles * (4 * products + 2 * softmax + _TILE_LATENCY) + _BLOCK_LATENCY
    return max(work, ceil(rounds / resident) * alone) + _BLOCK_LATENCY


def has_masks(blocks: AttentionBlocks, weight: Expression) -> bool:
    """Whether an argument of the softmax reads more than a score."""
    return any(not load.source.same_as(blocks.scores) for load in nest.loads_of(weight))


def _filled(size: int) -> int:
    return ceil(size / _GRAIN) * _GRAIN
