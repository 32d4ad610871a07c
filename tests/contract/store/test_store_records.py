"""Tuning records, the trials of running jobs, and results that depend on records."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta
from threading import Event
from typing import Any

import pytest
import sqlalchemy as sa
from store_samples import PACKED, SCOPE, TARGET, a_request, a_trial, an_import

from bessemer.contract.access import DEFAULT_TENANT
from bessemer.contract.base import now
from bessemer.contract.job import Compilation, JobState
from bessemer.contract.records import (
    MAX_FAILED_OF_A_KEY,
    MAX_OF_A_KEY,
    NOT_COMPILED,
    WRONG_RESULT,
    JudgedTrial,
    MeasuredTrial,
    RecordFilter,
    SizedFunction,
)
from bessemer.store.errors import FencedError
from bessemer.store.rows import tenant_records, tuning_records
from bessemer.store.rows.lifecycle import Attempt
from bessemer.store.rows.tables import JOB_KEYS, JOB_TRIALS, TUNING_KEYS, TUNING_WORKLOADS
from bessemer.store.rows.tuning_records import Batch, add_records
from bessemer.store.store import Store
from tests.tenant_data import own, started

JOB, LATER = "job-00000001", "job-00000002"
IDENTITY = "1d" * 32
OTHER = "another"


def running(store: Store, job_id: str = JOB, tenant: str = DEFAULT_TENANT) -> Attempt:
    store.for_tenant(tenant).jobs.submit(job_id, a_request())
    return started(store.jobs, job_id)


def add(
    store: Store,
    attempt: Attempt,
    *trials: MeasuredTrial,
    first: int = 0,
    shared: bool = False,
    job: str = JOB,
) -> None:
    batch = Batch(first, trials, {"1": PACKED, "2": PACKED}, elapsed_seconds=1.5, shared=shared)
    store.records.add(job, attempt, SCOPE, batch)


def judge(store: Store, *names: str, won: bool = True, tenant: str = DEFAULT_TENANT) -> None:
    judged = [
        JudgedTrial(workload="1", digest=a_trial(name).digest, won=won, default_seconds=2.0) for name in names
    ]
    store.records.judge(tenant, SCOPE, judged)


def found(store: Store, tenant: str = DEFAULT_TENANT, others: bool = False) -> list[tuple[str, bool]]:
    trials = store.records.find(tenant, {SCOPE.key("1"): "1"}, others)
    return [(trial.trace[3:-6], trial.won) for trial in trials]


def test_records_that_won_come_first_then_the_fastest(store: Store) -> None:
    add(store, running(store), a_trial("slow", 3.0), a_trial("fast", 1.0), a_trial("failed", None))
    assert found(store) == [("fast", False), ("slow", False)]
    judge(store, "slow")
    assert found(store) == [("slow", True), ("fast", False)]
    judge(store, "slow", won=False)
    assert found(store) == [("fast", False), ("slow", False)]


def test_the_best_of_each_key_are_kept_and_the_newest_failures(store: Store) -> None:
    attempt = running(store)
    add(store, attempt, a_trial("slowest", 99.0))
    judge(store, "slowest")
    for number in range(20):
        add(
            store,
            attempt,
            a_trial(f"{number:02}", 20.0 - number),
            a_trial(f"f{number}", None),
            first=2 * number,
        )
    names = [name for name, _ in found(store)]
    assert names == ["slowest", *(f"{number:02}" for number in range(19, 20 - MAX_OF_A_KEY, -1))]
    assert len(own(store).records.page(99).items) == MAX_OF_A_KEY + MAX_FAILED_OF_A_KEY


def test_what_did_not_compile_is_found_by_its_tenant_until_it_runs(store: Store) -> None:
    attempt, keys = running(store), {SCOPE.key("1"): "1"}
    refused = a_trial("bad", None).model_copy(update={"failure": f"{NOT_COMPILED}no such intrinsic"})
    late = a_trial("late", None).model_copy(update={"failure": "the build took longer than 1 s"})
    add(store, attempt, a_trial("good", 1.0), refused, late)
    (failed,) = store.records.find_uncompiled(DEFAULT_TENANT, keys)
    assert (failed.workload, failed.digest) == ("1", refused.digest)
    assert store.records.find_uncompiled("other", keys) == ()
    add(store, attempt, a_trial("bad", 2.0), first=3)
    assert store.records.find_uncompiled(DEFAULT_TENANT, keys) == ()


def test_a_schedule_that_ran_keeps_its_time_unless_its_result_is_wrong(store: Store) -> None:
    attempt = running(store)
    add(store, attempt, a_trial("one", 3.0))
    judge(store, "one")
    add(store, attempt, a_trial("one", None), first=1)
    (record,) = own(store).records.page(9).items
    assert (record.seconds, record.failure, record.won) == (3.0, None, True)
    assert found(store) == [("one", True)]
    wrong = a_trial("one", None).model_copy(update={"failure": f"argument 2 {WRONG_RESULT}: 3 elements"})
    add(store, attempt, wrong, first=2)
    assert found(store) == []


def test_the_same_schedule_is_one_record_with_its_last_time(store: Store) -> None:
    attempt = running(store)
    add(store, attempt, a_trial("one", 3.0), a_trial("one", 2.0))
    judge(store, "one")
    add(store, attempt, a_trial("one", 4.0), first=2)
    (record,) = own(store).records.page(9).items
    assert (record.seconds, record.default_seconds, record.won) == (4.0, 2.0, True)
    assert record.compilation == JOB


def test_trials_of_earlier_attempts_are_found_in_order(store: Store) -> None:
    first = running(store)
    trials = [a_trial(f"{number}", 1.0 if number % 2 else None) for number in range(5)]
    add(store, first, *trials[:3])
    add(store, first, *trials[:3])
    second = started(store.jobs, JOB, "w2")
    with pytest.raises(FencedError):
        add(store, first, *trials[3:], first=3)
    add(store, second, *trials[3:], first=3)
    earlier = store.records.trials(JOB, second, SCOPE)
    assert [trial.trace for trial in earlier.trials] == [trial.trace for trial in trials]
    assert (earlier.count, earlier.elapsed_seconds) == (5, 1.5)
    other = SCOPE.model_copy(update={"threads": 8})
    assert store.records.trials(JOB, second, other).trials == ()


def test_a_job_that_ends_keeps_its_records_and_not_its_trials(store: Store) -> None:
    attempt = running(store)
    add(store, attempt, a_trial("one"))
    store.jobs.succeed(JOB, attempt, TARGET, True, None, ())
    assert found(store) == [("one", False)]
    own(store).jobs.delete(JOB)
    assert found(store) == [("one", False)]


def test_the_trials_of_a_job_that_is_cancelled_go_with_the_next_sweep(store: Store) -> None:
    attempt = running(store)
    add(store, attempt, a_trial("one"))
    other = running(store, LATER)
    add(store, other, a_trial("two"), job=LATER)
    store.jobs.hand_back(JOB, attempt)
    cancelled = own(store).jobs.request_cancel(JOB)
    assert cancelled is not None and cancelled.state is JobState.CANCELLED
    store.records.forget_ended()
    with store.database.read() as connection:
        assert connection.execute(sa.select(JOB_TRIALS.c.job)).scalars().all() == [LATER]


@pytest.mark.parametrize(
    ("shared", "others", "seen"), [(True, True, 1), (True, False, 0), (False, True, 0), (False, False, 0)]
)
def test_tenants_share_records_only_if_both_agree(
    store: Store, shared: bool, others: bool, seen: int
) -> None:
    attempt = running(store)
    add(store, attempt, a_trial("one"), shared=shared)
    judge(store, "one")
    assert found(store, OTHER, others) == [("one", False)] * seen
    assert store.for_tenant(OTHER).records.page(9).items == ()


KIND = "ab" * 32
NEAR = SizedFunction(workload="9", kinds=(KIND,), extents=(64, 56))


def sized(name: str, workload: str, *extents: int, **changed: Any) -> MeasuredTrial:
    """A trial of a function of this kind."""
    return a_trial(name, workload=workload).model_copy(
        update={"kind": KIND, "extents": extents, "default_seconds": 2e-3, **changed}
    )


def near(store: Store, tenant: str = DEFAULT_TENANT, others: bool = False) -> list[tuple[str, str]]:
    found = store.records.find_near(tenant, SCOPE, [NEAR], others)
    return [(trial.workload, trial.trace[3:-6]) for trial in found]


def test_the_best_records_of_the_most_similar_functions_are_found(store: Store) -> None:
    trials = [
        sized("slow", "3", 128, 56, seconds=1.5e-3),
        sized("fast", "3", 128, 56),
        sized("nearer", "4", 64, 50),
        sized("third", "5", 512, 56),
        sized("far", "6", 1 << 20, 56),
        sized("own", "9", 64, 56),
        sized("failed", "7", 64, 56, seconds=None, failure="it crashed"),
        sized("no gain", "8", 64, 56, seconds=3e-3),
        sized("another kind", "10", 64, 56, kind="cd" * 32),
        sized("other loops", "11", 64, 56, 1),
        a_trial("unknown sizes", workload="12"),
    ]
    add(store, running(store), *trials)
    assert near(store) == [("9", "nearer"), ("9", "fast")]


def test_of_a_similar_function_the_record_that_won_counts(store: Store) -> None:
    add(store, running(store), sized("fast", "1", 64, 50), sized("won", "1", 64, 50, seconds=1.5e-3))
    judge(store, "won")
    assert near(store) == [("9", "won")]


@pytest.mark.parametrize("changed", [{"threads": 8}, {"target": "x86_64 znver3"}, {"compiler": "tvm 0.28"}])
def test_similar_functions_are_those_of_the_same_target_threads_and_compiler(
    store: Store, changed: dict[str, Any]
) -> None:
    add(store, running(store), sized("near", "1", 64, 50))
    scope = SCOPE.model_copy(update=changed)
    assert store.records.find_near(DEFAULT_TENANT, scope, [NEAR], others=True) == ()


@pytest.mark.parametrize(
    ("shared", "others", "seen"), [(True, True, 1), (True, False, 0), (False, True, 0), (False, False, 0)]
)
def test_tenants_share_records_of_similar_functions_only_if_both_agree(
    store: Store, shared: bool, others: bool, seen: int
) -> None:
    add(store, running(store), sized("near", "1", 64, 50), shared=shared)
    assert near(store, OTHER, others) == [("9", "near")] * seen


def test_a_record_that_is_measured_again_keeps_its_kind(store: Store) -> None:
    attempt = running(store)
    add(store, attempt, sized("near", "1", 64, 50))
    add(store, attempt, sized("near", "1", kind=None, default_seconds=None), first=1)
    assert near(store) == [("9", "near")]
    (record,) = own(store).records.page(9).items
    assert record.default_seconds == 2e-3


def test_many_writers_of_the_same_keys_lose_nothing(store: Store) -> None:
    jobs = [f"job-1000000{number}" for number in range(4)]
    attempts = [running(store, job) for job in jobs]

    def write(number: int) -> None:
        job, attempt = jobs[number % 4], attempts[number % 4]
        workloads = ("1", "2") if number % 2 else ("2", "1")
        trials = [a_trial(f"{number}-{each}", 1.0 + number, each) for each in workloads]
        add(store, attempt, *trials, first=2 * number, job=job)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(24)))
    assert [name for name, _ in found(store)] == [f"{number}-1" for number in range(MAX_OF_A_KEY)]
    counts = [store.records.trials(job, attempt, SCOPE) for job, attempt in zip(jobs, attempts, strict=True)]
    assert sum(len(each.trials) for each in counts) == 48


def submit_later(store: Store) -> Compilation:
    return own(store).jobs.submit(LATER, a_request(), identities={IDENTITY})


@pytest.mark.parametrize("read", [True, False])
def test_a_result_that_asked_for_records_answers_until_one_of_them_changes_sides(
    store: Store, read: bool
) -> None:
    attempt = running(store)
    add(store, attempt, a_trial("one"))
    if read:
        store.records.note_read(JOB, attempt, [SCOPE.key("1")])
    store.jobs.succeed(JOB, attempt, TARGET, True, None, (), IDENTITY)
    assert submit_later(store).cached
    own(store).jobs.delete(LATER)
    judge(store, "one", tenant=OTHER)
    judge(store, "one", won=False)
    assert submit_later(store).cached
    own(store).jobs.delete(LATER)
    judge(store, "one")
    assert submit_later(store).cached is not read


def test_an_answer_from_an_earlier_result_depends_on_the_same_records(store: Store) -> None:
    attempt = running(store)
    add(store, attempt, a_trial("one"))
    store.records.note_read(JOB, attempt, [SCOPE.key("1")])
    store.jobs.succeed(JOB, attempt, TARGET, True, None, (), IDENTITY)
    submit_later(store)
    judge(store, "one")
    assert not own(store).jobs.submit("job-00000003", a_request(), identities={IDENTITY}).cached


def test_keeping_the_best_asks_a_running_job_and_one_that_has_trials(store: Store) -> None:
    attempt = running(store)
    assert not store.jobs.best_requested(JOB, attempt)
    add(store, attempt, a_trial("one"))
    store.jobs.hand_back(JOB, attempt)
    kept = own(store).jobs.request_best(JOB)
    assert kept is not None
    assert kept.state is JobState.RUNNING
    assert store.jobs.best_requested(JOB, started(store.jobs, JOB))


def test_keeping_the_best_of_a_job_that_measured_nothing_cancels_it(store: Store) -> None:
    own(store).jobs.submit(JOB, a_request())
    kept = own(store).jobs.request_best(JOB)
    assert kept is not None
    assert kept.state is JobState.CANCELLED


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (RecordFilter(), 3),
        (RecordFilter(target="znver4"), 3),
        (RecordFilter(target="sm_90"), 0),
        (RecordFilter(threads=2), 3),
        (RecordFilter(threads=3), 0),
        (RecordFilter(workload="2"), 1),
        (RecordFilter(won=True), 1),
        (RecordFilter(won=False), 2),
        (RecordFilter(since=now() - timedelta(days=1)), 3),
        (RecordFilter(since=now() + timedelta(days=1)), 0),
    ],
)
def test_records_are_listed_exported_and_deleted_by_filters(
    store: Store, wanted: RecordFilter, count: int
) -> None:
    add(store, running(store), a_trial("one"), a_trial("two"), a_trial("three", workload="2"))
    judge(store, "one")
    records = own(store).records
    assert len(records.page(9, None, wanted).items) == count
    assert len(records.export(wanted)) == count
    assert records.delete(wanted) == count
    assert len(records.page(9).items) == 3 - count


def test_pages_go_on_where_they_ended(store: Store) -> None:
    add(store, running(store), *(a_trial(f"{number}") for number in range(5)))
    first = own(store).records.page(3)
    second = own(store).records.page(3, first.next)
    assert len({record.id for record in (*first.items, *second.items)}) == 5
    assert second.next is None


def test_an_export_has_the_modules_of_its_records(store: Store) -> None:
    own(store).records.add((an_import(),), {"1": PACKED}, shared=False)
    (exported,) = own(store).records.export()
    assert (exported.workload, exported.packed, exported.seconds) == ("1", PACKED, 1e-3)
    assert own(store).records.delete() == 1
    assert own(store).records.export() == ()


def test_imported_records_serve_any_compiler_and_have_not_won(store: Store) -> None:
    own(store).records.add((an_import(),), {"1": PACKED}, shared=False)
    assert found(store) == []
    imported = store.records.find(DEFAULT_TENANT, {SCOPE.key_of_imports("1"): "1"}, others=False)
    assert [(trial.trace, trial.won) for trial in imported] == [(an_import().trial.trace, False)]


def test_the_oldest_records_of_a_tenant_with_too_many_go(store: Store) -> None:
    add(store, running(store), *(a_trial(f"{number}", workload=f"{number}") for number in range(5)))
    assert store.records.trim(5) == 0
    assert store.records.trim(3) == 2
    assert len(own(store).records.page(9).items) == 3


def test_of_too_many_records_those_that_won_go_last(store: Store) -> None:
    add(store, running(store), a_trial("won"), *(a_trial(f"{number}", workload="2") for number in range(4)))
    judge(store, "won")
    assert store.records.trim(1) == 4
    assert found(store) == [("won", True)]


def test_new_records_replace_the_oldest_of_a_tenant_at_its_limit(store: Store) -> None:
    attempt = running(store)
    add(store, attempt, a_trial("first"))
    usage = own(store).usage
    limit = usage.record_bytes() + 10
    assert limit == 2 * len(PACKED) + 10 + _size("first")
    for number, name in enumerate(("second", "third"), 2):
        batch = Batch(
            number, (a_trial(name, workload=f"{number}"),), {"9": PACKED}, 1.0, False, limit_bytes=limit
        )
        store.records.add(JOB, attempt, SCOPE, batch)
    assert [each.workload for each in own(store).records.page(9).items] == ["3"]
    assert usage.record_bytes() <= limit
    assert store.for_tenant(OTHER).usage.record_bytes() == 0


def padded(name: str, seconds: float | None = 1.0, workload: str = "1") -> MeasuredTrial:
    """A trial of a function of this name, as large as others."""
    trial = a_trial(name.ljust(12), seconds, workload)
    return trial.model_copy(update={"function": name, "failure": None})


@pytest.mark.parametrize(
    ("room", "kept"),
    [
        (0, []),
        (1, ["new best"]),
        (2, ["new best", "other won"]),
        (3, ["new best", "other won", "own won"]),
        (4, ["new best", "new slow", "other won", "own won"]),
        (5, ["lost", "new best", "new slow", "other won", "own won"]),
        (6, ["lost", "new best", "new failed", "new slow", "other won", "own won"]),
    ],
)
def test_losers_make_room_before_winners(store: Store, room: int, kept: list[str]) -> None:
    earlier, attempt = running(store, LATER), running(store)
    add(
        store,
        earlier,
        padded("own won", 3.0),
        padded("lost", 4.0),
        padded("other won", 5.0, "2"),
        padded("failed", None),
        job=LATER,
    )
    judged = [(padded("own won"), "1"), (padded("other won"), "2")]
    store.records.judge(
        DEFAULT_TENANT,
        SCOPE,
        [JudgedTrial(workload=workload, digest=trial.digest, won=True) for trial, workload in judged],
    )
    new = (padded("new best", 1.0), padded("new slow", 2.0), padded("new failed", None))
    size = len(padded("any").trace) + len(padded("any").arguments) + len(SCOPE.tvm_target)
    limit = 2 * len(PACKED) + room * size
    store.records.add(JOB, attempt, SCOPE, Batch(0, new, {}, 1.0, False, limit_bytes=limit))
    assert sorted(record.function for record in own(store).records.page(9).items) == kept


def _size(name: str) -> int:
    trial = a_trial(name)
    return len(trial.trace) + len(trial.arguments) + len(SCOPE.tvm_target)


def test_a_module_that_a_search_has_named_stays_without_records_for_a_while(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = running(store)
    add(store, attempt, a_trial("one"))
    assert own(store).records.delete() == 1
    store.records.delete_unused()
    store.records.add(JOB, attempt, SCOPE, Batch(1, (a_trial("two"),), {}, 1.0, False))
    assert [each.packed for each in own(store).records.export()] == [PACKED]
    monkeypatch.setattr(tuning_records, "UNUSED_SECONDS", -1.0)
    store.records.delete_unused()
    assert len(own(store).records.export()) == 1
    own(store).records.delete()
    assert own(store).usage.record_bytes() == 0


def test_a_record_may_change_sides_while_a_job_asks_for_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the workers' clocks say: the change counts if it commits after the question."""
    attempt = running(store)
    add(store, attempt, a_trial("one"))
    judge(store, "one")
    store.records.note_read(JOB, attempt, [SCOPE.key("1")])
    store.jobs.succeed(JOB, attempt, TARGET, True, None, (), IDENTITY)
    judge(store, "one")
    assert submit_later(store).cached
    own(store).jobs.delete(LATER)
    monkeypatch.setattr(tuning_records, "now", lambda: now() - timedelta(days=1))
    judge(store, "one", won=False)
    assert not submit_later(store).cached


