"""Queue positions and estimated starts, as tables."""

import math
from collections.abc import Container
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest

from app.queue_position import QueueSnapshot, kept_seconds, queue_place, ranks_by_needs, start_seconds
from bessemer.contract.capability import Capability, Needs, lacks, needs_of
from bessemer.contract.job import Compilation, JobState
from bessemer.contract.queue import QueueName, QueuePlace, TaskKind
from bessemer.contract.request import CompilationRequest
from bessemer.contract.service import A_LIVE_WORKER, RunningTask, Worker
from bessemer.contract.stage import Stage
from bessemer.contract.target import PresetTarget
from bessemer.contract.tenant_turns import Turns
from bessemer.store.queue_port import job_kind
from bessemer.store.rows.queued_jobs import QueuedGroup
from tests.workers import some_worker

OWN = "own"
NO_TURNS = Turns()
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
V4 = "x86_64 x86-64-v4"
PLAIN = Capability(architecture="x86_64", processors={"x86-64-v4": ("avx512f",)}, lacking=("avx512f",))
WIDE = Capability(architecture="x86_64")


class Waits(NamedTuple):
    number: int
    priority: int
    needs: str | None
    kind: TaskKind
    tenant: str


def waits(
    number: int, priority: int = 0, needs: str | None = None, kind: str = "compile", tenant: str = OWN
) -> Waits:
    return Waits(number, priority, needs, TaskKind(kind), tenant)


def job(number: int, priority: int = 0, target: str = "host", stop_after: Stage | None = None) -> Compilation:
    request = CompilationRequest(
        model="0" * 64, target=PresetTarget(preset=target), priority=priority, stop_after=stop_after
    )
    created_at = NOON + timedelta(seconds=number)
    return Compilation(id=f"waiting-{number}", state=JobState.QUEUED, request=request, created_at=created_at)


def worker(name: str, capability: Capability = WIDE, busy_seconds: float | None = None) -> Worker:
    began_at = NOON - timedelta(seconds=busy_seconds or 0)
    task = RunningTask(kind=TaskKind.COMPILE, id="running-1", began_at=began_at)
    running = () if busy_seconds is None else (task,)
    return some_worker(id=name, mcpu="m", running=running, capability=capability, seen_at=NOON)


def placed(
    wanted: Compilation,
    line: tuple[Waits, ...] = (),
    workers: tuple[Worker, ...] = (),
    recent: tuple[float, ...] = (),
    turns: Turns = NO_TURNS,
    most: int | None = None,
) -> QueuePlace:
    in_turn = sorted((*line, itself(wanted)), key=lambda waiting: (-waiting.priority, waiting.number))
    groups = [
        QueuedGroup(
            waiting.tenant, waiting.kind, waiting.needs, waiting.priority, {f"waiting-{waiting.number}": turn}
        )
        for turn, waiting in enumerate(in_turn, 1)
    ]
    return queue_place(OWN, wanted, seen(groups, workers, turns), recent, {OWN: most}.get)


def seen(groups: list[QueuedGroup], workers: tuple[Worker, ...], turns: Turns = NO_TURNS) -> QueueSnapshot:
    return QueueSnapshot(groups, ranks_by_needs(groups), workers, NOON, dict.fromkeys(QueueName, turns))


def itself(job: Compilation) -> Waits:
    number = (job.created_at - NOON).seconds
    needs = needs_of(job.request.target)
    return Waits(number, job.request.priority, needs and str(needs), job_kind(job.request), OWN)


@pytest.mark.parametrize(
    ("wanted", "ahead"),
    [
        (job(0), 1),
        (job(5), 3),
        (job(9), 4),
        (job(10, priority=-1), 5),
        (job(9, priority=1), 1),
        (job(9, priority=100), 0),
        (job(9, stop_after=Stage.TRANSLATE), 1),
    ],
    ids=["first", "between", "last", "low", "middle", "high", "quick"],
)
def test_higher_priorities_go_before_and_equals_in_their_order(wanted: Compilation, ahead: int) -> None:
    line = (waits(1), waits(4), waits(6), waits(2, priority=2), waits(7, kind="preflight"))
    found = placed(wanted, (*line, waits(8, priority=-1)), (worker("a"),))
    assert (found.ahead, found.position) == (ahead, ahead + 1)


