"""A search whose worker is killed goes on, its records serve later compilations, and its best can be kept."""

import io
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa
import torch
from torch import fx, nn
from worker_process import WorkerSetup, setup
from worker_samples import wait_until

from bessemer.bundle.manifest import REPORT
from bessemer.contract.access import DEFAULT_TENANT
from bessemer.contract.base import now
from bessemer.contract.cost_model import Judgement, LearnedCostModel, unpacked
from bessemer.contract.job import Compilation, EventType, JobState
from bessemer.contract.options import BenchmarkOptions, SearchEnd, TuneOptions
from bessemer.contract.records import JudgedTrial, SearchScope, TuningRecord
from bessemer.contract.report import Report
from bessemer.contract.request import CompilationRequest
from bessemer.contract.tensor import TensorSpec
from bessemer.store.queue_port import Task, TaskKind
from bessemer.store.rows.tables import JOB_TRIALS, TUNING_RECORDS
from tests.tenant_data import own
from worker.compiler.tuning.cost_model.trees import CostModel, FamilyModel, write_model
from worker.compiler.tuning.cost_model.version import FEATURES

TRIALS = 40
SEARCHED, SERVED, STOPPED, RANKED = "searched-1", "served-001", "stopped-01", "ranked-001"


class Killed(NamedTuple):
    """A search whose worker was killed, and the number of its trials then."""

    ready: WorkerSetup
    job: Compilation
    trials: int


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    """A search that another worker has finished, and that worker."""
    with setup(tmp_path_factory.mktemp("records")) as ready:
        submit(ready, SEARCHED, tmp_path_factory, trials=TRIALS, publish_early=True)
        with ready.worker(worker_id="killed") as worker:
            wait_until(lambda: trials_of(ready, SEARCHED) >= 8)
            worker.kill()
        trials = trials_of(ready, SEARCHED)
        with ready.worker(worker_id="successor"):
            yield Killed(ready, ended(ready, SEARCHED), trials)


def submit(
    ready: WorkerSetup, job_id: str, folders: pytest.TempPathFactory, **tune: Any
) -> CompilationRequest:
    torch.manual_seed(0)
    file = io.BytesIO()
    torch.save(fx.symbolic_trace(nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 32))), file)
    path = folders.mktemp("model") / "model"
    path.write_bytes(file.getvalue())
    request = CompilationRequest(
        model=own(ready.store).artifacts.put_file(path).digest,
        target={"preset": "host", "cores": 2},  # type: ignore[arg-type]
        inputs=(TensorSpec(name="input", shape=(32, 64)),),
        benchmark=BenchmarkOptions(seconds=0.05),
        tune=TuneOptions(**tune),
    )
    own(ready.store).jobs.submit(job_id, request)
    ready.queue.enqueue(Task(TaskKind.COMPILE, job_id))
    return request


def trials_of(ready: WorkerSetup, job_id: str) -> int:
    count = sa.select(sa.func.count()).select_from(JOB_TRIALS).where(JOB_TRIALS.c.job == job_id)
    with ready.store.database.read() as connection:
        return int(connection.execute(count).scalar_one())


def row_of(ready: WorkerSetup, job_id: str) -> Compilation:
    row = own(ready.store).jobs.get(job_id)
    assert row is not None
    return row


def ended(ready: WorkerSetup, job_id: str) -> Compilation:
    wait_until(lambda: row_of(ready, job_id).state.final)
    return row_of(ready, job_id)


def report_of(ready: WorkerSetup, job: Compilation) -> Report:
    (digest,) = (artifact.digest for artifact in job.artifacts if artifact.name == REPORT)
    return Report.read_json(b"".join(own(ready.store).artifacts.stream(digest)))


def records_of(ready: WorkerSetup) -> tuple[TuningRecord, ...]:
    return own(ready.store).records.page(200).items


def test_the_next_worker_goes_on_with_every_trial_of_the_killed_one(killed: Killed) -> None:
    assert killed.job.state is JobState.SUCCEEDED, killed.job.problem
    assert killed.job.attempt == 2
    tune = report_of(killed.ready, killed.job).tune
    assert tune is not None
    assert tune.stored is not None
    assert tune.stored.restored_trials == killed.trials
    assert tune.trials == TRIALS
    assert trials_of(killed.ready, SEARCHED) == 0


