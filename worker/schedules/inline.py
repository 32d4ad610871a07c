"""Inlining: which blocks disappear into their consumers."""

from __future__ import annotations

from math import prod

from tvm import s_tir

from worker.schedules.attempt import attempt
from worker.schedules.blocks import Block, block_names, branches_along, has_branch, is_expensive, read_block


def inline_blocks(schedule: s_tir.Schedule) -> s_tir.Schedule:
    """Inline elementwise blocks into their neighbors where that repeats no work worth keeping."""
    for name in block_names(schedule):
        block = read_block(schedule, schedule.get_sblock(name), may_be_open=True)
        if block is not None and _is_worth_inlining(schedule, block):
            schedule = _into_consumers(schedule, name)
    for name in reversed(block_names(schedule)):
        block = read_block(schedule, schedule.get_sblock(name), may_be_open=True)
        if block is not None and not block.reduced:
            schedule = _into_producer(schedule, block, name)
    return schedule


def _into_consumers(schedule: s_tir.Schedule, name: str) -> s_tir.Schedule:
    return attempt(schedule, lambda trial: trial.compute_inline(name)) or schedule


def _into_producer(schedule: s_tir.Schedule, block: Block, name: str) -> s_tir.Schedule:
    """Where the producer has no other consumer and computes every element: TVM would forget the rest."""
    producers = schedule.get_producers(block.handle)
    if any(len(schedule.get_consumers(producer)) > 1 for producer in producers):
        return schedule
    if not all(_covers(read_block(schedule, producer, may_be_open=True), block) for producer in producers):
        return schedule
    return attempt(schedule, lambda trial: trial.reverse_compute_inline(name)) or schedule


def _covers(producer: Block | None, consumer: Block) -> bool:
    """Whether a producer computes an element for each of its consumer's, which does not pad."""
    if producer is None or any(branches_along(consumer, axis) for axis in consumer.spatial):
        return False
    return prod(axis.extent for axis in producer.spatial) >= consumer.iterations


def _is_worth_inlining(schedule: s_tir.Schedule, block: Block) -> bool:
    if block.reduced:
        return False
    consumers = [
        read_block(schedule, handle, may_be_open=True) for handle in schedule.get_consumers(block.handle)
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