@pytest.mark.parametrize(("priority", "ahead"), [(1, 1), (0, 3), (-1, 4)])
def test_a_later_job_is_behind_jobs_of_equal_priority(priority: int, ahead: int) -> None:
    groups = [
        QueuedGroup(OWN, TaskKind.COMPILE, None, 1, {"waiting-7": 1}),
        QueuedGroup(OWN, TaskKind.COMPILE, None, 0, {"waiting-2": 2, "waiting-3": 3}),
        QueuedGroup(OWN, TaskKind.COMPILE, None, -1, {"waiting-1": 4}),
    ]
    assert queue_place(OWN, job(9, priority), seen(groups, (worker("a"),)), ()).ahead == ahead


@pytest.mark.parametrize(
    ("target", "workers", "ahead", "takers"),
    [
        ("host", (worker("plain", PLAIN),), 1, 1),
        ("host", (worker("plain", PLAIN), worker("wide")), 3, 2),
        ("x86-64-v4", (worker("plain", PLAIN), worker("wide")), 3, 1),
        ("x86-64-v4", (worker("plain", PLAIN),), 2, 0),
    ],
)
def test_only_jobs_for_the_same_workers_are_ahead(
    target: str, workers: tuple[Worker, ...], ahead: int, takers: int
) -> None:
    line = (waits(1), waits(2, needs=V4), waits(3, needs=V4))
    found = placed(job(9, target=target), line, workers)
    assert (found.ahead, found.workers) == (ahead, takers)


@pytest.mark.parametrize(
    ("ahead", "busy", "recent", "seconds"),
    [
        (0, [], [10.0], None),
        (0, [0.0], [], 0.0),
        (1, [0.0, 0.0], [], 0.0),
        (2, [0.0, 0.0], [], None),
        (0, [4.0], [10.0], 4.0),
        (3, [4.0], [10.0], 34.0),
        (1, [4.0, 7.0], [10.0], 7.0),
        (2, [4.0, 7.0], [10.0], 14.0),
        (10_000, [0.0], [1.0, 2.0, 9.0], 20_000.0),
        (0, [math.inf], [10.0], None),
        (1, [math.inf, 4.0], [10.0], 14.0),
    ],
)
def test_the_start_follows_from_jobs_ahead_workers_and_past_durations(
    ahead: int, busy: list[float], recent: list[float], seconds: float | None
) -> None:
    assert start_seconds(ahead, busy, recent) == seconds


@pytest.mark.parametrize(
    ("others", "seconds"),
    [
        ((), 10.0),
        ((waits(1, tenant="b"),), 30.0),
        ((waits(1, tenant="b"), waits(2, tenant="b"), waits(3, priority=9, tenant="b")), 30.0),
        ((waits(1, tenant="b"), waits(2, tenant="c")), 50.0),
        ((waits(1, tenant="b"), waits(2, kind="preflight", tenant="c")), 30.0),
    ],
    ids=["alone", "another", "a longer line of the other", "two others", "another queue"],
)
def test_another_tenant_costs_a_turn_for_each_of_the_tenants_own_jobs(
    others: tuple[Waits, ...], seconds: float
) -> None:
    found = placed(job(9), (waits(8), *others), (worker("a"),), (10.0,))
    assert (found.position, found.ahead, found.estimated_start_seconds) == (2, 1, seconds)


@pytest.mark.parametrize(
    ("turns", "seconds"),
    [
        (Turns(running={"b": 1}), 0.0),
        (Turns(running={OWN: 1}), 10.0),
        (Turns(served={"b": 2, OWN: 1}), 0.0),
        (Turns(served={"b": 1, OWN: 2}), 10.0),
        (Turns(running={"b": 2, OWN: 1}, served={"b": 1, OWN: 2}), 0.0),
    ],
    ids=["it runs more", "it runs fewer", "it was served later", "it was served earlier", "running decides"],
)
def test_another_tenant_goes_before_the_first_job_only_if_its_turn_is_earlier(
    turns: Turns, seconds: float
) -> None:
    found = placed(job(9), (waits(1, tenant="b"), waits(2, tenant="b")), (worker("a"),), (10.0,), turns)
    assert found.estimated_start_seconds == seconds


@pytest.mark.parametrize(
    ("running", "most", "line", "seconds"),
    [
        (0, 1, (), 0.0),
        (1, 1, (), 10.0),
        (1, 2, (), 0.0),
        (1, 2, (waits(1),), 10.0),
        (2, 2, (waits(1), waits(2)), 20.0),
        (0, 0, (), None),
    ],
)
def test_a_tenant_at_its_limit_waits_for_its_own_jobs(
    running: int, most: int, line: tuple[Waits, ...], seconds: float | None
) -> None:
    workers = tuple(map(worker, "abcdef"))
    found = placed(job(9), line, workers, (10.0,), Turns(running={OWN: running}), most)
    assert found.estimated_start_seconds == seconds
    assert f", {most} of your tenant's at a time" in found.explanation


