import os
import pickle
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tvm
from tvm import relax
from tvm.script import tirx as T

from bessemer.contract.problem import ErrorCode
from bessemer.contract.records import NOT_COMPILED
from worker.candidates.client import CandidateClient, CandidateServerLostError, LibraryCrashedError, Timeouts
from worker.candidates.measuring import fill
from worker.candidates.requests import (
    NO_TIME,
    BuildBatch,
    BuildCandidate,
    BuildOutcome,
    CompileBatch,
    CompileFunctions,
    CompileOutcome,
    CompileProgress,
    Evaluation,
    MeasureBatch,
    MeasureCandidate,
    MeasureOutcome,
    TensorArgument,
)
from worker.candidates.server import fork_server
from worker.compiler.codegen import link
from worker.compiler.codegen.generate import write_object
from worker.compiler.codegen.link import LinkError, link_shared
from worker.compiler.target import host_mcpu
from worker.compiler.tuning.meta_schedule import build_library
from worker.errors import JobError

SIZE = 64
PATIENCE_SECONDS = 60
TARGET = {"kind": "llvm", "mcpu": host_mcpu(), "num-cores": 2}
ARGUMENTS = (TensorArgument("float32", (SIZE,)), TensorArgument("float32", (SIZE,)))
EVALUATION = Evaluation(repeats=2, repeat_seconds=0.001)


@T.prim_func(s_tir=True)
def doubles(a: T.Buffer((64,), "float32"), b: T.Buffer((64,), "float32")) -> None:
    for i in range(64):
        with T.sblock("double"):
            vi = T.axis.spatial(64, i)
            b[vi] = a[vi] * T.float32(2)


@T.prim_func(s_tir=True)
def aborts(a: T.Buffer((64,), "float32"), b: T.Buffer((64,), "float32")) -> None:
    T.evaluate(T.call_extern("int32", "abort"))


@T.prim_func(s_tir=True)
def hangs(a: T.Buffer((64,), "float32"), b: T.Buffer((64,), "float32")) -> None:
    T.evaluate(T.call_extern("int32", "pause"))


@T.prim_func(s_tir=True)
def leaves(a: T.Buffer((64,), "float32"), b: T.Buffer((64,), "float32")) -> None:
    T.evaluate(T.call_extern("int32", "_exit", 0))


class Runs:
    """Pickles to a call, as a candidate that attacks its builder would."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.call


@pytest.fixture
def server(tmp_path: Path) -> Iterator[CandidateClient]:
    with fork_server(tmp_path) as client:
        yield client


def payload_of(function: Any) -> bytes:
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    return pickle.dumps(partial(build_library, module, tvm.target.Target(TARGET)))


def build(
    client: CandidateClient,
    folder: Path,
    payloads: list[bytes],
    timeout_seconds: float = 60.0,
    left_seconds: float = inf,
) -> tuple[BuildOutcome, ...]:
    candidates = tuple(
        BuildCandidate(payload=payload, library=str(folder / f"{index}.so"))
        for index, payload in enumerate(payloads)
    )
    batch = BuildBatch(
        candidates=candidates, workers=2, timeout_seconds=timeout_seconds, left_seconds=left_seconds
    )
    return client.build_many(batch)


def measure(
    client: CandidateClient, outcomes: tuple[BuildOutcome, ...], timeout_seconds: float = 60.0
) -> tuple[MeasureOutcome, ...]:
    candidates = tuple(MeasureCandidate(outcome.library, ARGUMENTS) for outcome in outcomes)
    batch = MeasureBatch(
        candidates=candidates, threads=2, evaluation=EVALUATION, timeout_seconds=timeout_seconds
    )
    return client.measure_many(batch)


def newest_child() -> psutil.Process:
    """The candidate server; process ids wrap around, so their order says nothing."""
    return max(psutil.Process().children(), key=lambda child: float(child.create_time()))


def build_model(folder: Path, rows: int) -> Path:
    """A library whose ``main`` applies the exponential function to rows times 4096 numbers, in parallel."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((rows, 4096), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit_te(tvm.topi.exp, x))
    from worker.compiler.schedules.default import schedule_rest

    target = tvm.target.Target(TARGET)
    executable = tvm.compile(schedule_rest(builder.get(), target), target)
    path = folder / "model.so"
    executable.export_library(str(path), fcompile=link_shared, workspace_dir=str(folder))
    return path


def test_a_candidate_that_crashes_hangs_or_leaves_fails_alone(
    server: CandidateClient, tmp_path: Path
) -> None:
    built = build(server, tmp_path, [payload_of(f) for f in (doubles, aborts, leaves, doubles)])
    assert [outcome.error for outcome in built] == [None] * 4

    outcomes = measure(server, built)

    assert [bool(outcome.seconds) for outcome in outcomes] == [True, False, False, True]
    assert "SIGABRT" in outcomes[1].error
    assert "ended by itself" in outcomes[2].error


