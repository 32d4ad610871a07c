"""The comparison of a group's results."""

import math
from datetime import timedelta

import pytest
from report_samples import CREATED_AT, MODEL, baseline, comparison, latency, minimal_report

from app.comparison import compare, error_share
from bessemer.contract.group import Comparison, group_of, group_state, shown_target
from bessemer.contract.job import Artifact, Compilation, Figures, JobState
from bessemer.contract.options import Tolerance
from bessemer.contract.problem import ErrorCode, make_problem
from bessemer.contract.report import Execution, Report
from bessemer.contract.request import CompilationRequest
from bessemer.contract.stage import Stage
from bessemer.contract.target import ExplicitTarget, PresetTarget, Target

QUEUED, RUNNING = JobState.QUEUED, JobState.RUNNING
DONE, FAILED, CANCELLED = JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED
FIGURES = Figures(
    latency=latency(2.0),
    baselines=(baseline("torch-eager", 4.0, 0.5), baseline("torch-compile", 3.0, 0.67)),
    library_bytes=1,
    peak_memory_bytes=1,
    max_absolute_error=0.0,
)


def artifact(name: str, size_bytes: int = 10, digest: str = "a" * 64) -> Artifact:
    return Artifact(name=name, digest=digest, size_bytes=size_bytes, media_type="x/y")


FILES = (artifact("model.so", 2048), artifact("bundle.tar.zst", 4096), artifact("reference.npz"))


def job(number: int, state: JobState, target: str = "host", **fields: object) -> Compilation:
    request = CompilationRequest(model=MODEL, target=PresetTarget(preset=target))
    found = Compilation(
        id=f"job-000{number}", group="group-01", state=state, request=request, created_at=CREATED_AT
    )
    return found.model_copy(update=fields)


MEASURED = job(1, DONE, verified=True, figures=FIGURES, artifacts=FILES)


def report(execution: Execution | None = Execution.NATIVE, **fields: object) -> Report:
    return minimal_report().model_copy(update={"execution": execution, **fields})


def compared(*jobs: Compilation, **reports: Report) -> Comparison:
    return compare(group_of(jobs), {name.replace("_", "-"): each for name, each in reports.items()})


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ((QUEUED, QUEUED), QUEUED),
        ((QUEUED, RUNNING), RUNNING),
        ((QUEUED, DONE), RUNNING),
        ((QUEUED, FAILED), RUNNING),
        ((DONE, DONE), DONE),
        ((DONE, FAILED, CANCELLED), FAILED),
        ((DONE, CANCELLED), CANCELLED),
    ],
)
def test_a_group_has_ended_when_all_its_compilations_have(
    states: tuple[JobState, ...], expected: JobState
) -> None:
    assert group_state(states) is expected


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (PresetTarget(preset="aarch64"), "aarch64"),
        (PresetTarget(preset="host", cores=1), "host, 1 core"),
        (ExplicitTarget(mcpu="znver4", features=("+avx512vnni",), cores=4), "znver4, +avx512vnni, 4 cores"),
    ],
)
def test_a_target_is_told_from_another_of_its_name(target: Target, words: str) -> None:
    assert shown_target(target) == words


@pytest.mark.parametrize(
    ("found", "execution", "words"),
    [
        (MEASURED, Execution.NATIVE, "verified natively"),
        (
            job(1, DONE, verified=True, artifacts=FILES),
            Execution.EMULATED,
            "verified under emulation, not measured",
        ),
        (
            job(1, DONE, verified=True, artifacts=FILES),
            Execution.PROGRAM,
            "verified by its own program, not measured",
        ),
        (job(1, DONE, verified=True, artifacts=FILES), None, "verified, not measured"),
        (job(1, DONE, verified=False, artifacts=FILES), None, "not verified, not measured"),
        (job(1, DONE, stage=Stage.BUILD), None, "stopped after build"),
        (
            job(1, FAILED, problem=make_problem(ErrorCode.BUILD_FAILED, "no", stage="build")),
            None,
            "failed in build: build-failed",
        ),
        (job(1, FAILED, problem=make_problem(ErrorCode.CHILD_CRASHED, "no")), None, "failed: child-crashed"),
        (job(1, RUNNING, stage=Stage.TUNE), None, "running: tune"),
        (job(1, RUNNING), None, "running"),
        (job(1, QUEUED), None, "queued"),
        (job(1, CANCELLED, stage=Stage.TUNE), None, "cancelled"),
    ],
)
def test_an_outcome_in_words_never_claims_what_did_not_happen(
    found: Compilation, execution: Execution | None, words: str
) -> None:
    (one,) = compared(found, job_0001=report(execution)).items
    assert one.outcome == words


def test_a_measured_result_has_its_latency_its_fastest_baseline_and_its_sizes() -> None:
    times = {"started_at": CREATED_AT, "finished_at": CREATED_AT + timedelta(seconds=12)}
    found = job(1, DONE, verified=True, figures=FIGURES, artifacts=FILES, **times)
    (one,) = compared(found, job_0001=report(comparisons=(comparison(),))).items
    assert one.latency == FIGURES.latency
    assert one.peer is not None and one.peer.name == "torch-compile"
    assert (one.library_bytes, one.bundle_bytes, one.seconds) == (2048, 4096, 12.0)
    assert one.max_absolute_error == comparison().max_absolute_error
    assert one.tolerance == comparison().tolerance
    assert one.error_share is not None and 0 < one.error_share < 1


def test_a_result_without_a_report_has_what_the_compilation_says() -> None:
    (one,) = compared(MEASURED).items
    assert (one.latency, one.execution, one.max_absolute_error) == (FIGURES.latency, None, None)


@pytest.mark.parametrize(
    ("value", "reference", "tolerance", "share"),
    [
        (1.5, 1.0, (0.0, 1.0), 0.5),
        (2.2, 2.0, (0.1, 0.0), 1.0),
        (2.0, 2.0, (0.0, 0.0), 0.0),
        (3.0, 2.0, (0.0, 0.0), math.inf),
    ],
)
def test_an_error_is_a_share_of_its_bound(
    value: float, reference: float, tolerance: tuple[float, float], share: float
) -> None:
    bound = Tolerance(relative=tolerance[0], absolute=tolerance[1])
    update = {"worst_value": value, "worst_reference": reference, "tolerance": bound}
    assert error_share(comparison().model_copy(update=update)) == pytest.approx(share)


def test_an_error_that_is_no_number_is_left_out() -> None:
    endless = comparison().model_copy(update={"max_absolute_error": math.inf, "worst_value": math.nan})
    (one,) = compared(
        job(1, DONE, verified=True, artifacts=FILES), job_0001=report(comparisons=(endless,))
    ).items
    assert (one.max_absolute_error, one.error_share) == (None, None)


@pytest.mark.parametrize(
    ("digests", "expected"), [("a", None), ("aa", True), ("ab", False), ("aab", False), ("", None)]
)
def test_libraries_of_one_reference_are_told_by_its_digest(digests: str, expected: bool | None) -> None:
    jobs = [
        job(number, DONE, verified=True, artifacts=(artifact("reference.npz", digest=letter * 64),))
        for number, letter in enumerate(digests)
    ]
    assert compared(*jobs, job(9, FAILED)).same_reference is expected
