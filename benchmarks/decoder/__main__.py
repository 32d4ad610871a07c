"""Measures a decoder's tokens per second beside other runtimes: ``make bench-decoder``."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.decoder.model import MAX_LENGTH, PROMPT, build, programs
from benchmarks.decoder.results import Case, CaseResult, Clock, DecoderResults, RuntimeResult
from benchmarks.decoder.runtimes import OURS, PEERS, Logits, Place, Runtime
from benchmarks.decoder.side import DecoderSide
from benchmarks.machine import describe
from benchmarks.models.compiling import QUICK
from benchmarks.models.results import Ratio, State
from benchmarks.models.side import LOAD_SECONDS, SideFailedError, print_to, receive
from bessemer.client import Client
from examples.local_service import local_service
from worker.candidates.process import fork_process, send_value
from worker.measure.statistics import latency, round_ratios

RESULTS = Path(__file__).parents[1] / "results"
ROUNDS = 10
STEPS = 40
TOLERATED_ERROR = 1e-3
"""llama.cpp rounds parts of a layer to float16."""

DECODE_RUNS, PROMPT_RUNS = 5, 1
CASES = (
    Case(tokens=len(PROMPT), position=0),
    *(Case(tokens=1, position=position) for position in (16, MAX_LENGTH // 2, MAX_LENGTH - 1)),
)
READS = 5
COMPILE_SECONDS = 1800.0
_GIGA = 1e9


def main() -> None:
    """Compile, compare, measure, and write the results."""
    arguments = _arguments()
    runtimes = (OURS, *(peer for peer in PEERS if not arguments.peers or peer.name in arguments.peers))
    threads = arguments.threads
    began, load_before = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="bessemer-decoder-") as folder:
        place = Place(Path(folder), threads)
        if arguments.bundle is None:
            _compile(place)
        else:
            place.bundle.symlink_to(arguments.bundle.resolve())
        expected = _expected(place)
        plan = Plan(runtimes, arguments.rounds, Clock.PROCESSOR if arguments.processor_time else Clock.WALL)
        found, speed = _measure(place, plan, expected)
    results = DecoderResults(
        machine=describe(tuple(sorted({one.package for one in runtimes if one.version is not None}))),
        measured_at=datetime.now(UTC),
        minutes=round((time.monotonic() - began) / 60, 1),
        load_before=round(load_before, 2),
        load_after=round(os.getloadavg()[0], 2),
        threads=threads,
        rounds=arguments.rounds,
        clock=plan.clock,
        parameters=expected.parameters,
        max_length=MAX_LENGTH,
        read_gb_per_second=round(speed / _GIGA, 2),
        runtimes=found,
    )
    path = arguments.output or RESULTS / f"{results.measured_at:%Y-%m-%d}-decoder.json"
    path.write_text(results.model_dump_json(indent=2) + "\n")
    print(f"written to {path}, after {results.minutes} minutes")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-decoder", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each runtime in each case")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads")
    parser.add_argument("--processor-time", action="store_true", help="time the process, not the clock")
    parser.add_argument("--peers", nargs="*", help=f"of {', '.join(peer.name for peer in PEERS)}")
    parser.add_argument("--bundle", type=Path, help="a bundle of an earlier run")
    parser.add_argument("--output", type=Path, help="the results file")
    return parser.parse_args()


def _compile(place: Place) -> None:
    """Export in a process of its own: a process that forks after a parallel region hangs."""
    print("compiling", flush=True)

    def run(_reader: int, writer: int) -> None:
        with local_service(place.folder / "service") as url, Client(url) as client:
            job = client.submit(programs(), target="host", benchmark=QUICK, cache=False).wait()
            job.download(place.bundle)
        send_value(writer, job.id)

    process = fork_process(run)
    try:
        receive(process, COMPILE_SECONDS)
    finally:
        process.kill()


@dataclass(frozen=True)
class Expected:
    """What transformers' own ``generate`` writes after the prompt.

    Attributes:
        logits: those after the prompt, ``[WORDS]``.
        tokens: the tokens.
        parameters: the number of the model's parameters.
    """

    logits: Logits
    tokens: tuple[int, ...]
    parameters: int


def _expected(place: Place) -> Expected:
    """Run torch in a process of its own too."""

    def run(_reader: int, writer: int) -> None:
        print_to(place.log)
        torch.set_num_threads(place.threads)
        model = build()
        prompt = torch.tensor([PROMPT])
        with torch.no_grad():
            written = model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                min_new_tokens=STEPS,
                max_new_tokens=STEPS,
                do_sample=False,
                cache_implementation=None,
            )
            logits = model(prompt).logits[0, -1].numpy()
        count = sum(value.numel() for value in model.parameters())
        send_value(writer, Expected(logits, tuple(map(int, written[0, len(PROMPT) :])), count))

    process = fork_process(run)
    try:
        answer: Expected = receive(process, LOAD_SECONDS)
    finally:
        process.kill()
    return answer


@dataclass(frozen=True)
class Plan:
    """What is measured, ours first; how many turns each runtime has in a case, and by which clock."""

    runtimes: tuple[Runtime, ...]
    rounds: int
    clock: Clock


def _measure(place: Place, plan: Plan, expected: Expected) -> tuple[list[RuntimeResult], float]:
    """The results in order, and the fastest read of memory in bytes per second."""
    found = {
        one.name: RuntimeResult(name=one.name, form=one.form, version=one.version) for one in plan.runtimes
    }
    sides: dict[str, DecoderSide] = {}
    try:
        for runtime in plan.runtimes:
            print(f"loading {runtime.name}", flush=True)
            _start(sides, runtime, place, expected, found[runtime.name])
        seconds = min(_read_seconds(4 * expected.parameters, place.threads) for _ in range(READS))
        for case in CASES:
            print(f"measuring {case.title}", flush=True)
            _take_turns(sides, case, plan, found)
    finally:
        for side in sides.values():
            side.close()
    return list(found.values()), 4 * expected.parameters / seconds


def _start(
    sides: dict[str, DecoderSide], runtime: Runtime, place: Place, expected: Expected, result: RuntimeResult
) -> None:
    try:
        side = DecoderSide.start(partial(runtime.load, place), PROMPT, STEPS, place.log)
    except SideFailedError as error:
        result.state = State.MISSING if error.missing else State.FAILED
        result.note = str(error)
        return
    written = side.written
    result.ready_seconds = round(written.seconds, 1)
    result.error = float(np.abs(written.logits - expected.logits).max() / np.abs(expected.logits).max())
    result.tokens = list(written.tokens)
    if written.tokens != expected.tokens or not result.error <= TOLERATED_ERROR:
        result.state, result.note = State.DIFFERS, "its tokens or logits differ from torch's"
        side.close()
        return
    sides[runtime.name] = side


def _take_turns(
    sides: dict[str, DecoderSide], case: Case, plan: Plan, found: dict[str, RuntimeResult]
) -> None:
    """Time every side in turns: A B C A B C …."""
    runs = DECODE_RUNS if case.tokens == 1 else PROMPT_RUNS
    turns: dict[str, list[tuple[float, ...]]] = {name: [] for name in sides}
    for _ in range(plan.rounds):
        for name, side in sides.items():
            turns[name].append(side.time(case, PROMPT, runs, plan.clock))
    ours = turns.get(OURS.name)
    for name, timed in turns.items():
        result = CaseResult(case=case, latency=latency([each for turn in timed for each in turn]))
        if ours is not None and name != OURS.name:
            spread = round_ratios(ours, timed)
            result.ratio = Ratio(p10=spread.p10, median=spread.p50, p90=spread.p90)
        found[name].cases.append(result)


def _read_seconds(count: int, threads: int) -> float:
    """Seconds of adding up ``count`` bytes of float32 with all threads: the floor of a step of decoding."""

    def run(_reader: int, writer: int) -> None:
        torch.set_num_threads(threads)
        values = torch.ones(count // 4)
        seconds = []
        for _ in range(READS):
            began = time.perf_counter()
            values.sum()
            seconds.append(time.perf_counter() - began)
        send_value(writer, min(seconds))

    process = fork_process(run)
    try:
        return float(receive(process, LOAD_SECONDS))
    finally:
        process.kill()


if __name__ == "__main__":
    main()
