"""Cancels, of jobs and of invocations: the worker is told; a row that no live worker has in hand ends."""

from typing import Any

import sqlalchemy as sa

from bessemer.contract.base import JobId, now
from bessemer.contract.job import EventType, JobState
from bessemer.store.rows.job_rows import update_with_event
from bessemer.store.rows.tables import INVOCATIONS, JOBS, WORKERS
from bessemer.store.rows.transitions import going_on


def ended(state: JobState) -> dict[str, Any]:
    """What a row says that has ended so."""
    return {"state": state.value, "finished_at": now()}


def job_ended(state: JobState) -> dict[str, Any]:
    """What a job's row says that has ended so."""
    return {**ended(state), "progress": None}


def unattended(table: sa.Table) -> sa.ColumnElement[bool]:
    """Whether a row goes on, and is in no living worker's hand: there is nobody to be told anything."""
    workers = sa.select(WORKERS.c.id)
    return sa.and_(going_on(table), sa.or_(table.c.worker.is_(None), table.c.worker.not_in(workers)))


def asked_to_stop(table: sa.Table) -> sa.ColumnElement[bool]:
    """Whether a row is in hand, and its user wants it cancelled."""
    return sa.and_(table.c.state == JobState.RUNNING.value, table.c.cancel_requested)


def hold_worker(connection: sa.Connection, table: sa.Table, row_id: JobId) -> None:
    """Keep the worker of a row from being forgotten, or wait until it is, before it is told anything."""
    worker = sa.select(table.c.worker).where(table.c.id == row_id).scalar_subquery()
    held = sa.select(WORKERS.c.id).where(WORKERS.c.id == worker)
    connection.execute(held.with_for_update(read=True, key_share=True))


def cancel_job(connection: sa.Connection, job_id: JobId, condition: sa.ColumnElement[bool]) -> bool:
    """End a job as cancelled, with its event, where a condition still holds; whether it did."""
    values = job_ended(JobState.CANCELLED)
    return update_with_event(connection, job_id, condition, values, EventType.CANCELLED, {})


def cancel_invocations(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> bool:
    """End invocations as cancelled where a condition holds; whether there were any."""
    statement = sa.update(INVOCATIONS).where(condition).values(ended(JobState.CANCELLED))
    return connection.execute(statement).rowcount > 0


def cancel_left(connection: sa.Connection, worker_id: str) -> None:
    """End what a lost worker was asked to stop: nobody else would hear of it."""
    left = sa.and_(JOBS.c.worker == worker_id, asked_to_stop(JOBS))
    for job_id in connection.execute(sa.select(JOBS.c.id).where(left)).scalars().all():
        cancel_job(connection, job_id, left)
    cancel_invocations(connection, sa.and_(INVOCATIONS.c.worker == worker_id, asked_to_stop(INVOCATIONS)))
