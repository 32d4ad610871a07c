"""The command line's output and exit statuses."""

import io
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from report_samples import minimal_report
from rich.console import Console
from typer.testing import CliRunner

from bessemer.cli.application import application
from bessemer.cli.compiling import NO_RULE, preflight_lines, show_preflight
from bessemer.cli.jobs import _row as jobs_row
from bessemer.cli.jobs import step_lines
from bessemer.cli.live_view import PlainStages, other_method_lines
from bessemer.cli.output import (
    ExitStatus,
    clean,
    error_lines,
    exit_status,
    first_of,
    joint_status,
    print_lines,
    problem_lines,
    shown_bytes,
)
from bessemer.cli.timeline import Timeline, event_line, place_line
from bessemer.cli.workers import worker_rows
from bessemer.contract.base import now
from bessemer.contract.invocation import Invocation
from bessemer.contract.ir import IrCounts, IrListing, IrStep, IrText
from bessemer.contract.job import Compilation, Event, EventType, JobState
from bessemer.contract.problem import ErrorCode, FieldError, SourcePlace, make_problem
from bessemer.contract.queue import QueueName, QueuePlace, TaskKind
from bessemer.contract.report import OperatorUse, Preflight
from bessemer.contract.request import CompilationRequest
from bessemer.contract.service import RunningTask, WorkerList
from bessemer.contract.stage import Stage
from bessemer.errors import (
    AnswerInvalidError,
    BessemerError,
    BundleError,
    ExportError,
    InvalidArgumentError,
    InvocationFailedError,
    NoWorkerError,
    UnreachableError,
    problem_error,
)
from tests.workers import some_worker

ROOT = Path(__file__).parents[2]
FORBIDDEN = {
    "torch",
    "tvm",
    "tvm_ffi",
    "numpy",
    "fastapi",
    "sqlalchemy",
    "dbos",
    "bessemer.store",
    "app",
    "worker",
}


PLACE = QueuePlace(
    name=QueueName.COMPILE,
    position=1,
    ahead=0,
    workers=1,
    estimated_start_seconds=None,
    explanation="an estimate",
    waiting_for=None,
)


def event(kind: EventType, **data: object) -> Event:
    return Event(seq=1, type=kind, at=now(), data=data)


def plain_stages(printed: io.StringIO) -> PlainStages:
    """Print plainly for all values of FORCE_COLOR and COLUMNS."""
    return PlainStages(Console(file=printed, force_terminal=False, width=80))


