"""Runs the program of a bundle, which needs neither Python nor TVM, directly or in an emulator."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from worker.candidates.execute import execute


@dataclass(frozen=True)
class ProgramCall:
    """A call of an entry point: the ``.npz`` file with its inputs, and the one for its outputs."""

    entry: str
    inputs: Path
    outputs: Path


@dataclass(frozen=True)
class ProgramTimes:
    """What a program measured: milliseconds of each run, and its process's peak memory in bytes."""

    times_ms: tuple[float, ...]
    peak_memory_bytes: int


@dataclass(frozen=True)
class Program:
    """The program of a bundle.

    Attributes:
        path: the file; the library is beside it.
        launcher: the words before its path on a command line, such as those of an emulator.
        threads: the number of threads that it uses.
    """

    path: Path
    launcher: tuple[str, ...]
    threads: int

    def call(self, calls: Iterable[ProgramCall]) -> None:
        """Call entry points one after another; they share the model's state.

        Raises:
            ProgramFailedError: the program failed; the message is its own.
            JobError: ``child-killed``.
        """
        words = (("--call", one.entry, str(one.inputs), str(one.outputs)) for one in calls)
        self._run(*(word for words_of_one in words for word in words_of_one))

    def time(self, call: ProgramCall, report: Path, runs: int, seconds: float) -> ProgramTimes:
        """Run an entry point again and again on the same inputs.

        Args:
            call: the entry point and its inputs.
            report: the file that the program writes.
            runs: the most runs after the first.
            seconds: the time after which no further run starts.

        Raises:
            ProgramFailedError: the program failed; the message is its own.
            JobError: ``child-killed``.
        """
        self._run(
            *("--entry", call.entry, "--inputs", str(call.inputs), "--report", str(report)),
            *("--repeat", str(runs), "--seconds", str(seconds)),
        )
        found = json.loads(report.read_bytes())
        (entry,) = found["entries"]
        return ProgramTimes(tuple(entry["times_ms"]), int(found["peak_memory_bytes"]))

    def compare(self) -> str:
        """Run the reference inputs of the bundle, and return what the program says of the outputs.

        Raises:
            ProgramFailedError: an output differs, or the program failed; the message is its own.
            JobError: ``child-killed``.
        """
        return self._run()

    def _run(self, *arguments: str) -> str:
        command = (*self.launcher, str(self.path), "--threads", str(self.threads), *arguments)
        return execute(command, "the bundle's program")
