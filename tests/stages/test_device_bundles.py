"""Bundles that only a device can run: what is left to it, and what its findings change."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from bundle_samples import execute, unpacked
from stage_samples import TARGET, Perceptron, capture_module, untuned

from bessemer.bundle.manifest import ARCHIVE
from bessemer.client.unpacking import check_bundle, unpack
from bessemer.contract.device import Device, DeviceResult
from bessemer.contract.options import VerifyOptions
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import DeviceRun, Execution, Report
from worker.compiler.pipeline.benchmark import benchmark
from worker.compiler.pipeline.build import build
from worker.compiler.pipeline.package import package
from worker.compiler.pipeline.verify import verify
from worker.compiler.target import compile_target, device_features
from worker.compiler.values import StageContext
from worker.errors import JobError
from worker.job.bundle_check import check_bundle as check_in_job
from worker.job.device_report import amend_bundle
from worker.job.folder import JobFolder, make_job_folder
from worker.measure.turns import ANY_TIME
from worker.protocol.order import AmendWork, CheckWork
from worker.protocol.sender import Sender
from worker.supervisor.device_runs import as_run, device_figures

MUSL = TARGET.model_copy(update={"triple": "x86_64-unknown-linux-musl"})
LOADER = Path("/lib64/ld-linux-x86-64.so.2")
LIBC = Path("/lib/x86_64-linux-gnu/libc.so.6")
NEEDS_LOADER = pytest.mark.skipif(not (LOADER.exists() and LIBC.exists()), reason="there is no glibc here")
BOARD = Device.model_validate(
    {
        "name": "board",
        "platform": "x86_64-musl",
        "processor": "Cortex-A72 <b>",
        "cores": 4,
        "memory_bytes": 1,
        "id": "0" * 32,
        "shared": False,
        "registered_at": "2026-01-01T00:00:00Z",
        "seen_at": "2026-01-01T00:00:00Z",
        "lease_seconds": 30,
    }
)


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine cannot run programs of the target's platform."""
    monkeypatch.setattr("worker.compiler.target.launcher_of", lambda _triple: None)


@pytest.fixture
def archive(context: StageContext) -> Path:
    """The bundle of a network for a platform that this machine cannot run."""
    context = replace(context, by_device=True)
    captured = capture_module(Perceptron(), torch.randn(1, 16), target=MUSL)
    verified = verify(build(untuned(captured, context), context), context)
    assert (verified.ran, verified.comparisons) == (False, ())
    package(benchmark(verified, context), context)
    return context.output / ARCHIVE


def found_by(archive: Path, folder: Path, *options: str) -> DeviceResult:
    """What the bundle's program finds, which glibc's loader runs with glibc in the place of musl."""
    bundle = unpacked(archive, folder / "on-device")
    (folder / "libc").mkdir()
    (folder / "libc" / "libc.so").symlink_to(LIBC)
    command = [LOADER, "--library-path", folder / "libc", bundle / "run", "--report", bundle / "found.json"]
    execute([*command, *options], bundle)
    return DeviceResult.model_validate(json.loads((bundle / "found.json").read_text()))


def fresh(archive: Path, folder: Path) -> JobFolder:
    made = make_job_folder(folder, None)
    made.model.write_bytes(archive.read_bytes())
    return made


@contextmanager
def a_sender() -> Iterator[Sender]:
    """One whose messages go nowhere."""
    with Path(os.devnull).open("wb") as nowhere:
        yield Sender(nowhere.fileno(), time.monotonic())


def amended(run: DeviceRun, archive: Path, folder: Path) -> Path:
    made = fresh(archive, folder)
    with a_sender() as sender:
        assert ARCHIVE in amend_bundle(AmendWork(model="0" * 64, run=run), made, sender).files
    return made.output


def test_what_this_machine_cannot_run_is_refused_without_a_device(context: StageContext) -> None:
    captured = capture_module(Perceptron(), torch.randn(1, 16), target=MUSL)
    built = build(untuned(captured, context), context)
    with pytest.raises(JobError) as raised:
        verify(built, context)
    assert raised.value.code is ErrorCode.TARGET_NOT_RUNNABLE
    with pytest.raises(JobError, match="this library has none: because"):
        verify(replace(built, program=None, no_program="because"), replace(context, by_device=True))


def test_the_check_of_such_a_bundle_reads_it_and_leaves_the_rest_to_the_device(
    archive: Path, tmp_path: Path
) -> None:
    work = CheckWork(model="0" * 64, verify=VerifyOptions(), by_device=True)
    narrow = work.model_copy(update={"verify": VerifyOptions(relative=0, absolute=0)})
    alone = work.model_copy(update={"by_device": False})
    with a_sender() as sender:
        assert check_in_job(work, fresh(archive, tmp_path / "check"), sender, ANY_TIME).check is None
        with pytest.raises(JobError, match="more than the request allows"):
            check_in_job(narrow, fresh(archive, tmp_path / "narrow"), sender, ANY_TIME)
        with pytest.raises(JobError) as raised:
            check_in_job(alone, fresh(archive, tmp_path / "alone"), sender, ANY_TIME)
    assert raised.value.code is ErrorCode.TARGET_NOT_RUNNABLE


