"""Builds the candidates of a search as programs, and has devices time them in batches.

Emits, for each batch, ``candidates.tar.zst``::

    candidates.json     the command of each candidate: a program's path, and its arguments
    7/candidate         the program, the same for all candidates of a search
    7/candidate.so      the candidate
"""

from __future__ import annotations

import io
import json
import pickle
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import zstandard
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.builder import BuilderInput
from tvm.s_tir.meta_schedule.runner import PyRunner, RunnerInput
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from bessemer.contract.device import MAX_CANDIDATES
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import SearchDevice
from worker.candidates.client import CandidateClient
from worker.candidates.requests import BuildCandidate, Evaluation, MeasureOutcome
from worker.compiler.codegen.standalone.candidate import (
    CANDIDATE_LIBRARY,
    CANDIDATE_PROGRAM,
    CandidateParts,
    candidate_parts,
    write_candidate,
    write_candidate_program,
)
from worker.compiler.schedules.default import follow_plans
from worker.compiler.target import CompileTarget, device_features
from worker.compiler.tuning.meta_schedule import (
    RUN_TIMEOUT_SECONDS,
    BuilderSettings,
    CandidateBuilder,
    FinishedRun,
    describe_candidate,
)
from worker.errors import JobError
from worker.measure.devices import Devices
from worker.protocol.messages import CANDIDATES_ARCHIVE, CandidatesBuilt
from worker.protocol.order import TimedCandidate

COMMANDS = "candidates.json"
LEVEL = 3


class NoDeviceError(JobError):
    """No device is left to time candidates; the search ends with what it has."""

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorCode.TUNE_FAILED, f"no device measured: {reason}")


@dataclass(frozen=True)
class Timing:
    """How each program of a batch is timed."""

    rounds: int
    repeat: int
    repeat_seconds: float
    timeout_seconds: float = RUN_TIMEOUT_SECONDS


@dataclass
class DeviceBench:
    """The devices of one search.

    Attributes:
        devices: time a batch.
        archive: the file of the batch that a device times.
        target: the target.
        seen: the devices that have timed batches, in the order of their first.
        failure: why no device is left to time candidates; None while one may be.
    """

    devices: Devices
    archive: Path
    target: CompileTarget
    seen: list[SearchDevice] = field(default_factory=list)
    failure: str | None = None

    def time(
        self, commands: Sequence[Sequence[str]], files: Mapping[str, Path], timing: Timing
    ) -> tuple[TimedCandidate, ...]:
        """Have a device run programs in turns.

        Args:
            commands: the command of each: the path of a program among ``files``, and its arguments.
            files: the files by their paths on the device.
            timing: how each program is timed.

        Raises:
            NoDeviceError: no device does.
        """
        self.require()
        write_batch(self.archive, commands, files)
        built = CandidatesBuilt(
            platform=self.target.platform,
            device_features=device_features(self.target),
            count=len(commands),
            rounds=timing.rounds,
            repeat=timing.repeat,
            repeat_seconds=timing.repeat_seconds,
            timeout_seconds=timing.timeout_seconds,
        )
        answer = self.devices.time(built)
        self.archive.unlink()
        if answer.device is None:
            self.failure = answer.reason
            raise NoDeviceError(answer.reason)
        if answer.device not in self.seen:
            self.seen.append(answer.device)
        return answer.candidates

    def require(self) -> None:
        """Raise ``NoDeviceError`` if no device is left to time candidates."""
        if self.failure is not None:
            raise NoDeviceError(self.failure)


def bench_of(devices: Devices | None, output: Path, target: CompileTarget) -> DeviceBench | None:
    """The devices of a search; None if this machine measures."""
    return None if devices is None else DeviceBench(devices, output / CANDIDATES_ARCHIVE, target)


def write_batch(archive: Path, commands: Sequence[Sequence[str]], files: Mapping[str, Path]) -> None:
    """Write programs, and how to call them, as a tar archive that zstd compresses."""
    text = json.dumps({"candidates": commands}).encode()
    compressor = zstandard.ZstdCompressor(level=LEVEL)
    with (
        archive.open("wb") as raw,
        compressor.stream_writer(raw, closefd=False) as packed,
        tarfile.open(fileobj=packed, mode="w|") as tar,
    ):
        entry = tarfile.TarInfo(COMMANDS)
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))
        for name, path in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = path.stat().st_size, 0o755
            with path.open("rb") as file:
                tar.addfile(entry, file)