@pytest.mark.parametrize("count", [1, 7, 100])
def test_a_place_does_not_tell_how_many_jobs_another_tenant_has(count: int) -> None:
    line = tuple(waits(number, priority=number % 3, tenant="b") for number in range(10, 10 + count))
    alone = (waits(10, tenant="b"),)
    places = [placed(job(9), (waits(8), *others), (worker("a"),), (10.0,)) for others in (line, alone)]
    assert places[0] == places[1]
    assert places[0].explanation == (
        "estimate: 1 ahead, 1 worker, taking turns with other tenants, and the last compile took 10.0 s"
    )


def test_the_remaining_time_of_a_running_job_follows_from_longer_past_jobs() -> None:
    recent = (10.0, 20.0, 30.0)
    estimates = [
        placed(job(1), (), (worker("a", busy_seconds=busy),), recent).estimated_start_seconds
        for busy in (5.0, 25.0, 99.0)
    ]
    assert estimates == [15.0, 5.0, None]


def test_a_job_behind_one_that_outlasts_all_recent_ones_has_no_estimate() -> None:
    busy, free = worker("a", busy_seconds=99.0), worker("b")
    alone = placed(job(1), (), (busy,), (10.0,))
    assert (
        alone.explanation
        == "no estimate: 0 ahead, 1 worker, busy for longer than any recent compilation took"
    )
    assert placed(job(1), (), (busy, free), (10.0,)).estimated_start_seconds == 0.0
    assert placed(job(1), (), (busy,)).estimated_start_seconds is None


def test_the_text_marks_an_estimate_or_explains_its_absence() -> None:
    two = (worker("a"), worker("b"))
    assert placed(job(9), (waits(1),), two, (3.0, 5.0)).explanation == (
        "estimate: 1 ahead, 2 workers, and the last 2 took, in the median, 4.0 s"
    )
    assert "no compilation has ended yet" in placed(job(9), (), two).explanation
    assert placed(job(9)).explanation == "no estimate: no live worker can take it"


def test_a_job_without_a_capable_worker_names_what_it_waits_for() -> None:
    assert placed(job(1)).waiting_for == A_LIVE_WORKER
    assert placed(job(1), (), (worker("a", PLAIN),)).waiting_for is None
    wanted = placed(job(1, target="x86-64-v4"), (), (worker("a", PLAIN),))
    assert wanted.waiting_for == f"a worker whose processor can run code for {V4}: a (m) lacks avx512f"
    assert wanted.estimated_start_seconds is None
    alike = placed(job(1, target="x86-64-v4"), (), (worker("a", PLAIN), worker("b", PLAIN)))
    assert str(alike.waiting_for).endswith(": a (m), b (m) lack avx512f")
    assert placed(job(1, target="x86-64-v4"), (), (worker("a", PLAIN), worker("b"))).waiting_for is None


def test_the_needs_of_waiting_jobs_are_compared_with_workers_once_for_all_positions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = [
        QueuedGroup("other", TaskKind.COMPILE, f"x86_64 x86-64 +f{number}", 0, {f"theirs-{number}": number})
        for number in range(30)
    ]
    snapshot, compared = seen(groups, (worker("a"), worker("b"))), []

    def count(capability: Capability, needs: Needs | None, on_devices: Container[str]) -> tuple[str, ...]:
        compared.append(needs)
        return lacks(capability, needs, on_devices)

    monkeypatch.setattr("app.queue_position.lacks", count)
    for number in range(5):
        assert queue_place(OWN, job(number), snapshot, ()).ahead == 0
    assert len(compared) == 2 * len(groups)


def test_a_worker_takes_nothing_from_a_queue_it_does_not_listen_to() -> None:
    deaf = worker("a").model_copy(update={"queues": (QueueName.QUICK,)})
    place = placed(job(1), (), (deaf,))
    assert place.workers == 0
    assert place.waiting_for == "a worker that takes tasks of the queue 'compile': no live worker does"


@pytest.mark.parametrize(("read", "kept"), [(0.0, 0.5), (0.01, 0.5), (0.1, 2.0), (0.25, 5.0), (60.0, 5.0)])
def test_a_snapshot_that_took_long_to_read_is_kept_longer_but_not_for_minutes(
    read: float, kept: float
) -> None:
    assert kept_seconds(read) == kept
