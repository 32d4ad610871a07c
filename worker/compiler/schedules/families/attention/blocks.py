"""Recognize attention in a function, and give its operands as expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, prod
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.ir import TensorLoad
from tvm.sym import Analyzer
from tvm.tirx.analysis import undefined_vars

from worker.compiler.schedules import nest
from worker.compiler.schedules.annotations import ATTENTION, CAUSAL, SAFE
from worker.compiler.schedules.blocks import Axis, Block, Places, read_blocks, step_along
from worker.compiler.schedules.families.attention.plan import AttentionShape

Expression = Any

_REDUCTIONS = 4
"""Scores, maxima, sums of powers, result."""


@dataclass(frozen=True)
class AttentionBlocks:
    """The attention in a function.

    ``output`` is the store of an element of the result. The expressions use the variables of ``axes`` (batch
    and heads), ``row`` (the query), ``key``, ``step`` (of the head's size) and ``feature`` (of the result).
    """

    result: Block
    output: Any
    scores: Any
    axes: tuple[Axis, ...]
    row: Axis
    key: Axis
    step: Axis
    feature: Axis
    query_number: Expression
    key_number: Expression
    value_number: Expression
    weight_number: Expression

    @property
    def causal(self) -> int | None:
        """Query ``i`` sees only the keys up to ``i`` plus this number; None without a causal mask."""
        offset = self.result.body.annotations.get(CAUSAL)
        return None if offset is None else int(offset)

    @cached_property
    def seen(self) -> Expression | None:
        """Whether a query sees a key, if a mask selects the scores that stay; None if every key is seen."""
        return _seen(self.weight_number)

    @property
    def has_own_masks(self) -> bool:
        """Whether queries see different keys."""
        return self.row.var in undefined_vars(self.seen, [])

    def sees(self, batch: Places, row: Any, key: Any) -> Expression:
        """Whether a query sees a key, where ``seen`` is not None."""
        return nest.substitute(self.seen, {**batch, self.row.var: row, self.key.var: key})

    @property
    def safe(self) -> bool:
        """Whether the result of a query that sees no key is zero instead of NaN."""
        return bool(self.result.body.annotations[SAFE])

    @property
    def dtype(self) -> str:
        """The dtype of all operands but masks."""
        return str(self.output.buffer.dtype)

    @property
    def index_dtype(self) -> str:
        """The dtype of the loops."""
        return nest.dtype_of(self.row.var)

    @property
    def shape(self) -> AttentionShape:
        """The sizes."""
        return AttentionShape(
            batches=prod(axis.extent for axis in self.axes),
            queries=self.row.extent,
            keys=self.key.extent,
            depth=self.step.extent,
            width=self.feature.extent,
            bits=nest.bits_of(self.dtype),
            dynamic_queries=self.row.is_dynamic,
            dynamic_keys=self.key.is_dynamic,
        )

    @property
    def is_dynamic(self) -> bool:
        """Whether any size is known only at run time."""
        return any(axis.is_dynamic for axis in (*self.axes, self.row, self.key))

    @property
    def batch_count(self) -> nest.Size:
        """The number of independent products of queries and keys."""
        return prod(axis.size for axis in self.axes)

    def query(self, batch: Places, row: Any, step: Any) -> Expression:
        """An element of a query."""
        return nest.substitute(self.query_number, {**batch, self.row.var: row, self.step.var: step})

    @property
    def query_load(self) -> Any | None:
        """The load of an element of a query, if it is all of it and the head's size is contiguous."""
        load = self.query_number
        is_contiguous = isinstance(load, TensorLoad) and step_along(load, self.step) == 1
        return load if is_contiguous else None

    def of_key(self, batch: Places, key: Any, step: Any) -> Expression:
        """An element of a key."""
        return nest.substitute(self.key_number, {**batch, self.key.var: key, self.step.var: step})

    def weight(self, score: Expression, batch: Places, row: Any, key: Any) -> Expression:
        """The argument of the softmax, given a score."""
        term = nest.substitute(self.weight_number, {**batch, self.row.var: row, self.key.var: key})
        return nest.replace_loads(term, self.scores, nest.always(score))

    def value(self, batch: Places, key: Any, feature: Any) -> Expression:
        """An element of a value."""
        return nest.substitute(self.value_number, {**batch, self.key.var: key, self.feature.var: feature})

    def store(self, value: Expression, batch: Places, row: Any, feature: Any) -> tirx.Stmt:
        """The statement that stores an element of the result."""
        places = {**batch, self.row.var: row, self.feature.var: feature}
        indices = (nest.substitute(index, places) for index in self.output.indices)
        return nest.store(self.output.buffer, value, *indices)


def find_attention(schedule: s_tir.Schedule) -> AttentionBlocks | None:
    """The attention of a function that ``layout.attention`` made; None for other functions."""
    blocks = read_blocks(schedule, may_be_dynamic=True)
    reductions = [block for block in blocks if block.reduced]
    if len(reductions) != _REDUCTIONS:
        return None
    scores, highest, _, result = reductions
    order = result.body.annotations.get(ATTENTION)
    if order is None:
        return None
    expand = _Expander({block.body.writes[0].source: block for block in blocks if not block.reduced})
    positions = list(map(int, order))
    *axes, row, feature = (result.spatial[positions.index(place)] for place in range(len(positions)))
    (key,), (step,) = result.reduced, scores.reduced
    if step.is_dynamic or feature.is_dynamic:
        return None
    return AttentionBlocks(
        result=result,
        output=_output(result, blocks),
        scores=scores.body.writes[0].source,
        axes=tuple(axes),
        row=row,
        key=key,
        step=step,
        feature=feature,
        query_number=_narrow(expand(scores, _term(scores).a, (*axes, row, key, step))),
        key_number=_narrow(expand(scores, _term(scores).b, (*axes, row, key, step))),
        value_number=_narrow(expand(result, _term(result).b, result.axes)),
        weight_number=expand(highest, _term(highest), (*axes, row, key)),
    )


def _output(result: Block, blocks: Sequence[Block]) -> Any:
    """The store of an element of the result, which the last block may round."""
    final, last = result.body.body, blocks[-1].body.body
    if blocks[-1] is result:
        return final
    return tirx.BufferStore(last.buffer, final.value.astype(last.buffer.dtype), list(final.indices))


def _narrow(operand: Expression) -> Expression:
    """An operand of a product before it is widened."""
    return operand.value if isinstance(operand, tirx.Cast) else operand


def _seen(weight: Expression) -> Expression | None:
    """The condition under which a weight is not minus infinity because of a mask; None if there is none."""
    if not isinstance(weight, tirx.Select):
        return None
    if _is_masked(weight.false_value):
        inner, condition = _seen(weight.true_value), weight.condition
    elif _is_masked(weight.true_value):
        inner, condition = _seen(weight.false_value), tirx.Not(weight.condition)
    else:
        return None
    return condition if inner is None else tirx.And(condition, inner)


def _is_masked(value: Expression) -> bool:
    return isinstance(value, tirx.FloatImm) and float(value.value) == -inf


def _term(reduction: Block) -> Expression:
    """The second operand of a reduction's combiner."""
    return reduction.body.body.value.b


@dataclass(frozen=True)
class _Expander:
    """Inlines elementwise blocks into expressions."""

    definitions: dict[Any, Block]

    def __call__(self, block: Block, expression: Expression, axes: tuple[Axis, ...]) -> Expression:
        """An expression of a block in terms of other axes."""
        ordered = (*block.spatial, *block.reduced) if axes is not block.axes else axes
        analyzer = Analyzer()
        for axis in axes:
            analyzer.bind(axis.var, tvm.ir.Range(0, axis.size))
        return analyzer.simplify(self._expanded(expression, _places(ordered, [axis.var for axis in axes])))

    def _expanded(self, expression: Expression, places: Places) -> Expression:
        value = nest.substitute(expression, places)
        for buffer, block in self.definitions.items():
            value = nest.replace_loads(value, buffer, self._definition(block))
        return value

    def _definition(self, block: Block) -> Callable[[Sequence[Any]], Expression]:
        return lambda at: self._expanded(block.body.body.value, _places(block.axes, at))


def _places(axes: Sequence[Axis], values: Sequence[Any]) -> Places:
    return {axis.var: value for axis, value in zip(axes, values, strict=True)}
