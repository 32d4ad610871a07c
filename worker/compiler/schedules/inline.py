"""Inline elementwise blocks into their consumers and producers.

A long expression is not repeated for the same element. A consumer that reads an element several times binds
it to a variable first; only then is its producer inlined::

    t[i] = f(x[i])                              y[i] = let v = f(x[i]) in v * sigmoid(v)
    y[i] = t[i] * sigmoid(t[i])

A consumer that reads several elements gets a copy of the expression for each, as long as the copies stay
short. Without both rules, a chain of such functions would double with every link
(``docs/decisions/0019-values-are-bound-before-inlining.md``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir.schedule import SBlockRV
from tvm.sym import Analyzer
from tvm_ffi import structural_equal

from worker.compiler.schedules import nest
from worker.compiler.schedules.annotations import ACTIVATED
from worker.compiler.schedules.blocks import (
    Block,
    attempt,
    block_names,
    branches_along,
    conditions_of,
    has_branch,
    is_expensive,
    read_block,
)
from worker.compiler.schedules.conditions import analyzer_of, fold_conditions
from worker.compiler.schedules.repeated_loads import count_elements_read, count_nodes, name_repeated_loads

_FEW_NODES = 32
"""Shorter expressions are repeated, not bound: families recognize a mean or a bias by its form."""

_MOST_REPEATED_NODES = 256
"""The nodes that inlining a block may add to a consumer beyond one copy of its expression."""

_MOST_ADDED_NODES = 1024
"""The nodes that all such copies may add to a function; a longer function may double."""

_MOST_BRANCHES = 64
"""The branches up to which a consumer's loads are bound: a join of many parts is a deep chain."""


def inline_blocks(schedule: s_tir.Schedule, is_traced: bool = False) -> s_tir.Schedule:
    """Inline elementwise blocks into their neighbors if that repeats no expensive work.

    Args:
        schedule: the function.
        is_traced: use only primitives that a trace can replay. Otherwise the result is a new schedule with
            repeated loads bound and constant conditions folded.
    """
    copies = _Copies(max(_MOST_ADDED_NODES, _nodes_in(schedule)), is_traced)
    schedule = _each_into_consumers(schedule, copies)
    if not is_traced:
        # The first pass may merge the two consumers of a block, which the second one can then inline.
        schedule = _mapped(_each_into_consumers(schedule, copies), fold_conditions)
    for name in reversed(block_names(schedule)):
        block = read_block(schedule, schedule.get_sblock(name), may_be_dynamic=True)
        if block is not None and not block.reduced:
            schedule = _into_producer(schedule, block, name, copies)
    return schedule


@dataclass
class _Copies:
    """What inlining may still repeat in a function.

    Attributes:
        left: the nodes that further copies of expressions may have.
        is_traced: whether a trace replays the primitives.
    """

    left: int
    is_traced: bool


def _each_into_consumers(schedule: s_tir.Schedule, copies: _Copies) -> s_tir.Schedule:
    for name in block_names(schedule):
        block = read_block(schedule, schedule.get_sblock(name), may_be_dynamic=True)
        if block is not None and _is_worth_inlining(schedule, block):
            schedule = _into_consumers(schedule, block, name, copies)
    return schedule


def _into_consumers(schedule: s_tir.Schedule, block: Block, name: str, copies: _Copies) -> s_tir.Schedule:
    pairs = [(block.body, _name_of(schedule, handle)) for handle in schedule.get_consumers(block.handle)]
    return _inlined(schedule, pairs, lambda trial: trial.compute_inline(name), copies)


def _into_producer(schedule: s_tir.Schedule, block: Block, name: str, copies: _Copies) -> s_tir.Schedule:
    """Inline a block into producers without other consumers.

    A producer must compute an element for each of the block's: TVM would drop the others.
    """
    pairs = []
    for handle in schedule.get_producers(block.handle):
        producer = read_block(schedule, handle, may_be_dynamic=True)
        if len(schedule.get_consumers(handle)) > 1 or producer is None or not _covers(producer, block):
            return schedule
        pairs.append((producer.body, name))
    return _inlined(schedule, pairs, lambda trial: trial.reverse_compute_inline(name), copies)


def _inlined(
    schedule: s_tir.Schedule,
    pairs: list[tuple[s_tir.SBlock, str]],
    inline: Callable[[s_tir.Schedule], None],
    copies: _Copies,
) -> s_tir.Schedule:
    """The schedule with producers inlined into consumers, or the same one if that repeats too much."""
    ready, added, producers = schedule, 0, set[str]()
    for producer, consumer in pairs:
        ready, read, nodes = _with_loads_bound(ready, producer, consumer, copies.is_traced)
        if (read - 1) * nodes > _MOST_REPEATED_NODES:
            return schedule
        added += (read if str(producer.name_hint) in producers else read - 1) * nodes
        producers.add(str(producer.name_hint))
    result = attempt(ready, inline) if added <= copies.left else None
    if result is None:
        return schedule
    copies.left -= added
    return result


