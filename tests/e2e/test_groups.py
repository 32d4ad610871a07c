"""One model compiled for several targets at once."""

from pathlib import Path

import httpx

from bessemer.client import Client
from bessemer.contract.job import JobState
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import Execution
from bessemer.contract.stage import Stage

TARGETS = ["host", "x86-64-v2", "aarch64"]


def test_every_target_gets_its_own_verified_library(service: str, model: Path, tmp_path: Path) -> None:
    with Client(service) as client:
        emulates = any("aarch64" in worker.capability.programs for worker in client.workers().items)
        targets = TARGETS if emulates else TARGETS[:2]
        group = client.submit_group(model, targets=targets).wait()
        assert group.state is JobState.SUCCEEDED
        comparison = group.compare()
        folders = [job.download(tmp_path / job.id) for job in group.jobs]
        html = {"Accept": "text/html"}
        page = httpx.get(
            f"{service}/v1/groups/{group.id}/report", headers=html, follow_redirects=True, timeout=60
        )
    assert comparison.same_reference
    expected = [Execution.NATIVE, Execution.NATIVE, Execution.EMULATED][: len(targets)]
    assert [result.execution for result in comparison.items] == expected
    assert [result.latency is not None for result in comparison.items] == [
        execution is Execution.NATIVE for execution in expected
    ]
    assert all(result.error_share is not None and result.error_share <= 1 for result in comparison.items)
    assert len({(folder / "model.so").read_bytes() for folder in folders}) == len(targets)
    assert all(f">{target}</td>" in page.text for target in targets)


def test_a_target_that_fails_leaves_the_others_alone(service: str, model: Path) -> None:
    with Client(service) as client:
        group = client.submit_group(
            model, targets=["host", "aarch64"], kernels={"linear": "openblas"}, stop_after=Stage.BUILD
        )
        emulates = any("aarch64" in worker.capability.programs for worker in client.workers().items)
        if not emulates:
            group.jobs[1].cancel()
        native, foreign = group.wait().document.items
    assert native.state is JobState.SUCCEEDED
    assert foreign.state is (JobState.FAILED if emulates else JobState.CANCELLED)
    assert not emulates or (foreign.problem and foreign.problem.code is ErrorCode.KERNEL_UNAVAILABLE)
