"""Of what a job leaves in its folder, only plain files are taken.

The jobs run without the sandbox, where they can leave more.
"""

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest
from worker_samples import wait_until

from bessemer.contract.job import Figures, JobState
from bessemer.contract.options import TuneOptions
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import Latency
from bessemer.contract.sandbox import SandboxMode
from bessemer.contract.stage import Stage
from tests.tenant_data import own
from worker.protocol.messages import Compiled, EarlyBundleMade

Rig = Any
LATENCY = Latency(runs=1, min_ms=1, p50_ms=1, p90_ms=1, p99_ms=1, mean_ms=1, stddev_ms=0)
COMPILED = Compiled(
    verified=True,
    figures=Figures(
        latency=LATENCY, baselines=(), library_bytes=1, peak_memory_bytes=1, max_absolute_error=0
    ),
    files=("bundle.tar.zst",),
)
LEAVE = """
    import gc
    from pathlib import Path
    output = Path("../output")
    report = output / "report.json"
    {plant}
    teller = next(thing for thing in gc.get_objects() if type(thing).__name__ == "Sender")
    os.write(teller.descriptor, {line!r})
    os._exit(0)
"""
PLAIN = 'report.write_text("{}")'


STOPPED = {"verified": None, "figures": None, "stopped_after": "build"}


def leaving(plant: str, files: tuple[str, ...] = ("report.json",)) -> str:
    """A job that is asked to stop after the build, and leaves files of its own."""
    message = json.loads(COMPILED.model_dump_json()) | STOPPED | {"files": files}
    return LEAVE.format(plant=plant, line=json.dumps(message).encode() + b"\n")


@pytest.mark.parametrize(
    ("plant", "names"),
    [
        (f'print("seen", flush=True); {PLAIN}', ["report.json", "log.txt"]),
        (PLAIN, ["report.json"]),
    ],
    ids=["with a log", "silent"],
)
def test_plain_files_are_taken(rig: Rig, plant: str, names: list[str]) -> None:
    row = rig.handle(rig.job(leaving(plant), stop_after=Stage.BUILD), sandbox=SandboxMode.OFF)
    assert row.state is JobState.SUCCEEDED
    assert [artifact.name for artifact in row.artifacts] == names


@pytest.mark.parametrize(
    "plant",
    [
        pytest.param('report.symlink_to("/etc/passwd")', id="symbolic link"),
        pytest.param('Path("kept").write_text("x"); os.link("kept", report)', id="hard link"),
        pytest.param("os.mkfifo(report)", id="pipe"),
        pytest.param("report.mkdir()", id="folder"),
        pytest.param("pass", id="missing"),
        pytest.param(PLAIN + '; os.unlink("../log.txt"); os.mkfifo("../log.txt")', id="beside a piped log"),
    ],
)
def test_a_result_that_is_not_a_plain_file_is_misbehavior(rig: Rig, plant: str) -> None:
    row = rig.handle(rig.job(leaving(plant), stop_after=Stage.BUILD), sandbox=SandboxMode.OFF)
    assert row.state is JobState.FAILED
    assert row.problem.code is ErrorCode.CHILD_MISBEHAVED


def test_a_folder_behind_a_link_is_refused_by_whoever_sees_it_first(rig: Rig) -> None:
    plant = PLAIN + '; os.rename(output, "moved"); output.symlink_to("scratch/moved")'
    row = rig.handle(rig.job(leaving(plant), stop_after=Stage.BUILD), sandbox=SandboxMode.OFF)
    assert row.state is JobState.FAILED
    assert row.problem.code in (ErrorCode.CHILD_MISBEHAVED, ErrorCode.LIMIT_INODES)