def _with_loads_bound(
    schedule: s_tir.Schedule, producer: s_tir.SBlock, consumer: str, is_traced: bool
) -> tuple[s_tir.Schedule, int, int]:
    """The schedule with a consumer's loads of a producer bound, their number, and the nodes of each copy.

    Short expressions count as none.
    """
    stores = _stores_of(producer.body)
    if len(stores) != 1:
        return schedule, 1, 0
    buffer, nodes = stores[0].buffer, count_nodes(stores[0].value)
    if nodes <= _FEW_NODES:
        return schedule, 1, 0
    named = schedule if is_traced else _with_loads_named(schedule, buffer, consumer)
    read = sum(
        count_elements_read(store.value, buffer)
        for store in _stores_of(named.get(named.get_sblock(consumer)).body)
    )
    return named, read, nodes


def _nodes_in(schedule: s_tir.Schedule) -> int:
    bodies = (schedule.get(schedule.get_sblock(name)).body for name in block_names(schedule))
    return sum(count_nodes(store.value) for body in bodies for store in _stores_of(body))


def _with_loads_named(schedule: s_tir.Schedule, buffer: Any, consumer: str) -> s_tir.Schedule:
    body = schedule.get(schedule.get_sblock(consumer)).body
    is_read_once = all(count_elements_read(store.value, buffer) < 2 for store in _stores_of(body))
    if is_read_once or len(conditions_of(body)) > _MOST_BRANCHES:
        return schedule

    def name_loads(function: tirx.PrimFunc) -> tirx.PrimFunc:
        analyzer = analyzer_of(function.body)

        def store(store: tirx.BufferStore) -> tirx.BufferStore:
            value = name_repeated_loads(store.value, buffer, analyzer)
            return tirx.BufferStore(store.buffer, value, store.indices)

        def block(block: s_tir.SBlock, mutator: Any) -> s_tir.SBlock:
            if str(block.name_hint) != consumer:
                return mutator.default_mutate(block)
            return tvm_ffi.structural_map(block, (tirx.BufferStore, store))

        return function.with_body(tvm_ffi.structural_mutate(function.body, ((s_tir.SBlock, block),)))

    return _mapped(schedule, name_loads)


def _mapped(schedule: s_tir.Schedule, change: Any) -> s_tir.Schedule:
    """A new schedule of the changed function; the same schedule if nothing changes."""
    module = schedule.mod
    changed = {variable: change(function) for variable, function in module.functions_items()}
    if all(changed[variable].same_as(function) for variable, function in module.functions_items()):
        return schedule
    return s_tir.Schedule(tvm.IRModule(changed, attrs=module.attrs))


def _stores_of(body: tirx.Stmt) -> list[tirx.BufferStore]:
    stores: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(body, (tirx.BufferStore, lambda store: stores.append(store)))
    return stores


def _name_of(schedule: s_tir.Schedule, handle: SBlockRV) -> str:
    return str(schedule.get(handle).name_hint)


def _covers(producer: Block, consumer: Block) -> bool:
    """Whether a producer computes at least as many elements as a consumer, which does not pad."""
    if any(branches_along(consumer, axis) for axis in consumer.spatial):
        return False
    if any(_selects_one(region, consumer) for region in consumer.body.reads):
        return False
    return prod(axis.extent for axis in producer.spatial) >= consumer.iterations


def _selects_one(region: Any, consumer: Block) -> bool:
    """Whether a block reads one of several indices of a dimension: TVM would store for all of them."""
    ones = {axis.var: tirx.IntImm(str(axis.var.ty.dtype), 0) for axis in consumer.axes if axis.extent == 1}
    return any(
        isinstance(Analyzer().simplify(nest.substitute(dimension.min, ones)), tirx.IntImm)
        and not structural_equal(dimension.extent, size)
        for dimension, size in zip(region.region, region.source.shape, strict=True)
    )


def _is_worth_inlining(schedule: s_tir.Schedule, block: Block) -> bool:
    if block.reduced or ACTIVATED in block.body.annotations:
        return False
    consumers = [
        read_block(schedule, handle, may_be_dynamic=True) for handle in schedule.get_consumers(block.handle)
    ]
    cheap = not is_expensive(block.body)
    if not consumers or (len(consumers) > 1 and not cheap):
        return False
    return all(_repeats_nothing(block, consumer, cheap) for consumer in consumers)


def _repeats_nothing(block: Block, consumer: Block | None, cheap: bool) -> bool:
    """Whether a consumer computes about as many elements as the block, or the block is cheap to repeat."""
    if consumer is None or (consumer.reduced and has_branch(block.body)):
        return False
    return cheap or consumer.iterations <= block.iterations