def test_a_candidate_that_hangs_is_killed_in_time(server: CandidateClient, tmp_path: Path) -> None:
    built = build(server, tmp_path, [payload_of(hangs), payload_of(doubles)])
    outcomes = measure(server, built, timeout_seconds=6.0)
    assert "longer than 6 s" in outcomes[0].error
    assert outcomes[1].seconds


def test_a_build_that_fails_hangs_or_dies_costs_its_candidate_only(
    server: CandidateClient, tmp_path: Path
) -> None:
    payloads = [
        b"no pickle",
        pickle.dumps(Runs(time.sleep, 600)),
        pickle.dumps(Runs(os.abort)),
        pickle.dumps(Runs(os._exit, 0)),
        payload_of(doubles),
        pickle.dumps(Runs(int, "a schedule that the compiler refuses")),
        pickle.dumps(Runs(open, tmp_path / "not" / "there")),
    ]
    outcomes = build(server, tmp_path, payloads, timeout_seconds=8.0)
    assert [outcome.library is None for outcome in outcomes] == [True, True, True, True, False, True, True]
    refused = [bool(outcome.error and outcome.error.startswith(NOT_COMPILED)) for outcome in outcomes]
    assert refused == [True, False, False, False, False, True, False]
    assert "longer than 8 s" in outcomes[1].error
    assert "SIGABRT" in outcomes[2].error


def test_no_build_goes_on_when_the_batch_has_no_time_left(server: CandidateClient, tmp_path: Path) -> None:
    sleeps = pickle.dumps(Runs(time.sleep, 600))
    payloads = [payload_of(doubles), sleeps, sleeps, payload_of(doubles)]
    outcomes = build(server, tmp_path, payloads, left_seconds=8.0)
    assert [outcome.error for outcome in outcomes] == [None, NO_TIME, NO_TIME, NO_TIME]
    assert build(server, tmp_path, [payload_of(doubles)], left_seconds=0.0)[0].error == NO_TIME


def test_nothing_runs_once_the_client_has_closed(tmp_path: Path) -> None:
    path = build_model(tmp_path, rows=1)
    with fork_server(tmp_path) as client:
        client.open_library(path, threads=2)
        server = newest_child()
        libraries = server.children(recursive=True)
        assert len(libraries) == 1
    _, alive = psutil.wait_procs([server, *libraries], timeout=PATIENCE_SECONDS)
    assert not alive


def test_what_the_server_forked_dies_with_it(tmp_path: Path) -> None:
    path = build_model(tmp_path, rows=1)
    before = set(psutil.Process().children())
    client = fork_server(tmp_path)
    (server,) = set(psutil.Process().children()) - before
    client.open_library(path, threads=1)
    libraries = server.children()
    server.kill()
    _, alive = psutil.wait_procs(libraries, timeout=PATIENCE_SECONDS)
    assert len(libraries) == 1
    assert not alive
    with pytest.raises(CandidateServerLostError) as raised:
        client.open_library(path, threads=1)
    assert client.lost is raised.value
    assert client.lost.code is ErrorCode.CHILD_KILLED
    client.close()


def test_a_library_answers_with_outputs_times_and_a_profile(server: CandidateClient, tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 4096, dtype="float32").reshape(1, 4096)
    with server.open_library(build_model(tmp_path, rows=1), threads=1) as library:
        (y,) = library.run((x,))
        np.testing.assert_allclose(y, np.exp(x), rtol=1e-5)
        assert len(library.time(7)) == 7
        assert {function.name: function.calls for function in library.profile(3)}["exp"] == 1
        assert library.peak_memory_bytes() > 0


