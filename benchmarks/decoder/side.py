"""A process per runtime, which takes turns and is stopped between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from benchmarks.decoder.results import Case, Clock
from benchmarks.decoder.runtimes import Logits, Step
from benchmarks.models.side import (
    RUN_SECONDS,
    MissingError,
    SideFailedError,
    Unready,
    first_answer,
    print_to,
    receive,
    stop,
)
from worker.candidates.process import ForkedProcess, Work, fork_process, receive_value, send_value


@dataclass(frozen=True)
class Written:
    """What a runtime writes after a prompt: the logits after the prompt, and the most likely tokens."""

    logits: Logits
    tokens: tuple[int, ...]
    seconds: float


@dataclass
class DecoderSide:
    """A runtime in a process of its own."""

    process: ForkedProcess
    written: Written

    @classmethod
    def start(cls, load: Callable[[], Step], prompt: Sequence[int], steps: int, log: Path) -> Self:
        """Load the model in a new process, and let it continue a prompt.

        Raises:
            SideFailedError: it is missing, raised, died or timed out.
        """
        process = fork_process(_work(load, prompt, steps, log))
        return cls(process, first_answer(process))

    def time(self, case: Case, prompt: Sequence[int], runs: int, clock: Clock) -> tuple[float, ...]:
        """Seconds of each of ``runs`` runs, after one that is not counted. Raises ``SideFailedError``."""
        self.process.resume()
        self.process.send((case, tuple(prompt), runs, clock))
        answer: Any = receive(self.process, RUN_SECONDS)
        stop(self.process)
        if isinstance(answer, Unready):
            raise SideFailedError(answer.reason)
        return tuple(answer)

    def close(self) -> None:
        """End the process."""
        self.process.kill()


def write_greedily(step: Step, prompt: Sequence[int], steps: int) -> tuple[Logits, tuple[int, ...]]:
    """The logits after a prompt, and the ``steps`` tokens that follow, each the most likely."""
    first = logits = step(prompt, 0)
    tokens = [int(logits.argmax())]
    while len(tokens) < steps:
        logits = step(tokens[-1:], len(prompt) + len(tokens) - 1)
        tokens.append(int(logits.argmax()))
    return first, tuple(tokens)


def _work(load: Callable[[], Step], prompt: Sequence[int], steps: int, log: Path) -> Work:
    def work(reader: int, writer: int) -> None:
        print_to(log)
        began = time.perf_counter()
        try:
            step = load()
            logits, tokens = write_greedily(step, prompt, steps)
            send_value(writer, Written(logits, tokens, time.perf_counter() - began))
            while True:
                send_value(writer, _times(step, *receive_value(reader)))
        except (EOFError, BrokenPipeError):
            raise
        except MissingError as error:
            send_value(writer, Unready(str(error), missing=True))
        except Exception as error:
            send_value(writer, Unready(f"{type(error).__name__}: {error}"[:500], missing=False))

    return work


def _times(step: Step, case: Case, prompt: Sequence[int], runs: int, clock: Clock) -> list[float]:
    """Seconds of runs in one place; before each, an untimed step cuts the caches that grow."""
    now = time.process_time if clock is Clock.PROCESSOR else time.perf_counter
    found = []
    for _ in range(runs + 1):
        if case.position:
            step(prompt[:1], case.position - 1)
        began = now()
        step(prompt[: case.tokens], case.position)
        found.append(now() - began)
    return found[1:]
