"""A worker serves every tenant, and keeps their files apart."""

import io
from typing import Any

import numpy as np
import sqlalchemy as sa
from worker_samples import submit, upload

from bessemer.contract.job import JobState
from bessemer.contract.model import ModelState
from bessemer.store.queue_port import Task, TaskKind
from bessemer.store.rows.tables import WORKER_TIME
from tests.tenant_data import inspection_of, own

Rig = Any
TENANT = "alpha"


def test_a_tenants_tasks_read_and_write_only_its_own_files(rig: Rig) -> None:
    alpha, supervisor = rig.store.for_tenant(TENANT), rig.supervisor()
    digest = upload(rig.store, rig.folder, "return 'a model of alpha'", TENANT)
    alpha.models.add(digest, 1)
    rig.runner.run(supervisor.handle(inspection_of(rig.store, digest, TENANT)))
    assert alpha.models.get(digest).state is ModelState.READY

    rig.runner.run(supervisor.handle(submit(rig.store, "job-of-alpha", digest, tenant=TENANT)))
    job = alpha.jobs.get("job-of-alpha")
    assert job.state is JobState.SUCCEEDED

    file = io.BytesIO()
    np.savez(file, input=np.linspace(0.125, 7.75, 8, dtype=np.float32))  # inputs of no other test
    (rig.folder / "inputs.npz").write_bytes(file.getvalue())
    inputs = alpha.artifacts.put_file(rig.folder / "inputs.npz")
    alpha.invocations.submit("run-of-alpha", job.id, inputs.digest, inputs.size_bytes, 0)
    rig.runner.run(supervisor.handle(Task(TaskKind.INVOKE, "run-of-alpha")))
    run = alpha.invocations.get("run-of-alpha")
    assert run.state is JobState.SUCCEEDED

    with rig.store.database.read() as connection:
        times = connection.execute(sa.select(WORKER_TIME.c.tenant, WORKER_TIME.c.seconds)).all()
    assert [seconds > 0 for tenant, seconds in times if tenant == TENANT] == [True]

    kept = [digest, run.inputs, run.artifact.digest, job.artifacts[0].digest]
    assert all(map(alpha.artifacts.size, kept))
    assert not any(map(own(rig.store).artifacts.size, kept))


def test_a_job_finds_no_model_of_another_tenant(rig: Rig) -> None:
    digest = upload(rig.store, rig.folder, "return 'another model of alpha'", TENANT)
    row = rig.handle(submit(rig.store, "job-of-another", digest))
    assert (row.state, row.problem.code) == (JobState.FAILED, "model-damaged")
