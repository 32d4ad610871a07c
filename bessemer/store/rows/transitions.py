"""The contract's transition table, read backward: what a compare-and-set compares with. And what was lost."""

import sqlalchemy as sa

from bessemer.contract.job import TRANSITIONS, JobState


def sources(target: JobState) -> tuple[JobState, ...]:
    """The states from which a job may move to ``target``."""
    return tuple(state for state, targets in TRANSITIONS.items() if target in targets)


def going_on(table: sa.Table) -> sa.ColumnElement[bool]:
    """Whether a job or an invocation has not ended."""
    return table.c.state.in_([state.value for state in JobState if not state.final])


def counting_lost(table: sa.Table, in_hand: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
    """A row's lost attempts when somebody takes it: one more where a worker still has it in hand."""
    return table.c.lost_attempts + sa.case((in_hand, 1), else_=0)