def while_unused_is_deleted(store: Store, begun: Event, go: Event, write: Callable[[], object]) -> None:
    """Delete what is unused while another transaction is between its first write and its end."""
    with ThreadPoolExecutor(2) as pool:
        writing = pool.submit(write)
        assert begun.wait(20)
        deleting = pool.submit(store.records.delete_unused)
        wait([deleting], 0.5)
        go.set()
        writing.result()
        deleting.result()


def test_a_module_is_not_deleted_while_a_search_adds_a_record_of_its_function(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt, begun, go = running(store), Event(), Event()
    add(store, attempt, a_trial("one"))
    own(store).records.delete()
    with store.database.write() as connection:
        connection.execute(sa.update(TUNING_WORKLOADS).values(named_at=now() - timedelta(days=1)))

    def add_slowly(*given: Any) -> None:
        add_records(*given)
        begun.set()
        go.wait(20)

    monkeypatch.setattr(tuning_records, "add_records", add_slowly)
    batch = Batch(1, (a_trial("two"),), {}, 1.0, False)
    while_unused_is_deleted(store, begun, go, lambda: store.records.add(JOB, attempt, SCOPE, batch))
    assert [each.packed for each in own(store).records.export()] == [PACKED]


def test_a_revision_is_not_deleted_while_a_job_reads_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt, begun, go = running(store), Event(), Event()
    add(store, attempt, a_trial("one"))
    judge(store, "one")
    own(store).records.delete()

    def read_slowly(keys: Sequence[str]) -> Iterator[Sequence[str]]:
        yield keys
        begun.set()
        go.wait(20)

    monkeypatch.setattr(tuning_records, "_batches", read_slowly)
    keys = [SCOPE.key("1")]
    while_unused_is_deleted(store, begun, go, lambda: store.records.note_read(JOB, attempt, keys))
    same = TUNING_KEYS.c.key == JOB_KEYS.c.key
    revisions = sa.select(TUNING_KEYS.c.revision, JOB_KEYS.c.revision).where(same)
    with store.database.read() as connection:
        assert [tuple(row) for row in connection.execute(revisions)] == [(1, 1)]


def test_old_records_expire(store: Store) -> None:
    add(store, running(store), a_trial("one"))
    assert store.records.expire(3600) == 0
    assert store.records.expire(-1) == 1
    assert found(store) == []


def test_a_job_gets_no_more_traces_than_it_can_take(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    trials = [a_trial("won", 3.0), a_trial("fast", 1.0), a_trial("slow", 2.0)]
    add(store, running(store), *trials)
    judge(store, "won")
    monkeypatch.setattr(tuning_records, "MAX_FOUND_CHARACTERS", sum(len(each.trace) for each in trials[:2]))
    assert found(store) == [("won", True), ("fast", False)]


def test_an_export_ends_before_it_fills_the_memory(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    add(store, running(store), a_trial("older"), a_trial("newer"))
    records = own(store).records
    every = records.export()
    monkeypatch.setattr(tenant_records, "MAX_READ_CHARACTERS", every[0].characters)
    assert records.export() == every[:1]


def test_an_import_keeps_the_best_of_each_of_its_functions(store: Store) -> None:
    count = MAX_OF_A_KEY + 2
    imported = [an_import(f"t{i}", float(i + 1), workload=str(w)) for w in (1, 2) for i in range(count)]
    own(store).records.add(imported, {}, shared=False)
    kept = own(store).records.page(100).items
    assert sorted((each.workload, each.seconds) for each in kept) == [
        (workload, float(i + 1)) for workload in ("1", "2") for i in range(MAX_OF_A_KEY)
    ]