@pytest.mark.parametrize(
    "files",
    [
        ("report.json", "../model"),
        ("report.json", "log.txt"),
        ("report.json", "provenance.dsse.json"),
        ("report.json", "report.json"),
        ("report.json", "absent"),
        ("report.json", "bundle.tar.zst"),
    ],
    ids=" ".join,
)
def test_files_that_no_job_names_are_misbehavior(rig: Rig, files: tuple[str, ...]) -> None:
    plant = PLAIN + '; (output / "other").touch()'
    row = rig.handle(rig.job(leaving(plant, files), stop_after=Stage.BUILD), sandbox=SandboxMode.OFF)
    assert row.state is JobState.FAILED
    assert row.problem.code is ErrorCode.CHILD_MISBEHAVED


@pytest.mark.parametrize("log", ['os.mkfifo("../log.txt")', 'os.symlink("/etc/passwd", "../log.txt")'])
def test_a_log_that_is_none_any_more_is_left_out(rig: Rig, log: str) -> None:
    row = rig.handle(rig.job(f'os.unlink("../log.txt")\n{log}\nos._exit(3)'), sandbox=SandboxMode.OFF)
    assert row.problem.code is ErrorCode.CHILD_CRASHED
    assert "root:" not in row.problem.detail
    assert row.artifacts == ()


def test_a_job_that_says_that_it_was_to_stop_early_is_misbehavior(rig: Rig) -> None:
    row = rig.handle(rig.job(leaving(PLAIN)), sandbox=SandboxMode.OFF)
    assert row.state is JobState.FAILED
    assert row.problem.code is ErrorCode.CHILD_MISBEHAVED


def test_snapshots_of_a_job_that_crashed_are_taken_where_they_are_plain_files(rig: Rig) -> None:
    plant = 'Path("../output/ir.json").write_text("{}"); os.symlink("/etc/passwd", "../output/ir.zst")'
    row = rig.handle(rig.job(f"from pathlib import Path\n{plant}\nos._exit(3)"), sandbox=SandboxMode.OFF)
    assert row.problem.code is ErrorCode.CHILD_CRASHED
    assert [artifact.name for artifact in row.artifacts] == ["ir.json"]


EARLY = """
    import gc
    from pathlib import Path
    {plant}
    things = gc.get_objects()
    sender = next(thing for thing in things if type(thing).__name__ == "Sender")
    devices = next(thing for thing in things if type(thing).__name__ == "AskedDevices")
    os.write(sender.descriptor, {line!r})
    print(os.read(devices._answers, 4096), flush=True)
    os._exit(3)
"""
EARLY_MADE = EarlyBundleMade(figures=COMPILED.figures)
EARLY_LINE = EARLY_MADE.model_dump_json().encode() + b"\n"
PUBLISHING = TuneOptions(trials=1, publish_early=True)


@pytest.mark.parametrize(
    ("tune", "plant", "code"),
    [
        (TuneOptions(), "pass", ErrorCode.CHILD_MISBEHAVED),
        (PUBLISHING, "pass", ErrorCode.CHILD_MISBEHAVED),
        (PUBLISHING, 'os.symlink("/etc/passwd", "../output/early.tar.zst")', ErrorCode.CHILD_MISBEHAVED),
        (PUBLISHING, 'Path("../output/early.tar.zst").write_text("x")', ErrorCode.CHILD_CRASHED),
    ],
    ids=["not asked to", "no bundle", "a link", "no archive"],
)
def test_what_is_no_bundle_is_not_published_early(
    rig: Rig, tune: TuneOptions, plant: str, code: ErrorCode
) -> None:
    task = rig.job(EARLY.format(plant=plant, line=EARLY_LINE), tune=tune)
    row = rig.handle(task, sandbox=SandboxMode.OFF)
    assert row.problem.code is code
    assert [artifact.name for artifact in row.artifacts if artifact.name != "log.txt"] == []
    if code is ErrorCode.CHILD_CRASHED:
        assert "refusal" in row.problem.detail


SAY = """
    import gc, time
    sender = next(thing for thing in gc.get_objects() if type(thing).__name__ == "Sender")
    for line in {lines!r}:
        os.write(sender.descriptor, line)
    time.sleep({rest})
    return "said"
"""


def started_again_and_again() -> list[bytes]:
    return [b'{"kind": "stage-started", "stage": "capture"}\n'] * 25_000


