"""The rows of every kind move as one table says, on both databases."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import sqlalchemy as sa
from store_samples import ARTIFACTS, DIGEST, FIGURES, INSPECTION, TARGET, a_problem, a_request, a_worker

from bessemer.contract.job import TRANSITIONS, JobState
from bessemer.store.errors import FencedError
from bessemer.store.queue_port import Task, TaskKind
from bessemer.store.rows.lifecycle import Rows
from bessemer.store.store import Store

JOB, INVOCATION, WORKER = "job-00000001", "invocation-1", "worker-1"


@dataclass(frozen=True)
class Kind:
    """How to make and end the rows of one kind; each row's task is ``task``."""

    task: Task
    add: Callable[[Store], object]
    succeed: Callable[[Store, int], object]
    fail: Callable[[Store, int], object]


def add_invocation(store: Store) -> None:
    store.jobs.submit(JOB, a_request())
    store.invocations.submit(INVOCATION, JOB, DIGEST, 10, 3)


KINDS = {
    "compilation": Kind(
        Task(TaskKind.COMPILE, JOB),
        lambda store: store.jobs.submit(JOB, a_request()),
        lambda store, attempt: store.jobs.succeed(JOB, attempt, TARGET, True, FIGURES, ARTIFACTS),
        lambda store, attempt: store.jobs.fail(JOB, attempt, a_problem()),
    ),
    "inspection": Kind(
        Task(TaskKind.INSPECT, DIGEST),
        lambda store: store.models.add(DIGEST, 1),
        lambda store, attempt: store.models.finish_inspection(DIGEST, attempt, INSPECTION),
        lambda store, attempt: store.models.finish_inspection(DIGEST, attempt, a_problem()),
    ),
    "invocation": Kind(
        Task(TaskKind.INVOKE, INVOCATION),
        add_invocation,
        lambda store, attempt: store.invocations.succeed(INVOCATION, attempt, 2, None, (), ARTIFACTS[0]),
        lambda store, attempt: store.invocations.fail(INVOCATION, attempt, a_problem()),
    ),
}

FENCED = "fenced"
MOVES = ("start", "hand_back", "succeed", "fail", "request_cancel", "cancel_finished")
AFTER = {
    "queued": ("running", FENCED, FENCED, FENCED, "cancelled", FENCED),
    "running": ("running", "handed back", "succeeded", "failed", "stopping", "cancelled"),
    "handed back": ("running", "handed back", "succeeded", "failed", "cancelled", "cancelled"),
    "stopping": ("cancelled", "cancelled", "succeeded", "failed", "stopping", "cancelled"),
    "succeeded": ("succeeded", FENCED, FENCED, FENCED, "succeeded", FENCED),
    "failed": ("failed", FENCED, FENCED, FENCED, "failed", FENCED),
    "cancelled": ("cancelled", FENCED, FENCED, FENCED, "cancelled", FENCED),
}
"""Where each move leads: all but ``start`` and ``request_cancel`` by the first attempt."""

PATHS: dict[str, tuple[str, ...]] = {
    "queued": (),
    "running": ("start",),
    "handed back": ("start", "hand_back"),
    "stopping": ("start", "request_cancel"),
    "succeeded": ("start", "succeed"),
    "failed": ("start", "fail"),
    "cancelled": ("start", "cancel_finished"),
}
NEED_CANCEL = {"stopping", "cancelled", "request_cancel", "cancel_finished"}
CASES = [
    pytest.param(kind, before, move, after, id=f"{kind}-{before}-{move}")
    for kind in KINDS
    for before, row in AFTER.items()
    for move, after in zip(MOVES, row, strict=True)
    if kind != "inspection" or not {before, move} & NEED_CANCEL
]


def rows_of(store: Store, kind: str) -> Rows:
    return store.rows(KINDS[kind].task.kind)


def make(store: Store, kind: str, move: str, attempt: int = 1) -> None:
    row_id, rows = KINDS[kind].task.id, rows_of(store, kind)
    if move == "start":
        rows.start(row_id, WORKER)
    elif move in ("succeed", "fail"):
        getattr(KINDS[kind], move)(store, attempt)
    elif move == "request_cancel":
        getattr(rows, move)(row_id)
    else:
        getattr(rows, move)(row_id, attempt)


