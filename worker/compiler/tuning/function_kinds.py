"""What functions have in common whose schedules may suit each other: all but the sizes of their loops."""

from __future__ import annotations

from hashlib import sha256
from math import prod
from typing import NamedTuple

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from bessemer.contract.base import Digest
from bessemer.contract.records import MAX_EXTENTS
from worker.compiler.spaces.space import PLANS, STOCK


class Nest(NamedTuple):
    """The loops of a function's heaviest block, the types that it reads and writes, and all blocks' names."""

    extents: tuple[int, ...]
    types: tuple[str, ...]
    blocks: tuple[str, ...]


def heaviest_nest(module: tvm.IRModule) -> Nest | None:
    """The nest with the most iterations; None if its sizes are dynamic, or if there is none."""
    blocks: list[s_tir.SBlock] = []
    tvm_ffi.structural_walk(module["main"].body, (s_tir.SBlock, blocks.append))
    nests = [block for block in blocks if len(block.iter_vars)]
    extents = [tuple(variable.dom.extent for variable in block.iter_vars) for block in nests]
    if not nests or not all(isinstance(each, tirx.IntImm) for own in extents for each in own):
        return None
    sizes = [tuple(int(each) for each in own) for own in extents]
    heaviest = max(range(len(nests)), key=lambda index: prod(sizes[index]))
    if len(sizes[heaviest]) > MAX_EXTENTS or min(sizes[heaviest]) < 1:
        return None
    regions = (*nests[heaviest].reads, *nests[heaviest].writes)
    types = sorted({str(region.source.dtype) for region in regions})
    return Nest(sizes[heaviest], tuple(types), tuple(str(block.name_hint) for block in nests))


def kinds_of(nest: Nest, family: str | None) -> dict[str, Digest]:
    """By search space, what functions must have in common for a schedule of one to mean something for others.

    The numbers of a plan belong to a family. MetaSchedule's traces name blocks.
    """
    common = (*nest.types, str(len(nest.extents)))
    stock = _digest(STOCK, *nest.blocks, *common)
    return {STOCK: stock} if family is None else {PLANS: _digest(PLANS, family, *common), STOCK: stock}


def _digest(*words: str) -> Digest:
    return sha256("\n".join(words).encode()).hexdigest()
