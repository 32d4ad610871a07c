"""What the writers of attention's loops share: the buffers of a task, and helpers for loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import Places
from worker.compiler.schedules.families.attention.blocks import AttentionBlocks
from worker.compiler.schedules.families.attention.plan import AttentionPlan, AttentionShape
from worker.compiler.schedules.processors import Machine


@dataclass(frozen=True)
class TaskBuffers:
    """The buffers of a task."""

    queries: Any
    """``[groups, depth, queries]``."""
    powers: Any
    """``[window, queries]``: the scores, then the powers, of one group."""
    highest: Any
    """``[groups, queries]``: the maximum so far."""
    total: Any
    """``[groups, queries]``: the sum of the powers so far."""
    scale: Any
    """``[queries]``: the factor for the result so far, of one group."""
    result: Any
    """``[groups, panels, queries, columns]``; None if one window holds all keys."""
    first: Any
    """``[groups]``: the first key that a group sees; None unless ``counts_keys``."""
    end: Any
    """``[groups]``: the number of keys up to the last that a group sees; None unless ``counts_keys``."""


@dataclass(frozen=True)
class QueryGroup:
    """A group of queries in a task: its batch, its number in the task, its first query."""

    batch: Places
    number: Any
    row: Any


@dataclass(frozen=True)
class Window:
    """A window of keys: the first key, their number, how many a group sees, and whether it comes first."""

    start: Any
    size: Any
    seen: Any
    is_first: Any


@dataclass(frozen=True)
class AttentionLoops:
    """The function, its plan and the processor, with helpers for loops."""

    blocks: AttentionBlocks
    plan: AttentionPlan
    machine: Machine

    @property
    def shape(self) -> AttentionShape:
        """The sizes."""
        return self.blocks.shape

    @property
    def index(self) -> str:
        """The dtype of the loops."""
        return self.blocks.index_dtype

    @property
    def lanes(self) -> int:
        """Elements of a full vector."""
        return self.machine.lanes(self.shape.bits)

    @property
    def is_whole(self) -> bool:
        """Whether one window holds all keys."""
        return not self.shape.dynamic_keys and self.plan.window == self.shape.keys

    @property
    def counts_keys(self) -> bool:
        """Whether to find the keys that the mask shows: if keys outnumber queries, as in a cache."""
        shape = self.shape
        if self.blocks.causal is not None or shape.dynamic_queries or shape.dynamic_keys:
            return False
        return shape.queries < shape.keys and self.blocks.seen is not None

    def each_query(self, statement: Callable[[Any, Any], tirx.Stmt]) -> tirx.Stmt:
        """An unrolled statement for every query of a group, at ``(vector, lane)``."""
        tile = self.plan.tile
        return nest.unrolled(
            tile.vectors, lambda v: self.vector(tile.lanes, lambda lane: statement(v, lane)), self.index
        )

    def place(self, v: Any, lane: Any) -> Any:
        """A query's number in its group."""
        return v * self.plan.tile.lanes + lane

    def vector(self, lanes: int, body: nest.Body) -> tirx.Stmt:
        """A vectorized statement."""
        return nest.vectorized(lanes, body, self.index)

    def times(self, count: Any, body: nest.Body) -> tirx.Stmt:
        """A plain loop; its extent is an expression under a causal mask and with dynamic sizes."""
        return nest.serial(int(count) if isinstance(count, tirx.IntImm) else count, body, self.index)

    def named(self, *values: tuple[Any, str], body: Callable[..., tirx.Stmt]) -> tirx.Stmt:
        """A statement that reads values from registers if dynamic sizes make their expressions long."""
        return (
            nest.all_named(values, body) if self.blocks.is_dynamic else body(*(value for value, _ in values))
        )

    def number(self, value: int) -> Any:
        """An integer constant."""
        return tirx.IntImm(self.index, value)

    def float(self, value: float) -> Any:
        """A constant of the scores' dtype."""
        return tirx.FloatImm(self.blocks.dtype, value)