@pytest.mark.parametrize("module", ["bessemer", "bessemer.cli"])
def test_the_package_runs_as_the_command(module: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", module, "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "Usage: bessemer [OPTIONS] COMMAND" in ran.stdout


@pytest.mark.parametrize("module", ["bessemer", "bessemer.client", "bessemer.cli.application"])
def test_client_and_command_line_import_only_their_dependencies(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(ran.stdout.split()) & FORBIDDEN == set()


def test_the_package_imports_the_client_only_when_it_is_used() -> None:
    code = (
        "import sys, bessemer; print('httpx' in sys.modules); bessemer.Client; print('httpx' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "True"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UnreachableError("x"), ExitStatus.UNREACHABLE),
        (InvalidArgumentError("x"), ExitStatus.USAGE),
        (problem_error(make_problem(ErrorCode.REQUEST_INVALID, "x")), ExitStatus.USAGE),
        (problem_error(make_problem(ErrorCode.INPUTS_MISMATCH, "x")), ExitStatus.USAGE),
        (problem_error(make_problem(ErrorCode.MODEL_DAMAGED, "x")), ExitStatus.FAILED),
        (problem_error(make_problem(ErrorCode.NOT_FOUND, "x")), ExitStatus.FAILED),
        (problem_error(make_problem(ErrorCode.UNAVAILABLE, "x")), ExitStatus.FAILED),
        (BundleError("x"), ExitStatus.FAILED),
    ],
)
def test_an_error_has_its_status(error: BessemerError, status: ExitStatus) -> None:
    assert exit_status(error) is status


@pytest.mark.parametrize(
    ("code", "status"),
    [(ErrorCode.INPUTS_MISMATCH, ExitStatus.USAGE), (ErrorCode.INVOCATION_FAILED, ExitStatus.FAILED)],
)
def test_a_failed_invocation_has_the_status_of_a_refused_one(code: ErrorCode, status: ExitStatus) -> None:
    invocation = Invocation(
        id="b" * 8,
        compilation="a" * 8,
        state=JobState.FAILED,
        inputs="0" * 64,
        inputs_bytes=1,
        runs=0,
        problem=make_problem(code, "x"),
        created_at=now(),
    )
    assert exit_status(InvocationFailedError(invocation)) is status


@pytest.mark.parametrize(
    ("codes", "status"),
    [
        ((ErrorCode.INPUTS_MISMATCH, ErrorCode.INPUTS_MISSING), ExitStatus.USAGE),
        ((ErrorCode.INPUTS_MISMATCH, ErrorCode.MODEL_DAMAGED), ExitStatus.FAILED),
        ((ErrorCode.MODEL_DAMAGED,), ExitStatus.FAILED),
    ],
)
def test_a_group_has_the_status_that_its_failures_share(
    codes: tuple[ErrorCode, ...], status: ExitStatus
) -> None:
    assert joint_status(make_problem(code, "x") for code in codes) is status


def test_a_problem_is_printed_with_fields_places_and_advice() -> None:
    problem = make_problem(
        ErrorCode.UNAVAILABLE,
        "First line.\nSecond line.",
        stage="tune",
        errors=(FieldError(field="tune.trials", message="too many"),),
        places=(
            SourcePlace(operator="aten.foo", module_path="a.b", file="f.py", line=3),
            SourcePlace(file="g.py"),
        ),
    )
    assert list(problem_lines(problem)) == [
        "error: The database or the artifact store is unreachable (stage tune) [unavailable]",
        "  First line.",
        "  Second line.",
        "  • tune.trials: too many",
        "  • aten.foo in module a.b (f.py:3)",
        "  • g.py",
        "  → Try again in a moment. A retry can help.",
    ]


def test_an_unreachable_server_comes_with_advice() -> None:
    assert "bessemer serve" in list(error_lines(UnreachableError("refused")))[1]
    assert "of this client's version" in list(error_lines(AnswerInvalidError("no Model")))[1]


def test_an_error_of_several_lines_keeps_them() -> None:
    lines = list(error_lines(ExportError("torch could not export Net: no\n  at net.py:3")))
    assert lines == ["error: torch could not export Net: no", "    at net.py:3"]


def test_text_from_a_server_cannot_control_the_terminal() -> None:
    assert clean("a\x1b[2Jb\x07\nc") == "a [2Jb  c"
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, color_system=None)
    print_lines(console, "step [bold]\x1b]0;title\x07", "two")
    assert written.getvalue() == "step [bold] ]0;title \ntwo\n"


def test_an_invalid_choice_is_reported_without_the_validators_text() -> None:
    ran = CliRunner(env={"COLUMNS": "200"}).invoke(application, ["jobs", "--state", "foo"])
    assert ran.exit_code == ExitStatus.USAGE
    assert "'--state': 'foo' is not one of 'queued'" in ran.stderr


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1400, "1.4 KiB"), (5 << 19, "2.5 MiB"), (10_000 << 40, "10000.0 TiB")],
)
def test_sizes_are_readable(count: int, text: str) -> None:
    assert shown_bytes(count) == text


def test_the_timeline_follows_the_events() -> None:
    timeline = Timeline()
    for happened in (
        event(EventType.STARTED, attempt=1, worker="w1"),
        event(EventType.STAGE_STARTED, stage="tune"),
        event(EventType.PROGRESS, stage="tune", done=3, total=64),
    ):
        timeline = timeline.after(happened)
    assert timeline.running is Stage.TUNE
    assert timeline.progress is not None
    assert timeline.progress.done == 3
    timeline = timeline.after(event(EventType.STAGE_FINISHED, stage="tune", seconds=1.5))
    assert timeline.running is None
    assert [entry.stage for entry in timeline.finished] == [Stage.TUNE]


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({}, "queued, next"),
        ({"estimated_start_seconds": 0.0}, "queued, next; estimated to start in about 0 s"),
        (
            {"ahead": 3, "estimated_start_seconds": 7200.0},
            "queued, 3 ahead; estimated to start in about 2.0 h",
        ),
        ({"waiting_for": "a live worker"}, "queued, waiting for a live worker"),
    ],
)
def test_a_queue_position_is_one_line(fields: dict[str, object], line: str) -> None:
    assert place_line(PLACE.model_copy(update=fields)) == line