def hanging_model(folder: Path) -> Path:
    """A library whose ``main`` never returns."""
    builder = relax.BlockBuilder()
    function = builder.add_func(hangs.with_attr("tirx.is_scheduled", True), "hangs")
    x = relax.Var("x", relax.TensorType((SIZE,), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(
            builder.emit(relax.call_tir(function, x, relax.TensorType((SIZE,), "float32")))
        )
    path = folder / "model.so"
    executable = tvm.compile(builder.get(), tvm.target.Target(TARGET))
    executable.export_library(str(path), fcompile=link_shared, workspace_dir=str(folder))
    return path


def test_a_library_that_hangs_is_killed_in_time(tmp_path: Path) -> None:
    path = hanging_model(tmp_path)
    x = np.zeros(SIZE, "float32")
    timeouts = Timeouts(first_run_seconds=1.0)
    with fork_server(tmp_path, timeouts) as client, client.open_library(path, threads=1) as library:
        with pytest.raises(LibraryCrashedError, match="no answer within 1 s") as caught:
            library.run((x,))
        with pytest.raises(LibraryCrashedError, match="is gone"):
            library.run((x,))
    assert caught.value.signal == 0


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_candidates_are_timed_on_normal_numbers(dtype: str) -> None:
    values = fill(TensorArgument(dtype, (1000,))).numpy().astype("float32")
    np.testing.assert_allclose([values.mean(), values.std()], [0, 1], atol=0.1)


def test_a_file_that_is_no_library_is_a_crash_with_a_reason(server: CandidateClient, tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    path.write_bytes(b"nothing")
    with pytest.raises(LibraryCrashedError, match=r"model\.so") as caught:
        server.open_library(path, threads=1)
    assert caught.value.signal == 0


def test_a_library_that_crashes_names_the_signal(server: CandidateClient, tmp_path: Path) -> None:
    with server.open_library(build_model(tmp_path, rows=1), threads=1) as library:
        (process,) = newest_child().children()
        process.send_signal(signal.SIGABRT)
        with pytest.raises(LibraryCrashedError) as caught:
            library.run((np.zeros((1, 4096), "float32"),))
        assert caught.value.signal == signal.SIGABRT


def test_a_library_that_somebody_kills_is_no_fault_of_the_model(
    server: CandidateClient, tmp_path: Path
) -> None:
    with server.open_library(build_model(tmp_path, rows=1), threads=1) as library:
        (process,) = newest_child().children()
        process.kill()
        with pytest.raises(JobError) as caught:
            library.run((np.zeros((1, 4096), "float32"),))
    assert caught.value.code is ErrorCode.CHILD_KILLED


def test_a_library_is_stopped_while_nobody_waits_for_it(server: CandidateClient, tmp_path: Path) -> None:
    inputs = (np.zeros((1, 4096), "float32"),)
    with server.open_library(build_model(tmp_path, rows=1), threads=2) as library:
        library.run(inputs)
        (process,) = newest_child().children()
        assert process.status() == psutil.STATUS_STOPPED
        assert len(library.run(inputs)) == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_as_many_threads_burn_cpu_as_were_asked_for(
    server: CandidateClient, tmp_path: Path, threads: int
) -> None:
    rows = 512
    with server.open_library(build_model(tmp_path, rows), threads) as library:
        library.run((np.zeros((rows, 4096), "float32"),))
        library.time(600)
        (process,) = newest_child().children()
        busy = [thread for thread in process.threads() if thread.user_time > 0.05]
    assert len(busy) == threads


def test_a_linker_error_is_told(tmp_path: Path) -> None:
    with pytest.raises(LinkError, match=r"missing\.o"):
        link_shared(tmp_path / "x.so", [str(tmp_path / "missing.o")])


def test_a_linker_that_somebody_kills_is_no_fault_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = tmp_path / "killed"
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o755)
    monkeypatch.setattr(link, "linker_path", lambda: killed)
    with pytest.raises(JobError) as caught:
        link_shared(tmp_path / "x.so", [])
    assert caught.value.code is ErrorCode.CHILD_KILLED


def compiled(path: Path, seconds: float) -> CompileFunctions:
    module = tvm.IRModule({"main": doubles.with_attr("global_symbol", "main")})
    call = partial(write_object, module, tvm.target.Target(TARGET), path)
    return CompileFunctions((path.stem,), pickle.dumps(call), seconds)


def test_a_function_that_takes_too_long_is_ended_and_the_others_are_compiled(
    server: CandidateClient, tmp_path: Path
) -> None:
    told: list[CompileProgress] = []
    seconds = {"first": 60.0, "late": 0.0001, "last": 60.0}
    functions = tuple(compiled(tmp_path / f"{name}.o", given) for name, given in seconds.items())
    outcomes = server.compile_many(CompileBatch(functions, workers=1), told.append)
    assert [outcome.is_late for outcome in outcomes] == [False, True, False]
    assert [outcome.failure for outcome in outcomes] == [None, None, None]
    assert (tmp_path / "last.o").is_file()
    running = [name for news in dict.fromkeys(told) for name in news.running]
    assert running == ["first", "late", "last"]


@pytest.mark.parametrize(
    ("payload", "code", "reason"),
    [
        (b"", ErrorCode.BUILD_FAILED, "EOFError"),
        (pickle.dumps(Runs(os.abort)), ErrorCode.BUILD_FAILED, "SIGABRT"),
        (pickle.dumps(Runs(os._exit, 0)), ErrorCode.BUILD_FAILED, "ended by itself"),
        (pickle.dumps(Runs(signal.raise_signal, signal.SIGKILL)), ErrorCode.CHILD_KILLED, "SIGKILL"),
    ],
    ids=["raises", "aborts", "leaves", "killed"],
)
def test_a_function_that_cannot_be_compiled_is_an_outcome_with_its_reason(
    server: CandidateClient, tmp_path: Path, payload: bytes, code: ErrorCode, reason: str
) -> None:
    functions = (
        replace(compiled(tmp_path / "bad.o", 60.0), payload=payload),
        compiled(tmp_path / "good.o", 60.0),
    )
    bad, good = server.compile_many(CompileBatch(functions, workers=2), lambda news: None)
    assert good == CompileOutcome()
    assert bad.failure is not None
    assert bad.failure[0] is code
    assert reason in bad.failure[1]
