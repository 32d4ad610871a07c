"""The threads that execute a statement together.

A *lane* is one thread of one block. All lanes of a batch of blocks execute each statement in lockstep. A
value is either *uniform* (a Python or NumPy scalar) or an array with one element per lane. A value of a
vector type is an array with a row per lane, or with one row if it is uniform.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.gpu.faults import Fault, KernelFault

WARP = 32
Value = Any  # bool | int | np.generic | np.ndarray


@dataclass(frozen=True)
class Shape:
    """A launch: how many threads a block has and how many blocks there are, along x, y, z."""

    block: tuple[int, int, int]
    grid: tuple[int, int, int]

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return -(-self.threads // WARP)

    def thread(self, lane: int) -> str:
        """A lane's coordinates, for messages."""
        block, thread = divmod(int(lane), self.threads)
        x, y, _ = self.block
        u, v, _ = self.grid
        return (
            f"thread ({thread % x}, {thread // x % y}, {thread // (x * y)})"
            f" of block ({block % u}, {block // u % v}, {block // (u * v)})"
        )


class Clock:
    """Counts barriers, and says whether they order two accesses."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.now = 0
        self.block_start = np.zeros(shape.blocks, np.int32)
        self.warp_start = np.zeros(shape.blocks * shape.warps, np.int32)
        block, thread = np.divmod(np.arange(shape.blocks * shape.threads, dtype=np.int32), shape.threads)
        self._block = block
        self._warp = block * shape.warps + thread // WARP
        self._has_warp_syncs = False

    def warp_of(self, lanes: np.ndarray) -> np.ndarray:
        """The warp of each lane, counted through all blocks."""
        warps: np.ndarray = self._warp[lanes]
        return warps

    def sync_blocks(self, blocks: np.ndarray) -> None:
        self.now += 1
        self.block_start[blocks] = self.now

    def sync_warps(self, warps: np.ndarray) -> None:
        self.now += 1
        self.warp_start[warps] = self.now
        self._has_warp_syncs = True

    def unordered(self, earlier: np.ndarray, when: np.ndarray, later: np.ndarray) -> np.ndarray:
        """Whether nothing orders lane ``earlier`` (-1: none) at ``when`` before lane ``later`` now."""
        result = (earlier != later) & (earlier >= 0)
        suspects = np.nonzero(result)[0]
        if not len(suspects):
            return result
        one, other, time = earlier[suspects], later[suspects], when[suspects]
        block = self._block[other]
        ordered = (self._block[one] == block) & (time < self.block_start[block])
        if self._has_warp_syncs and not ordered.all():
            warp = self._warp[other]
            ordered |= (self._warp[one] == warp) & (time < self.warp_start[warp])
        result[suspects] = ~ordered
        return result


@dataclass
class Batch:
    """The blocks that execute in lockstep, and the memory that they have for themselves.

    ``undefined`` marks lanes whose current value comes from a register that nobody wrote. TVM's reductions
    across warps shuffle such values, and use none of them.
    """

    shape: Shape
    clock: Clock
    first_block: int
    blocks: int
    memory: dict[Any, Any] = field(default_factory=dict)
    statement: Any = None
    undefined: np.ndarray | None = None

    @property
    def count(self) -> int:
        return self.blocks * self.shape.threads

    def mark_undefined(self, ids: np.ndarray) -> None:
        if self.undefined is None:
            self.undefined = np.zeros(self.count, bool)
        self.undefined[ids] = True

    def require_defined(self, use: str) -> None:
        """A fault if the value that is used so is undefined in a lane."""
        if self.undefined is None:
            return
        lane = int(np.argmax(self.undefined)) + self.first_block * self.shape.threads
        self.undefined = None
        raise KernelFault(
            Fault.UNINITIALIZED, f"{self.shape.thread(lane)} uses a register that it never wrote as {use}"
        )


class Lanes:
    """The active lanes of a batch, and the variables that they see.

    ``ids`` are the lanes' places in the batch. A branch makes a child with fewer lanes, in which a variable
    of the parent is cut down to the child's lanes.
    """

    __slots__ = ("batch", "count", "ids", "parent", "picked", "values")

    def __init__(
        self, batch: Batch, ids: np.ndarray, parent: Lanes | None = None, picked: np.ndarray | None = None
    ) -> None:
        self.batch = batch
        self.ids = ids
        self.count = len(ids)
        self.parent = parent
        self.picked = picked
        self.values: dict[int, Value] = {}

    @property
    def all_active(self) -> bool:
        return self.count == self.batch.count

    @property
    def numbers(self) -> np.ndarray:
        """The lanes counted through all blocks of the grid."""
        return self.ids + self.batch.first_block * self.batch.shape.threads

    def lookup(self, variable: int) -> Value:
        value = self.values.get(variable)
        if value is None:
            if self.parent is None:
                raise KernelFault(Fault.UNSUPPORTED, "a variable is used outside its scope")
            value = pick(self.parent.lookup(variable), self.picked)
            self.values[variable] = value
        return value

    def bind(self, variable: int, value: Value) -> None:
        self.values[variable] = value

    def where(self, condition: np.ndarray) -> Lanes:
        """The lanes for which the condition holds."""
        picked = np.nonzero(condition)[0]
        return Lanes(self.batch, self.ids[picked], self, picked)

    def whole_blocks(self) -> np.ndarray:
        """The blocks of these lanes; a fault if only some threads of a block are here."""
        batch, threads = self.batch, self.batch.shape.threads
        if self.all_active:
            return np.arange(batch.first_block, batch.first_block + batch.blocks)
        return self._groups(self.numbers // threads, lambda _: threads, "block")

    def whole_warps(self) -> np.ndarray:
        """The warps of these lanes; a fault if only some threads of a warp are here."""
        batch, shape = self.batch, self.batch.shape
        if self.all_active:
            return np.arange(batch.blocks * shape.warps) + batch.first_block * shape.warps
        last = shape.threads - (shape.warps - 1) * WARP

        def size(warps: np.ndarray) -> np.ndarray:
            return np.where(warps % shape.warps == shape.warps - 1, last, WARP)

        return self._groups(self.batch.clock.warp_of(self.numbers), size, "warp")

    def _groups(self, group: np.ndarray, size: Any, name: str) -> np.ndarray:
        groups, counts = np.unique(group, return_counts=True)
        missing = np.nonzero(counts != size(groups))[0]
        if len(missing):
            detail = f"only {counts[missing[0]]} threads of a {name} reach it"
            raise KernelFault(Fault.DIVERGENT, detail)
        return groups


def pick(value: Value, picked: np.ndarray | None) -> Value:
    """A value for some of the lanes."""
    if not is_varying(value) or picked is None:
        return value
    return value[picked]


def is_varying(value: Value) -> bool:
    """Whether a value differs between lanes: a vector with one row does not."""
    return isinstance(value, np.ndarray) and value.ndim > 0 and not (value.ndim == 2 and value.shape[0] == 1)


def spread(value: Value, count: int) -> np.ndarray:
    """A value as an array with an element, or a row, per lane."""
    array = np.asarray(value)
    if array.ndim == 0:
        return np.broadcast_to(array, (count,))
    return np.broadcast_to(array, (count, *array.shape[1:]))