def situation(store: Store, kind: str) -> str:
    rows = rows_of(store, kind)
    columns, life = rows.lifecycle.table.c, rows.lifecycle
    with store.database.read() as connection:
        query = sa.select(rows.lifecycle.table).where(life.named(KINDS[kind].task.id))
        row = connection.execute(query).one()
    if row.state not in (life.queued, life.running):
        return {"ready": "succeeded", "rejected": "failed"}.get(row.state, row.state)
    if row.attempt == 0:
        return "queued"
    if "cancel_requested" in columns and row.cancel_requested:
        return "stopping"
    return "running" if row.worker else "handed back"


@pytest.mark.parametrize(("kind", "before", "move", "after"), CASES)
def test_every_move_leads_where_the_table_says(
    store: Store, kind: str, before: str, move: str, after: str
) -> None:
    store.workers.beat(a_worker(WORKER))
    KINDS[kind].add(store)
    for step in PATHS[before]:
        make(store, kind, step)
    assert situation(store, kind) == before
    if after == FENCED:
        with pytest.raises(FencedError):
            make(store, kind, move)
        assert situation(store, kind) == before
    else:
        make(store, kind, move)
        assert situation(store, kind) == after


@pytest.mark.parametrize("kind", KINDS)
def test_an_attempt_in_flight_is_lost_and_fenced_out_by_the_next(store: Store, kind: str) -> None:
    KINDS[kind].add(store)
    rows, row_id = rows_of(store, kind), KINDS[kind].task.id
    assert [rows.start(row_id, worker) for worker in ("w1", "w2", "w2")] == [1, 2, 3]
    assert rows.lost_attempts(row_id, 3) == 2
    rows.hand_back(row_id, 3)
    assert rows.start(row_id, "w3") == 4
    assert rows.lost_attempts(row_id, 4) == 2
    for move in ("hand_back", "succeed", "fail"):
        with pytest.raises(FencedError):
            make(store, kind, move, attempt=3)
    with pytest.raises(FencedError):
        rows.lost_attempts(row_id, 3)
    KINDS[kind].succeed(store, 4)


@pytest.mark.parametrize("kind", KINDS)
def test_the_sweeper_sees_rows_that_are_not_in_the_queue_and_rows_in_progress(
    store: Store, kind: str
) -> None:
    KINDS[kind].add(store)
    rows, task = rows_of(store, kind), KINDS[kind].task
    assert rows.task(task.id) == task
    assert (rows.unenqueued(0), rows.unenqueued(3600), rows.enqueued(0)) == ((task,), (), ())
    rows.mark_enqueued(task.id)
    assert (rows.unenqueued(0), rows.enqueued(0), rows.enqueued(3600)) == ((), (task,), ())
    assert rows.enqueued(0, {task.key}) == ()
    rows.start(task.id, WORKER)
    assert rows.enqueued(0) == (task,)
    KINDS[kind].fail(store, 1)
    assert (rows.unenqueued(0), rows.enqueued(0)) == ((), ())


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_row_has_no_task_and_is_not_started(store: Store, kind: str) -> None:
    rows = rows_of(store, kind)
    assert (rows.task("unknown"), rows.start("unknown", WORKER)) == (None, None)


@pytest.mark.parametrize("kind", ["compilation", "invocation"])
@pytest.mark.parametrize("source", JobState)
@pytest.mark.parametrize("target", JobState)
def test_the_database_refuses_every_transition_that_the_contract_does_not_have(
    store: Store, kind: str, source: JobState, target: JobState
) -> None:
    KINDS[kind].add(store)
    for step in PATHS[source.value]:
        make(store, kind, step)
    table = rows_of(store, kind).lifecycle.table
    finished = sa.func.now() if target.final else None
    row = table.c.id == KINDS[kind].task.id
    statement = sa.update(table).where(row).values(state=target.value, finished_at=finished)
    if target is source or target in TRANSITIONS[source]:
        with store.database.write() as connection:
            connection.execute(statement)
        return
    with pytest.raises(sa.exc.IntegrityError), store.database.write() as connection:
        connection.execute(statement)