def test_plain_output_prints_a_queue_position_when_it_changes() -> None:
    printed = io.StringIO()
    view = plain_stages(printed)
    for ahead in (2, 2, 1):
        view.show_place(PLACE.model_copy(update={"ahead": ahead, "position": ahead + 1}))
    assert printed.getvalue() == "queued, 2 ahead\nqueued, 1 ahead\n"


def test_plain_output_says_what_a_stage_waits_for() -> None:
    printed = io.StringIO()
    view = plain_stages(printed)
    view.show_event(event(EventType.STAGE_STARTED, stage="package"))
    view.show_event(
        event(EventType.PROGRESS, stage="package", done=0, total=0, detail="waiting for a device")
    )
    assert printed.getvalue() == "package    waiting for a device\n"


def test_the_queued_event_does_not_repeat_a_printed_position() -> None:
    printed = io.StringIO()
    view = plain_stages(printed)
    view.show_place(PLACE)
    view.show_event(event(EventType.QUEUED))
    view.show_event(event(EventType.STARTED, worker="w1"))
    assert printed.getvalue() == "queued, next\nstarted on w1\n"


def test_a_fused_functions_name_is_cut_to_a_part_of_the_line() -> None:
    name = "fused_" + "tir_sigmoid_" * 20
    line = event_line(event(EventType.PROGRESS, stage="build", done=7, total=24, detail=name))
    assert line is not None
    assert line.startswith("build      7 of 24 functions, fused_tir_sigmoid")
    assert line.endswith("…")
    assert len(line) < 80


def test_a_missing_worker_is_reported_with_advice() -> None:
    lines = list(error_lines(NoWorkerError("a worker whose processor has amx")))
    assert "drop --no-wait" in lines[-1]


def test_advice_names_the_option_that_compiles_unverified() -> None:
    lines = list(error_lines(NoWorkerError("a worker with a GPU", can_be_unverified=True)))
    assert "--option verification=none" in lines[-1] and "--no-wait" not in lines[-1]
    problem = make_problem(ErrorCode.TARGET_NOT_RUNNABLE, "ask for `verification: none`")
    lines = list(problem_lines(problem))
    assert lines[1] == "  ask for `--option verification=none`"
    assert "`--option verification=none`" in lines[-1] and "verification: none" not in lines[-1]


def test_a_waiting_compilation_is_listed_with_its_target() -> None:
    for target, shown in (("host", "host"), ("skylake-avx512", "skylake-avx512")):
        request = CompilationRequest.model_validate({"model": "0" * 64, "target": target})
        waiting = Compilation(id="01234567", state=JobState.QUEUED, request=request, created_at=now())
        assert jobs_row(waiting)[4] == shown


def test_workers_are_a_table_with_a_row_for_each_task() -> None:
    at = datetime(2026, 1, 1, 12, tzinfo=UTC)
    tasks = tuple(
        RunningTask(kind=kind, id="0123456789abcdef" * 4, began_at=at - timedelta(seconds=90), stage=stage)
        for kind, stage in ((TaskKind.COMPILE, Stage.TUNE), (TaskKind.INSPECT, None))
    )
    seen_at = at - timedelta(seconds=1)
    worker = some_worker(mcpu="m", versions={"torch": "2.13.0"}, running=tasks, seen_at=seen_at)
    workers = WorkerList(items=(worker, worker.model_copy(update={"running": ()})))
    rows = list(worker_rows(workers, at))
    assert [row[0] for row in rows] == ["w1", "", "w1"]
    assert [row[7] for row in rows] == [
        f"compile {'0123456789abcdef' * 2} tune for 90 s",
        f"inspect {'0123456789abcdef' * 2} for 90 s",
        "idle",
    ]


