"""The rows of every kind move as one table says, on both databases."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import sqlalchemy as sa
from store_samples import ARTIFACTS, DIGEST, FIGURES, INSPECTION, TARGET, a_problem, a_request, a_worker

from bessemer.contract.access import DEFAULT_TENANT
from bessemer.contract.job import TRANSITIONS, JobState
from bessemer.store.errors import FencedError
from bessemer.store.queue_port import Task, TaskKind
from bessemer.store.rows.lifecycle import Attempt, Rows
from bessemer.store.store import Store
from tests.tenant_data import inspection_of, own, started

JOB, INVOCATION, WORKER = "job-00000001", "invocation-1", "worker-1"


@dataclass(frozen=True)
class Kind:
    """How to make and end the rows of one kind; ``task`` finds the row's task.

    ``succeed`` and ``fail`` get the row's id and an attempt.
    """

    task: Callable[[Store], Task]
    add: Callable[[Store], object]
    cancel: Callable[[Store], object]
    succeed: Callable[[Store, str, Attempt], object]
    fail: Callable[[Store, str, Attempt], object]


def add_invocation(store: Store) -> None:
    own(store).jobs.submit(JOB, a_request())
    own(store).invocations.submit(INVOCATION, JOB, DIGEST, 10, 3)


KINDS = {
    "compilation": Kind(
        lambda _: Task(TaskKind.COMPILE, JOB),
        lambda store: own(store).jobs.submit(JOB, a_request()),
        lambda store: own(store).jobs.request_cancel(JOB),
        lambda store, row_id, attempt: store.jobs.succeed(row_id, attempt, TARGET, True, FIGURES, ARTIFACTS),
        lambda store, row_id, attempt: store.jobs.fail(row_id, attempt, a_problem()),
    ),
    "inspection": Kind(
        lambda store: inspection_of(store, DIGEST),
        lambda store: own(store).models.add(DIGEST, 1),
        lambda _: None,
        lambda store, row_id, attempt: store.models.finish_inspection(row_id, attempt, INSPECTION),
        lambda store, row_id, attempt: store.models.finish_inspection(row_id, attempt, a_problem()),
    ),
    "invocation": Kind(
        lambda _: Task(TaskKind.INVOKE, INVOCATION),
        add_invocation,
        lambda store: own(store).invocations.request_cancel(INVOCATION),
        lambda store, row_id, attempt: store.invocations.succeed(row_id, attempt, 2, None, (), ARTIFACTS[0]),
        lambda store, row_id, attempt: store.invocations.fail(row_id, attempt, a_problem()),
    ),
}
NEVER = Attempt(1, DEFAULT_TENANT, "0" * 32)
"""An attempt that never began."""

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
    return store.rows(KINDS[kind].task(store).kind)


def make(store: Store, kind: str, move: str, attempt: Attempt) -> Attempt:
    """Make a move, and return the attempt that the next one is made by: the first."""
    row_id, rows = KINDS[kind].task(store).id, rows_of(store, kind)
    if move == "start":
        begun = rows.start(row_id, WORKER)
        return begun if attempt is NEVER and begun is not None else attempt
    if move in ("succeed", "fail"):
        getattr(KINDS[kind], move)(store, row_id, attempt)
    elif move == "request_cancel":
        KINDS[kind].cancel(store)
    else:
        getattr(rows, move)(row_id, attempt)
    return attempt


def situation(store: Store, kind: str) -> str:
    rows = rows_of(store, kind)
    columns, life = rows.lifecycle.table.c, rows.lifecycle
    with store.database.read() as connection:
        query = sa.select(rows.lifecycle.table).where(life.named(KINDS[kind].task(store).id))
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
    attempt = NEVER
    for step in PATHS[before]:
        attempt = make(store, kind, step, attempt)
    assert situation(store, kind) == before
    if after == FENCED:
        with pytest.raises(FencedError):
            make(store, kind, move, attempt)
        assert situation(store, kind) == before
    else:
        make(store, kind, move, attempt)
        assert situation(store, kind) == after


@pytest.mark.parametrize("kind", KINDS)
def test_an_attempt_in_flight_is_lost_and_fenced_out_by_the_next(store: Store, kind: str) -> None:
    KINDS[kind].add(store)
    rows, row_id = rows_of(store, kind), KINDS[kind].task(store).id
    attempts = [started(rows, row_id, worker) for worker in ("w1", "w2", "w2")]
    assert [attempt.number for attempt in attempts] == [1, 2, 3]
    assert rows.lost_attempts(row_id, attempts[-1]) == 2
    rows.hand_back(row_id, attempts[-1])
    last = started(rows, row_id, "w3")
    assert (last.number, rows.lost_attempts(row_id, last)) == (4, 2)
    for move in ("hand_back", "succeed", "fail"):
        with pytest.raises(FencedError):
            make(store, kind, move, attempts[-1])
    with pytest.raises(FencedError):
        rows.lost_attempts(row_id, attempts[-1])
    KINDS[kind].succeed(store, row_id, last)


@pytest.mark.parametrize("move", ["hand_back", "succeed", "fail", "cancel_finished"])
def test_an_attempt_at_a_deleted_job_does_not_own_the_job_that_has_its_id_now(
    store: Store, move: str
) -> None:
    def submit_and_start() -> Attempt:
        KINDS["compilation"].add(store)
        return started(store.jobs, JOB, WORKER)

    frozen = submit_and_start()
    own(store).jobs.request_cancel(JOB)
    assert own(store).jobs.delete(JOB)
    latest = submit_and_start()
    assert (frozen.number, latest.number) == (1, 1)
    with pytest.raises(FencedError):
        make(store, "compilation", move, frozen)
    store.jobs.succeed(JOB, latest, TARGET, True, FIGURES, ARTIFACTS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_sweeper_sees_rows_that_are_not_in_the_queue_and_rows_in_progress(
    store: Store, kind: str
) -> None:
    KINDS[kind].add(store)
    rows, task = rows_of(store, kind), KINDS[kind].task(store)
    assert (rows.unenqueued(0), rows.unenqueued(3600), rows.enqueued(0)) == ((task,), (), ())
    rows.mark_enqueued(task.id)
    assert (rows.unenqueued(0), rows.enqueued(0), rows.enqueued(3600)) == ((), (task,), ())
    assert rows.enqueued(0, {task.key}) == ()
    attempt = started(rows, task.id, WORKER)
    assert rows.enqueued(0) == (task,)
    KINDS[kind].fail(store, task.id, attempt)
    assert (rows.unenqueued(0), rows.enqueued(0)) == ((), ())


def test_an_unknown_row_is_not_started(store: Store) -> None:
    assert [rows.start("unknown", WORKER) for rows in store.task_rows] == [None, None, None]


@pytest.mark.parametrize("kind", ["compilation", "invocation"])
@pytest.mark.parametrize("source", JobState)
@pytest.mark.parametrize("target", JobState)
def test_the_database_refuses_every_transition_that_the_contract_does_not_have(
    store: Store, kind: str, source: JobState, target: JobState
) -> None:
    KINDS[kind].add(store)
    attempt = NEVER
    for step in PATHS[source.value]:
        attempt = make(store, kind, step, attempt)
    table = rows_of(store, kind).lifecycle.table
    finished = sa.func.now() if target.final else None
    row = table.c.id == KINDS[kind].task(store).id
    statement = sa.update(table).where(row).values(state=target.value, finished_at=finished)
    if target is source or target in TRANSITIONS[source]:
        with store.database.write() as connection:
            connection.execute(statement)
        return
    with pytest.raises(sa.exc.IntegrityError), store.database.write() as connection:
        connection.execute(statement)