@NEEDS_LOADER
def test_the_bundle_that_a_device_verified_says_so_and_is_whole(archive: Path, tmp_path: Path) -> None:
    run = as_run(BOARD, found_by(archive, tmp_path, "--repeat", "5"))
    output = amended(run, archive, tmp_path / "amend")

    bundle = unpack(output / ARCHIVE, tmp_path / "bundle")
    manifest = check_bundle(bundle)
    report = Report.read_json((output / "report.json").read_bytes())
    page = (output / "report.html").read_text()
    assert manifest.program is not None
    assert manifest.tolerances[0].relative > 0
    assert (bundle / "report.json").read_bytes() == (output / "report.json").read_bytes()
    assert (report.verified, report.execution, report.device) == (True, Execution.DEVICE, run)
    assert run.latency is not None
    assert run.latency.runs == 5
    assert "verified and measured on board" in page
    assert "Cortex-A72 &lt;b&gt;" in page
    assert "Not verified" not in page
    assert "Not measured" not in page
    figures = device_figures(run, 1000)
    assert figures is not None
    assert (figures.device, figures.latency, figures.library_bytes) == ("board", run.latency, 1000)


@NEEDS_LOADER
def test_an_emulated_device_verifies_without_figures(archive: Path, tmp_path: Path) -> None:
    emulated = BOARD.model_copy(update={"emulated": True})
    run = as_run(emulated, found_by(archive, tmp_path, "--repeat", "5"))
    page = (amended(run, archive, tmp_path / "amend") / "report.html").read_text()
    assert device_figures(run, 1) is None
    assert "verified on board, which is emulated" in page
    assert "Not measured" in page
    assert "its times say nothing about the hardware" in page


def changed(**changes: Any) -> Callable[[DeviceRun], DeviceRun]:
    def change(run: DeviceRun) -> DeviceRun:
        (entry,) = run.entries
        outputs = (entry.outputs[0].model_copy(update=changes),)
        return run.model_copy(update={"entries": (entry.model_copy(update={"outputs": outputs}),)})

    return change


@pytest.mark.sampled
@NEEDS_LOADER
@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            changed(mismatches=3, max_absolute_error=0.5),
            "on device 'board': output 'output_0': 3 of 4 elements differ from the reference, by up to 0.5",
        ),
        (
            changed(mismatches=4, max_absolute_error=None),
            "output 'output_0': 4 of 4 elements differ from the reference, by a value that is not finite",
        ),
        (changed(name="another"), "on device 'board': output 'output_0' was not compared"),
        (lambda run: run.model_copy(update={"entries": ()}), "output 'output_0' was not compared"),
    ],
)
def test_a_device_that_does_not_confirm_every_output_does_not_verify(
    archive: Path, tmp_path: Path, change: Callable[[DeviceRun], DeviceRun], complaint: str
) -> None:
    run = change(as_run(BOARD, found_by(archive, tmp_path)))
    with pytest.raises(JobError, match=complaint) as raised:
        amended(run, archive, tmp_path / "amend")
    assert raised.value.code is ErrorCode.VERIFY_MISMATCH


def test_findings_about_another_model_are_refused(archive: Path, tmp_path: Path) -> None:
    work = AmendWork(model="1" * 64, run=as_run(BOARD, DeviceResult()))
    with a_sender() as sender, pytest.raises(JobError, match="names another model"):
        amend_bundle(work, fresh(archive, tmp_path / "amend"), sender)


def test_the_tolerance_for_a_device_allows_for_the_references_own_rounding(context: StageContext) -> None:
    context = replace(context, by_device=True)
    captured = capture_module(Perceptron(), torch.randn(1, 16), target=MUSL)
    rounded = captured.references[0] + 1e-4
    verified = verify(build(untuned(replace(captured, references=(rounded,)), context), context), context)
    ((tolerance,),) = verified.not_run
    plain = VerifyOptions().tolerance(captured.output_specs[0].dtype)
    assert plain.absolute < tolerance.absolute < 1e-2
    assert tolerance.relative == plain.relative


@pytest.mark.parametrize(
    ("mcpu", "triple", "has", "lacks"),
    [
        ("generic", "aarch64-unknown-linux-gnu", {"asimd"}, {"asimddp", "sve"}),
        ("cortex-a76", "aarch64-unknown-linux-gnu", {"asimd", "asimddp", "atomics"}, {"sve"}),
        ("neoverse-v1", "aarch64-unknown-linux-gnu", {"sve", "bf16", "i8mm"}, {"sve2"}),
        ("x86-64-v3", "x86_64-unknown-linux-musl", {"avx2", "fma"}, {"avx512f"}),
        ("generic-rv64", "riscv64-unknown-linux-gnu", set(), {"v"}),
    ],
)
def test_a_target_needs_features_of_a_device_in_the_kernels_names(
    mcpu: str, triple: str, has: set[str], lacks: set[str]
) -> None:
    target = TARGET.model_copy(update={"mcpu": mcpu, "triple": triple, "features": ()})
    if "riscv" in triple:
        target = target.model_copy(update={"features": ("+m", "+a", "+f", "+d", "+c")})
    found = set(device_features(compile_target(target)))
    assert (has <= found, found & lacks) == (True, set())
