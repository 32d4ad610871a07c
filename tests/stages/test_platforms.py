"""Bundles for other platforms run by their own program: natively, with their own libc, or under emulation."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from bundle_samples import execute, unpacked
from stage_samples import capture_module, make_context, untuned

from bessemer.bundle.manifest import (
    ARCHIVE,
    LIBRARY,
    MANIFEST,
    PROGRAM,
    README,
    REPORT,
    REPORT_PAGE,
    RUNNER,
    Manifest,
)
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import Execution, Report
from bessemer.contract.request import CompilationRequest
from bessemer.contract.target import LINUX_X86_64, ExplicitTarget, PresetTarget, Target, resolve_target
from examples.models import EXAMPLES
from worker.candidates.client import CandidateClient
from worker.compiler.pipeline.benchmark import benchmark
from worker.compiler.pipeline.build import build
from worker.compiler.pipeline.package import package
from worker.compiler.pipeline.verify import verify
from worker.compiler.platforms import launcher_of, libc_of
from worker.compiler.target import compile_target, missing_features
from worker.errors import JobError
from worker.job.compilation import refuse_search
from worker.package.dependencies import SYSTEM, read_dependencies

TARGETS: dict[str, Target] = {
    "x86-64-v2": PresetTarget(preset="x86-64-v2"),
    "x86-64-v3": PresetTarget(preset="x86-64-v3"),
    "x86-64-v4": PresetTarget(preset="x86-64-v4"),
    "aarch64": PresetTarget(preset="aarch64"),
    "riscv64": PresetTarget(preset="riscv64"),
    "x86-64 with musl": ExplicitTarget(mcpu="x86-64-v2", triple="x86_64-unknown-linux-musl"),
    "aarch64 with musl": ExplicitTarget(mcpu="cortex-a72", triple="aarch64-unknown-linux-musl"),
}
CASES = (
    *((label, name) for label in TARGETS for name in ("mlp", "cnn")),
    ("aarch64", "mobilenet_v2"),
    ("riscv64", "bert"),
)


def bundle(name: str, target: Target, folder: Path, server: CandidateClient, **request: Any) -> Path:
    example, context = EXAMPLES[name], make_context(folder, server)
    resolved = resolve_target(target, "x86-64", 2)
    benchmarks = {"baselines": [], "seconds": 0.1}
    captured = capture_module(
        example.build(), *example.example_inputs(), target=resolved, benchmark=benchmarks, **request
    )
    built = build(untuned(captured, context), context)
    package(benchmark(verify(built, context), context), context)
    return unpacked(context.output / ARCHIVE, folder / "bundle")


def report_of(folder: Path) -> Report:
    return Report.read(json.loads((folder / REPORT).read_text()))


@pytest.mark.sampled
@pytest.mark.parametrize(("label", "name"), CASES)
def test_a_bundle_for_a_platform_runs_there(
    label: str, name: str, tmp_path: Path, server: CandidateClient
) -> None:
    target = compile_target(resolve_target(TARGETS[label], "x86-64", 2))
    if target.is_of_this_architecture and (missing := missing_features(target)):
        pytest.skip(f"this processor lacks {', '.join(missing)}")
    launcher = launcher_of(target.resolved.triple)
    if launcher is None:
        pytest.skip(f"this machine cannot run {target.resolved.triple}; see ci/emulators")

    folder = bundle(name, TARGETS[label], tmp_path, server)

    done = execute([*launcher.command, folder / PROGRAM, "--threads", "2"], folder)
    assert done.returncode == 0, done.stderr
    assert ": matches the reference (" in done.stdout
    assert set(read_dependencies(folder / LIBRARY).needed) <= SYSTEM
    assert ("There is no `run.py`" in (folder / README).read_text()) != (folder / RUNNER).exists()
    report = report_of(folder)
    assert report.verified
    assert (report.benchmark is not None) == (report.execution is Execution.NATIVE)
    assert report.estimate is not None
    assert report.estimate.flops > 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the root folder")
@pytest.mark.parametrize("label", ["x86-64-v2", "x86-64 with musl"])
def test_a_bundle_runs_where_there_is_nothing_but_libc(
    label: str, tmp_path: Path, server: CandidateClient
) -> None:
    libc = libc_of(getattr(TARGETS[label], "triple", LINUX_X86_64))
    assert libc is not None
    if not Path(libc.loader).exists():
        pytest.skip(f"this machine has no {libc.loader}; see ci/emulators")
    bundle("cnn", TARGETS[label], tmp_path, server)
    for path in (Path(libc.loader), *(Path("/lib/x86_64-linux-gnu", name) for name in libc.libraries)):
        if path.exists():
            copied = tmp_path / path.relative_to("/")
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copied)
    (tmp_path / "proc").mkdir()

    enter = f"mount -t proc proc {tmp_path}/proc && exec chroot {tmp_path} /bundle/run --repeat 3"
    done = execute(["unshare", "--mount", "sh", "-c", enter], tmp_path)

    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip(f"this machine forbids it: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert "matches the reference" in done.stdout


def test_a_library_that_nothing_ran_says_so_everywhere(tmp_path: Path, server: CandidateClient) -> None:
    folder = bundle("mlp", ExplicitTarget(mcpu="diamondrapids"), tmp_path, server, verification="none")

    report = report_of(folder)
    assert (report.verified, report.execution, report.benchmark) == (False, None, None)
    assert not Manifest.read(json.loads((folder / MANIFEST).read_text())).verified
    assert "Nothing has run this library" in (folder / README).read_text()
    assert "Not verified" in (folder / REPORT_PAGE).read_text()


@pytest.mark.parametrize(
    ("target", "verification"),
    [(PresetTarget(preset="aarch64"), "required"), (PresetTarget(preset="host"), "none")],
)
def test_a_search_needs_a_processor_that_measures(target: Target, verification: str) -> None:
    request = CompilationRequest.model_validate(
        {"model": "0" * 64, "target": target, "verification": verification, "tune": {"trials": 8}}
    )
    resolved = compile_target(resolve_target(target, "x86-64", 2))

    with pytest.raises(JobError, match=r"set `tune\.trials` to 0") as caught:
        refuse_search(request, resolved)

    assert caught.value.code is ErrorCode.TARGET_NOT_RUNNABLE


def test_a_device_measures_what_this_machine_cannot() -> None:
    target = PresetTarget(preset="aarch64")
    request = CompilationRequest.model_validate(
        {"model": "0" * 64, "target": target, "tune": {"trials": 8}, "device": "pi"}
    )
    refuse_search(request, compile_target(resolve_target(target, "x86-64", 2)), on_device=True)
