"""What both ways of multiplying tiles share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tvm import tirx

from worker.compiler.schedules.gpu.products.plan import TilePlan
from worker.compiler.schedules.gpu.products.threads import WARP
from worker.compiler.schedules.gpu.products.tiles import Tile

Element = Callable[[Any], Any]
"""The value of a lane of a vector."""

Store = Callable[[Any, Any, int, Element], tirx.Stmt]
"""Stores a vector of results at a row and a column of the block's tile, if they are inside the product."""


@dataclass(frozen=True)
class Warp:
    """A thread's warp in its block, and the place of its results in the block's tile."""

    number: Any
    lane: Any
    row: Any
    column: Any


@dataclass(frozen=True)
class Operands:
    """Both factors' tiles in shared memory, and the plan that they are multiplied by.

    Attributes:
        left: the left factor's tile, and ``left_buffer`` all its stages.
        right: the right factor's tile.
        shared: all of shared memory.
    """

    plan: TilePlan
    left: Tile
    right: Tile
    left_buffer: Any
    right_buffer: Any
    shared: Any


class Unit(Protocol):
    """Multiplies tiles in shared memory, and stores the sums."""

    sums: Any
    """The registers of a thread's sums."""

    lag: int
    """The tiles whose products may still be under way when those of the next one have started."""

    def arrive(self) -> list[tirx.Stmt]:
        """What a thread does between the wait for its copies and the barrier."""

    def multiply(self, slot: Any, warp: Warp) -> tirx.Stmt:
        """Add the products of the tiles of a stage to the sums."""

    def finish(self, warp: Warp, vector: int, store: Store) -> tirx.Stmt:
        """Store the sums, ``vector`` neighbors at once."""


def warp_of(thread: Any, plan: TilePlan) -> Warp:
    """The warp of a thread: warps (or warpgroups) go along the columns of the block's tile first."""
    warp, lane = tirx.floordiv(thread, WARP), tirx.floormod(thread, WARP)
    group = tirx.floordiv(thread, plan.group)
    across = plan.columns // plan.warp_columns
    return Warp(
        warp,
        lane,
        tirx.floordiv(group, across) * plan.warp_rows,
        tirx.floormod(group, across) * plan.warp_columns,
    )
