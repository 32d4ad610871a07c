"""A worker at best effort, in an environment with a package whose entry points take part in its jobs."""

import shutil
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import installed_extension
import pytest
import torch
from torch import nn
from worker_process import WITHOUT_LANDLOCK, WorkerSetup, setup
from worker_samples import wait_until

from bessemer.contract.job import Compilation, JobState
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import Report
from bessemer.contract.request import CompilationRequest
from bessemer.contract.sandbox import Layer
from bessemer.store.queue_port import Task, TaskKind
from tests.tenant_data import own

METADATA = "Metadata-Version: 2.1\nName: installed-extension\nVersion: 1.0\n"
GROUPS = {
    "translation_rules": "RULES",
    "rewrites": "REWRITES",
    "legalizations": "LEGALIZATIONS",
    "kernels": "KERNELS",
    "schedule_spaces": "SPACES",
    "functions": "FUNCTIONS",
    "search_strategies": "STRATEGIES",
}


class Custom(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.sample.triple(x.neg().neg()).tanh()


def make_environment(folder: Path) -> Path:
    """An environment with everything that this one has, and a package; returns its Python."""
    venv.create(folder, symlinks=True, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    shutil.copy(Path(installed_extension.__file__), packages)
    metadata = packages / "installed_extension-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(METADATA)
    points = (f"[bessemer.{group}]\nsample = installed_extension:{name}\n" for group, name in GROUPS.items())
    (metadata / "entry_points.txt").write_text("".join(points))
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerSetup]:
    """A worker in an environment of its own, which no slot's user can read, on a kernel without Landlock."""
    folder = tmp_path_factory.mktemp("extended")
    python = make_environment(folder / "environment")
    with setup(folder) as prepared, prepared.worker((str(python), *WITHOUT_LANDLOCK), "best-effort"):
        yield prepared


def compile_with(prepared: WorkerSetup, folder: Path, name: str, **fields: Any) -> Compilation:
    path = folder / "custom.pt2"
    torch.export.save(torch.export.export(Custom().eval(), (torch.randn(16, 8),)), path)
    digest = own(prepared.store).artifacts.put_file(path).digest
    request = CompilationRequest.model_validate(
        {"model": digest, "target": "host", "benchmark": {"seconds": 0.05}, **fields}
    )
    own(prepared.store).jobs.submit(name, request)
    prepared.queue.enqueue(Task(TaskKind.COMPILE, name))

    def row() -> Compilation:
        found = own(prepared.store).jobs.get(name)
        assert found is not None
        return found

    wait_until(lambda: row().state.final)
    return row()


def test_at_best_effort_the_loss_of_a_layer_is_reported(prepared: WorkerSetup) -> None:
    sandbox = prepared.live().sandbox
    assert Layer.LANDLOCK in sandbox.lost
    assert Layer.SECCOMP not in sandbox.lost
    assert not sandbox.complete


def test_a_rule_a_rewrite_a_legalization_and_a_space_of_a_package_take_part(
    prepared: WorkerSetup, tmp_path: Path
) -> None:
    spaces = {"sample_tanh": "sample-rows"}
    job = compile_with(
        prepared,
        tmp_path,
        "extended",
        optimize={"enable": ["sample_negations"], "fusion": "none"},
        tune={"trials": 1, "spaces": spaces, "force": True},
    )
    assert job.problem is None
    assert (job.state, job.verified) == (JobState.SUCCEEDED, True)

    (digest,) = (one.digest for one in job.artifacts if one.name == "report.json")
    own(prepared.store).artifacts.fetch_to(digest, tmp_path / "report.json")
    report = Report.model_validate_json((tmp_path / "report.json").read_text())
    assert report.operators == {"negative": 2, "multiply": 1, "tanh": 1}
    assert {one.name: one.count for one in report.rewrites}["sample_negations"] == 1
    assert report.tune is not None
    assert [(task.name, task.space, task.kept) for task in report.tune.tasks] == [
        ("sample_tanh", "sample-rows", True)
    ]


def test_a_kernel_of_a_package_is_known(prepared: WorkerSetup, tmp_path: Path) -> None:
    job = compile_with(prepared, tmp_path, "unlinked", kernels={"tanh": "sample"})
    assert job.problem is not None
    assert job.problem.code is ErrorCode.KERNEL_UNAVAILABLE
    assert "the kernel 'sample' for 'tanh' is not compiled" in job.problem.detail


def test_a_wrong_name_ends_a_preflight_before_its_model_is_opened(
    prepared: WorkerSetup, tmp_path: Path
) -> None:
    spaces = {"*": "sample-row"}
    job = compile_with(
        prepared, tmp_path, "misspelled", stop_after="translate", tune={"trials": 1, "spaces": spaces}
    )
    assert job.problem is not None
    assert job.problem.code is ErrorCode.SPACE_UNKNOWN
    assert "did you mean 'sample-rows'?" in job.problem.detail
    assert job.problem.stage is None