def test_a_second_attempt_starts_the_timeline_anew() -> None:
    timeline = Timeline(attempt=1, running=Stage.TUNE).after(event(EventType.STARTED, attempt=2))
    assert (timeline.attempt, timeline.running) == (2, None)


def test_events_of_a_newer_server_are_ignored() -> None:
    timeline = Timeline(attempt=1)
    assert timeline.after(event(EventType.STAGE_STARTED, stage="polish")) == timeline
    assert timeline.after(event(EventType.PROGRESS, stage="tune")) == timeline


@pytest.mark.parametrize(
    ("happened", "line"),
    [
        (event(EventType.QUEUED), "queued"),
        (event(EventType.STARTED, worker="w1", attempt=1), "started on w1"),
        (event(EventType.STARTED, worker="w1", attempt=2), "started on w1, attempt 2"),
        (event(EventType.STAGE_STARTED, stage="tune"), None),
        (event(EventType.STAGE_FINISHED, stage="tune", seconds=1.5), "tune       1.50 s"),
        (
            event(EventType.PROGRESS, stage="tune", done=3, total=64, detail="best"),
            "tune       3 of 64 trials, best",
        ),
        (event(EventType.PROGRESS, stage="tune", done=3, total=0), "tune       3 trials"),
        (event(EventType.PROGRESS, stage="tune", done=0, total=0, detail="waiting"), "tune       waiting"),
        (event(EventType.PROGRESS, stage="polish", done=3, total=9), "polish     3 of 9"),
        (event(EventType.SUCCEEDED), None),
    ],
)
def test_an_event_is_at_most_one_line(happened: Event, line: str | None) -> None:
    assert event_line(happened) == line


@pytest.mark.parametrize(
    ("stage", "searches", "line"),
    [
        ("tune", False, "tune       0.12 s (no search)"),
        ("tune", True, "tune       0.12 s"),
        ("build", False, "build      0.12 s"),
    ],
)
def test_the_stage_tune_says_if_nothing_was_searched(stage: str, searches: bool, line: str) -> None:
    printed = io.StringIO()
    stages = PlainStages(Console(file=printed, force_terminal=False, width=80), searches=searches)
    stages.show_event(event(EventType.STAGE_FINISHED, stage=stage, seconds=0.12))
    assert printed.getvalue() == f"{line}\n"


def test_plain_output_prints_progress_of_the_search_and_of_slow_stages() -> None:
    printed = io.StringIO()
    view = plain_stages(printed)
    start = now()
    for seconds, kind, stage in (
        (0.0, EventType.STAGE_STARTED, "optimize"),
        (0.02, EventType.PROGRESS, "optimize"),
        (2.5, EventType.PROGRESS, "optimize"),
        (2.6, EventType.STAGE_FINISHED, "optimize"),
        (2.6, EventType.STAGE_STARTED, "tune"),
        (2.7, EventType.PROGRESS, "tune"),
    ):
        data = {"stage": stage, "done": 1, "total": 2, "seconds": 2.6}
        view.show_event(Event(seq=1, type=kind, at=start + timedelta(seconds=seconds), data=data))
    lines = [line.strip() for line in printed.getvalue().splitlines()]
    assert lines == ["optimize   1 of 2 passes", "optimize   2.60 s", "tune       1 of 2 trials"]


def test_a_preflight_lists_unsupported_operators_first() -> None:
    known = OperatorUse(name="aten.linear.default", calls=12, flops=1_083_600, supported=True)
    unknown = OperatorUse(name="aten.i0.default", calls=1, flops=0, supported=False)
    found = Preflight(
        compiles=False,
        problems=(),
        operators=(known, unknown),
        flops=1_083_600,
        parameters=542_230,
        parameter_bytes=2_168_920,
        peak_activation_bytes=173_056,
    )
    assert list(preflight_lines(found)) == [
        "translates  no",
        "parameters  542,230 (2.1 MiB)",
        "work        1,083,600 floating-point operations in products and convolutions",
        "activations 169.0 KiB at most, before fusion",
        "operator             calls  flops",
        "aten.i0.default      1                 UNSUPPORTED",
        "aten.linear.default  12     1,083,600",
    ]