def verdict_first() -> list[bytes]:
    return [COMPILED.model_dump_json().encode() + b"\n"]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (started_again_and_again(), "'stage-started' out of order"),
        (verdict_first(), "after its last message"),
    ],
    ids=["many stages", "the verdict first"],
)
def test_a_job_that_speaks_out_of_turn_is_ended_at_once(rig: Rig, lines: list[bytes], why: str) -> None:
    row = rig.handle(rig.job(SAY.format(lines=lines, rest=0)))
    assert (row.state, row.problem.code) == (JobState.FAILED, ErrorCode.CHILD_MISBEHAVED)
    assert why in row.problem.detail
    assert len(row.stages) <= 1


def test_a_job_that_keeps_its_turn_loses_it(
    rig: Rig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lock = tmp_path / "measuring"
    task = rig.job(SAY.format(lines=[b'{"kind": "turn-requested"}\n'], rest=600))

    def measure_too() -> None:
        wait_until(lambda: "a job has measured for 0.2 s; the next turn begins" in caplog.text)
        with lock.open("w") as other:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        own(rig.store).jobs.request_cancel(task.id)

    row = rig.handle_while(task, measure_too, measuring_lock=lock, measuring_turn_seconds=0.2)
    assert row.state is JobState.CANCELLED


FORGE = """
    import os
    if os.path.basename(os.getcwd()) == "scratch":
        import worker.compiler.pipeline.{module} as stage
        honest = stage.{name}
        def forge(*arguments, **options):
            {body}
        stage.{name} = forge
    return "forged"
"""
SHIFTED_REFERENCES = """path, specs, arrays = arguments
            shift = 1 if "outputs" in str(path) else 0
            return honest(path, specs, tuple(array + shift for array in arrays))"""
WIDE_TOLERANCES = """manifest = honest(*arguments, **options)
            wide = tuple(one.model_copy(update={"absolute": 1e6}) for one in manifest.tolerances)
            return manifest.model_copy(update={"tolerances": wide})"""
ANOTHER_MODEL = """return honest(*arguments, **options).model_copy(update={"model": "0" * 64})"""


@pytest.mark.parametrize(
    ("name", "body", "why"),
    [
        ("write_arrays", SHIFTED_REFERENCES, "8 elements of the output 'output' differ"),
        ("make_manifest", WIDE_TOLERANCES, "more than the request allows"),
        ("make_manifest", ANOTHER_MODEL, "names another model"),
    ],
    ids=["references", "tolerances", "model"],
)
def test_a_bundle_is_checked_by_a_process_that_never_opened_the_upload(
    rig: Rig, name: str, body: str, why: str
) -> None:
    row = rig.handle(rig.job(FORGE.format(module="package", name=name, body=body)))
    assert (row.state, row.problem.code) == (JobState.FAILED, ErrorCode.VERIFY_MISMATCH)
    assert why in row.problem.detail


def test_a_bundle_that_is_not_one_fails(rig: Rig) -> None:
    plant = '(output / "bundle.tar.zst").write_text("a bundle")'
    row = rig.handle(rig.job(LEAVE.format(plant=plant, line=COMPILED.model_dump_json().encode() + b"\n")))
    assert (row.state, row.problem.code) == (JobState.FAILED, ErrorCode.VERIFY_CRASHED)
    assert "cannot be unpacked" in row.problem.detail


def test_a_latency_that_a_fresh_process_contradicts_is_unsteady(rig: Rig) -> None:
    instant = """result = honest(*arguments, **options)
            figures = result.figures
            tiny = figures.latency.model_copy(update={"p50_ms": 1e-7})
            return result.model_copy(update={"figures": figures.model_copy(update={"latency": tiny})})"""
    forge = FORGE.format(module="package", name="compiled", body=instant)
    row = rig.handle(rig.job(forge.replace("worker.compiler.pipeline.package", "worker.job.compilation")))
    assert row.state is JobState.SUCCEEDED
    assert "a fresh process took" in row.figures.unsteady
    assert row.figures.check.latency.runs >= 1