def test_a_cost_model_can_learn_from_what_the_search_measured(killed: Killed) -> None:
    stored = killed.ready.store.cost_models.training_set(DEFAULT_TENANT, FEATURES)
    functions = [unpacked(each) for each in stored.packed]
    assert {function.family for function in functions} == {"matmul"}
    assert {function.source for function in functions} <= {
        record.workload for record in records_of(killed.ready)
    }
    assert sum(len(function.seconds) for function in functions) >= killed.trials


def test_the_tenants_own_cost_model_ranks_the_plans_of_its_searches(
    killed: Killed, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = preferring_last_plans()
    learned = LearnedCostModel(
        version=model.version, trained_at=now(), functions=9, plans=99, families=model.accuracy
    )
    killed.ready.store.cost_models.put(DEFAULT_TENANT, FEATURES, learned, write_model(model), now())
    submit(killed.ready, RANKED, tmp_path_factory, trials=4, from_records=False)
    job = ended(killed.ready, RANKED)
    assert job.state is JobState.SUCCEEDED, job.problem and job.problem.detail
    tune = report_of(killed.ready, job).tune
    assert tune is not None
    assert tune.rankers == {f"learned {model.version}": 2}


def preferring_last_plans() -> CostModel:
    """A model that prefers the last plans of products, and claims that it was better with them."""
    claims = {"functions": 9, "pairs": 90, "accuracy": 0.9, "analytic_accuracy": 0.8}
    regrets = {"regret": 0.0, "analytic_regret": 0.1}
    judged = tuple(
        Judgement(kind=f"x86_64 {bits} parallel", **claims, **regrets)  # type: ignore[arg-type]
        for bits in (256, 512)
    )
    family = FamilyModel(family="matmul", prior={"rank": 1.0}, features=(), trees=(), judged=judged)
    return CostModel(features_version=FEATURES, data="0" * 64, functions=9, plans=99, families=(family,))


def test_records_that_won_serve_a_compilation_without_trials(
    killed: Killed, tmp_path_factory: pytest.TempPathFactory
) -> None:
    best = {record.workload: record for record in reversed(ran(killed.ready))}
    judge(killed.ready, *best.values())
    submit(killed.ready, SERVED, tmp_path_factory)
    job = ended(killed.ready, SERVED)
    tune = report_of(killed.ready, job).tune
    assert job.verified
    assert tune is not None
    assert tune.stored is not None
    assert (tune.trials, tune.stored.hits, tune.stored.misfits) == (0, len(best), 0)


def ran(ready: WorkerSetup) -> list[TuningRecord]:
    """The records with times, the fastest first."""
    return sorted(
        (record for record in records_of(ready) if record.seconds), key=lambda record: record.seconds or 0.0
    )


def judge(ready: WorkerSetup, *records: TuningRecord) -> None:
    traces = sa.select(TUNING_RECORDS.c.id, TUNING_RECORDS.c.trace_digest, TUNING_RECORDS.c.tvm_target)
    with ready.store.database.read() as connection:
        rows = {row.id: row for row in connection.execute(traces)}
    for record in records:
        scope = SearchScope(
            target=record.target,
            threads=record.threads,
            compiler=record.compiler,
            tvm_target=rows[record.id].tvm_target,
        )
        won = JudgedTrial(workload=record.workload, digest=rows[record.id].trace_digest, won=True)
        ready.store.records.judge(DEFAULT_TENANT, scope, [won])


def test_a_search_that_ends_early_delivers_its_best_and_answers_no_later_request(
    killed: Killed, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ready = killed.ready
    submit(ready, STOPPED, tmp_path_factory, seconds=600.0, from_records=False, publish_early=True)
    wait_until(lambda: trials_of(ready, STOPPED) >= 8)
    asked = own(ready.store).jobs.request_best(STOPPED)
    assert asked is not None
    assert asked.state is JobState.RUNNING
    job = ended(ready, STOPPED)
    tune = report_of(ready, job).tune
    assert (job.state, job.verified) == (JobState.SUCCEEDED, True)
    types = [event.type for event in own(ready.store).jobs.events_after(STOPPED, 0)]
    assert EventType.PUBLISHED in types
    assert tune is not None
    assert tune.ended_by is SearchEnd.STOPPED
    with ready.store.database.read() as connection:
        identity = connection.execute(sa.text("SELECT identity FROM jobs WHERE id = :id"), {"id": STOPPED})
        assert identity.scalar_one() is None


def test_an_export_is_a_database_that_an_import_reads(killed: Killed) -> None:
    exported = own(killed.ready.store).records.export()
    assert len(exported) == len(ran(killed.ready))
    assert all(json.loads(record.trace) and json.loads(record.arguments) for record in exported)