def test_a_preflight_says_for_which_dynamic_sizes_its_work_holds() -> None:
    found = Preflight(
        compiles=True,
        problems=(),
        operators=(),
        flops=64,
        sizes={"batch": 4, "length": 16},
        parameters=8,
        parameter_bytes=32,
        peak_activation_bytes=64,
    )
    assert list(preflight_lines(found))[2:4] == [
        "work        64 floating-point operations in products and convolutions, at batch=4, length=16",
        "activations 64 B at most, before fusion, at batch=4, length=16",
    ]


def test_a_preflight_of_an_irmodule_has_no_figures_that_were_not_counted() -> None:
    found = Preflight(
        compiles=True,
        problems=(),
        operators=(OperatorUse(name="relax.matmul", calls=1, flops=0, supported=True),),
        flops=None,
        parameters=0,
        parameter_bytes=0,
        peak_activation_bytes=None,
    )
    labels = [line.split()[0] for line in preflight_lines(found)]
    assert labels == ["translates", "parameters", "operator", "relax.matmul"]


@pytest.mark.parametrize(("template", "printed"), [("", NO_RULE), ("RULES = (\n)", "RULES = (\n)")])
def test_rules_to_fill_in_are_printed_or_said_to_be_absent(
    capsys: pytest.CaptureFixture[str], template: str, printed: str
) -> None:
    preflight = Preflight(
        compiles=True,
        problems=(),
        rule_template=template,
        operators=(),
        flops=0,
        parameters=0,
        parameter_bytes=0,
        peak_activation_bytes=0,
    )
    report = minimal_report().model_copy(update={"preflight": preflight})
    show_preflight(report, quiet=True, explain=True)
    assert capsys.readouterr().err == f"{printed}\n"


def test_methods_that_are_not_compiled_are_noted() -> None:
    (line,) = other_method_lines(("decode", "encode"))
    assert line.startswith("methods     decode, encode are not compiled")
    assert list(other_method_lines(())) == []


def test_the_snapshot_table_marks_passes_that_changed_nothing() -> None:
    nothing = IrText(offset=0, packed_bytes=0, text_bytes=0)
    counts = IrCounts(
        functions=1, kernels=5, operators=0, calls=5, blocks=16, loops=43, constants=6, constant_bytes=24
    )
    step = IrStep(
        step=21,
        stage=Stage.OPTIMIZE,
        phase="clean",
        name="DeadCodeElimination",
        seconds=0.0005,
        changed=False,
        counts=counts,
        text=nothing,
        diff=nothing,
    )
    _, line = step_lines(IrListing(items=(step,)))
    assert " ".join(line.split()) == "21 optimize clean DeadCodeElimination 0.5 1 5 0 5 43 unchanged"


def test_a_reader_that_closes_the_pipe_gets_no_error_message() -> None:
    program = """
import typer
from bessemer.cli.output import reporting

def lines():
    with reporting():
        while True:
            print("line", flush=True)

typer.run(lines)
"""
    command = f"{sys.executable} -c '{program}' | head -n 1"
    ran = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=True)
    assert (ran.stdout, ran.stderr) == ("line\n", "")


def test_a_field_that_the_detail_explains_is_not_printed_twice() -> None:
    error = FieldError(field="entry", message="no entry point 'nope'")
    problem = make_problem(ErrorCode.REQUEST_INVALID, "entry: no entry point 'nope'", errors=(error,))
    assert sum("nope" in line for line in problem_lines(problem)) == 1


@pytest.mark.parametrize(
    ("count", "more"),
    [(0, ()), (3, ()), (4, ("3 shown; --limit shows more",)), (9, ("3 shown; --limit shows more",))],
)
def test_a_list_says_when_there_are_more_entries_than_it_shows(count: int, more: tuple[str, ...]) -> None:
    assert first_of(iter(range(count)), 3) == (tuple(range(min(count, 3))), more)
