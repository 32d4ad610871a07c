"""Reading attention off a function of TensorIR."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import s_tir

from worker.layout.attention_kernel import ATTENTION, CAUSAL, SAFE
from worker.schedules import nest
from worker.schedules.attention_plan import AttentionShape
from worker.schedules.blocks import Axis, Block, block_names, element_bits, read_block

Expression = Any


@dataclass(frozen=True)
class AttentionBlocks:
    """Attention as a function holds it: its four reductions, and what is computed in between.

    The places of elements are ``batch`` (the variables of ``axes``), a query, a key, a step or a feature.
    """

    scores: Block
    highest: Block
    result: Block
    order: tuple[int, ...]
    definitions: dict[Any, Block]

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The dimensions that are computed independently."""
        return self.scores.spatial[:-2]

    @property
    def causal(self) -> int | None:
        """Query ``i`` sees the keys up to ``i`` plus this number only."""
        offset = self.result.body.annotations.get(CAUSAL)
        return None if offset is None else int(offset)

    @property
    def safe(self) -> bool:
        """Whether a query that sees no key gives zeros instead of NaN."""
        return bool(self.result.body.annotations[SAFE])

    @property
    def dtype(self) -> str:
        """The dtype of everything but masks."""
        return str(self.result.body.writes[0].source.dtype)

    @property
    def index_dtype(self) -> str:
        """The dtype of the loops."""
        return nest.dtype_of(self.scores.axes[0].var)

    @property
    def shape(self) -> AttentionShape:
        """Its sizes."""
        *batch, queries, keys = self.scores.spatial
        return AttentionShape(
            batches=prod(axis.extent for axis in batch),
            queries=queries.extent,
            keys=keys.extent,
            depth=self.scores.reduced[0].extent,
            width=self._result_axes[-1].extent,
            bits=element_bits(self.result),
        )

    def query(self, batch: tuple[Any, ...], row: Any, step: Any) -> Expression:
        """A query's number."""
        return self._expanded(self._factors(self.scores).a, self._score_places(batch, row, 0, step))

    def key(self, batch: tuple[Any, ...], column: Any, step: Any) -> Expression:
        """A key's number."""
        return self._expanded(self._factors(self.scores).b, self._score_places(batch, 0, column, step))

    def weight(self, score: Expression, batch: tuple[Any, ...], row: Any, column: Any) -> Expression:
        """What the softmax takes, from a score."""
        axes = (*self.highest.spatial, *self.highest.reduced)
        places = _places(axes, (*batch, row, column))
        term = self._expanded(self.highest.body.body.value.b, places)
        return nest.replace_loads(term, self.scores.body.writes[0].source, lambda _indices: score)

    def value(self, batch: tuple[Any, ...], column: Any, feature: Any) -> Expression:
        """A value's number."""
        places = _places((*self._result_axes, *self.result.reduced), (*batch, 0, feature, column))
        return self._expanded(self._factors(self.result).b, places)

    def store(self, value: Expression, batch: tuple[Any, ...], row: Any, feature: Any) -> Any:
        """The statement that stores an element of the result."""
        places = _places(self._result_axes, (*batch, row, feature))
        final = self.result.body.body
        return nest.store(final.buffer, value, *(nest.substitute(index, places) for index in final.indices))

    @property
    def _result_axes(self) -> tuple[Axis, ...]:
        """The result's axes as ``[..., query, feature]``."""
        spatial = self.result.spatial
        return tuple(spatial[self.order.index(position)] for position in range(len(spatial)))

    def _score_places(self, batch: tuple[Any, ...], row: Any, column: Any, step: Any) -> dict[Any, Any]:
        return _places((*self.scores.spatial, *self.scores.reduced), (*batch, row, column, step))

    def _factors(self, block: Block) -> Any:
        return block.body.body.value.b

    def _expanded(self, expression: Expression, places: dict[Any, Any]) -> Expression:
        """An expression at a place, intermediate elementwise results computed in it."""
        value = nest.substitute(expression, places)
        for buffer, block in self.definitions.items():
            value = nest.replace_loads(value, buffer, self._definition(block))
        return value

    def _definition(self, block: Block) -> Callable[[Any], Expression]:
        def at(indices: Any) -> Expression:
            return self._expanded(block.body.body.value, _places(block.axes, tuple(indices)))

        return at


def find_attention(schedule: s_tir.Schedule) -> AttentionBlocks | None:
    """The attention that a function consists of."""
    found = [read_block(schedule, schedule.get_sblock(name)) for name in block_names(schedule)]
    blocks = [block for block in found if block is not None]
    reductions = [block for block in blocks if block.reduced]
    if len(blocks) != len(found) or len(reductions) != 4:
        return None
    scores, highest, _, result = reductions
    order = result.body.annotations.get(ATTENTION)
    if order is None:
        return None
    definitions = {block.body.writes[0].source: block for block in blocks if not block.reduced}
    return AttentionBlocks(scores, highest, result, tuple(map(int, order)), definitions)


def _places(axes: tuple[Axis, ...], values: tuple[Any, ...]) -> dict[Any, Any]:
    return {axis.var: value for axis, value in zip(axes, values, strict=True)}