def write_inputs(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays as the program of a bundle reads them."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            storable = array.view(np.uint16) if array.dtype.name == "bfloat16" else array
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, storable, allow_pickle=False)


def device_builder(
    candidates: CandidateClient, settings: BuilderSettings, parts: CandidateParts
) -> CandidateBuilder:
    """A builder of libraries for devices, each in a folder of its own."""

    def describe(build_input: BuilderInput, number: int) -> BuildCandidate:
        build = partial(build_for_device, build_input.mod, build_input.target, parts)
        return BuildCandidate(pickle.dumps(build), str(settings.folder / str(number) / CANDIDATE_LIBRARY))

    return CandidateBuilder(candidates, settings, describe)


def build_for_device(
    module: tvm.IRModule, target: tvm.target.Target, parts: CandidateParts, library: str
) -> None:
    """Compile a candidate in this process to a library for devices."""
    module = follow_plans(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module), target)
    path = Path(library)
    path.parent.mkdir()
    write_candidate(module, target, parts, path)


@derived_object
class DeviceCandidateRunner(PyRunner):
    """Has a device time candidates, then removes their libraries.

    If no device does, every candidate fails: an exception would not pass through TVM. The bench knows.
    """

    def __init__(self, bench: DeviceBench, parts: CandidateParts, evaluation: Evaluation) -> None:
        super().__init__()
        self.bench = bench
        self.parts = parts
        self.evaluation = evaluation
        self.program: Path | None = None

    def run(self, runner_inputs: list[RunnerInput]) -> list[Any]:
        """Run each library as often as it is among the inputs; every future is done on return."""
        described = [describe_candidate(runner_input) for runner_input in runner_inputs]
        commands = {
            candidate.library: (
                f"{Path(candidate.library).parent.name}/{CANDIDATE_PROGRAM}",
                *(f"{one.dtype}:{_sizes(one.shape)}" for one in candidate.arguments),
            )
            for candidate in described
        }
        rounds = len(described) // len(commands)
        timed: dict[str, TimedCandidate] = {}
        for first in range(0, len(commands), MAX_CANDIDATES):
            libraries = list(commands)[first : first + MAX_CANDIDATES]
            found = self.time([commands[library] for library in libraries], libraries, rounds)
            timed |= dict(zip(libraries, found, strict=True))
        for library in commands:
            Path(library).unlink()
        return [
            FinishedRun(_outcome(timed[candidate.library], index // len(commands)))
            for index, candidate in enumerate(described)
        ]

    def time(
        self, commands: Sequence[tuple[str, ...]], libraries: Sequence[str], rounds: int
    ) -> tuple[TimedCandidate, ...]:
        """Time a batch; all fail if no device does."""
        if self.program is None:
            made = write_candidate_program(Path(libraries[0]), self.parts)
            self.program = made.rename(made.parent.with_name(CANDIDATE_PROGRAM))
        folders = [Path(library).parent.name for library in libraries]
        files = {f"{folder}/{CANDIDATE_PROGRAM}": self.program for folder in folders}
        files |= {
            f"{folder}/{CANDIDATE_LIBRARY}": Path(library)
            for folder, library in zip(folders, libraries, strict=True)
        }
        repeats, seconds = self.evaluation.repeats, self.evaluation.repeat_seconds
        try:
            return self.bench.time(commands, files, Timing(rounds, repeats, repeats * seconds))
        except NoDeviceError as error:
            return tuple(TimedCandidate(error=error.detail) for _ in commands)


def device_tools(
    candidates: CandidateClient, settings: BuilderSettings, bench: DeviceBench, evaluation: Evaluation
) -> tuple[Any, Any]:
    """The builder and the runner of a search on devices.

    Raises:
        LinkError: what candidates share cannot be compiled.
    """
    parts = candidate_parts(bench.target.resolved.triple, settings.folder)
    return (
        device_builder(candidates, settings, parts),
        DeviceCandidateRunner(bench, parts, evaluation),
    )


def _sizes(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _outcome(timed: TimedCandidate, turn: int) -> MeasureOutcome:
    if timed.error is not None:
        return MeasureOutcome(seconds=(), error=timed.error)
    return MeasureOutcome(seconds=(timed.seconds[turn],), error=None)
