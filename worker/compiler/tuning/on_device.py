"""Builds the candidates of a search as programs, and has devices time them in batches.

Emits, for each batch, ``candidates.tar.zst``::

    candidates.json     the command of each candidate: a program's path, and its arguments
    7/candidate         the program, the same for all candidates of a search
    7/candidate.so      the candidate

For a GPU::

    candidate           the program
    7/launches          what a run of the candidate starts
    7/kernels.fatbin    its machine code
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
from typing import Any, Protocol

import numpy as np
import tvm
import zstandard
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.builder import BuilderInput
from tvm.s_tir.meta_schedule.runner import PyRunner, RunnerInput
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from bessemer.contract.capability import platform_of_target
from bessemer.contract.device import MAX_CANDIDATES
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import SearchDevice
from worker.candidates.client import CandidateClient
from worker.candidates.requests import BuildCandidate, Evaluation, MeasureCandidate, MeasureOutcome
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
from worker.protocol.devices import Devices
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
    """How each program of a batch is timed, and whether all are ``together`` on one device."""

    rounds: int
    repeat: int
    repeat_seconds: float
    timeout_seconds: float = RUN_TIMEOUT_SECONDS
    together: bool = True


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
        """Have devices run programs in turns.

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
            platform=platform_of_target(self.target.resolved),
            device_features=device_features(self.target),
            count=len(commands),
            together=timing.together,
            rounds=timing.rounds,
            repeat=timing.repeat,
            repeat_seconds=timing.repeat_seconds,
            timeout_seconds=timing.timeout_seconds,
        )
        answer = self.devices.time(built)
        self.archive.unlink()
        if not answer.devices:
            self.failure = answer.reason
            raise NoDeviceError(answer.reason)
        self.seen += [device for device in answer.devices if device not in self.seen]
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


@dataclass(frozen=True)
class DeviceProgram:
    """How a device runs a candidate: a command in its folder, and the files there, by their paths."""

    command: tuple[str, ...]
    files: Mapping[str, Path]


class DevicePrograms(Protocol):
    """The programs of a search's candidates."""

    def of(self, candidate: MeasureCandidate) -> DeviceProgram:
        """The program of a candidate that was built."""
        ...

    def remove(self, library: str) -> None:
        """Remove a candidate that was timed."""
        ...


class ProcessorPrograms:
    """Each candidate is a library, and has a program of its own name beside it."""

    def __init__(self, parts: CandidateParts) -> None:
        self._parts = parts
        self._program: Path | None = None

    def of(self, candidate: MeasureCandidate) -> DeviceProgram:
        """See ``DevicePrograms.of``."""
        library = Path(candidate.library)
        if self._program is None:
            made = write_candidate_program(library, self._parts)
            self._program = made.rename(made.parent.with_name(CANDIDATE_PROGRAM))
        program = f"{library.parent.name}/{CANDIDATE_PROGRAM}"
        files = {program: self._program, f"{library.parent.name}/{CANDIDATE_LIBRARY}": library}
        return DeviceProgram((program, *tensor_words(candidate)), files)

    def remove(self, library: str) -> None:
        """See ``DevicePrograms.remove``."""
        Path(library).unlink()


@derived_object
class DeviceCandidateRunner(PyRunner):
    """Has devices time candidates, then removes them.

    If no device does, every candidate fails: an exception would not pass through TVM. The bench knows.

    Attributes:
        together: whether one device must time all candidates of the next run.
    """

    def __init__(
        self,
        bench: DeviceBench,
        programs: DevicePrograms,
        evaluation: Evaluation,
        timeout_seconds: float = RUN_TIMEOUT_SECONDS,
    ) -> None:
        super().__init__()
        self.bench = bench
        self.programs = programs
        self.evaluation = evaluation
        self.timeout_seconds = timeout_seconds
        self.together = True

    def run(self, runner_inputs: list[RunnerInput]) -> list[Any]:
        """Run each candidate as often as it is among the inputs; every future is done on return."""
        described = [describe_candidate(runner_input) for runner_input in runner_inputs]
        different = list({candidate.library: candidate for candidate in described}.values())
        rounds = len(described) // len(different)
        timed: dict[str, TimedCandidate] = {}
        for first in range(0, len(different), MAX_CANDIDATES):
            some = different[first : first + MAX_CANDIDATES]
            found = self.time([self.programs.of(candidate) for candidate in some], rounds)
            timed |= {candidate.library: one for candidate, one in zip(some, found, strict=True)}
        for candidate in different:
            self.programs.remove(candidate.library)
        return [
            FinishedRun(_outcome(timed[candidate.library], index // len(different)))
            for index, candidate in enumerate(described)
        ]

    def time(self, programs: Sequence[DeviceProgram], rounds: int) -> tuple[TimedCandidate, ...]:
        """Time a batch; all fail if no device does."""
        files = {name: path for program in programs for name, path in program.files.items()}
        repeats, seconds = self.evaluation.repeats, self.evaluation.repeat_seconds
        timing = Timing(rounds, repeats, repeats * seconds, self.timeout_seconds, self.together)
        try:
            return self.bench.time([program.command for program in programs], files, timing)
        except NoDeviceError as error:
            return tuple(TimedCandidate(error=error.detail) for _ in programs)


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
        DeviceCandidateRunner(bench, ProcessorPrograms(parts), evaluation),
    )


def tensor_words(candidate: MeasureCandidate) -> tuple[str, ...]:
    """A candidate's arguments as its program reads them, such as ``float32:64x128``."""
    return tuple(f"{one.dtype}:{'x'.join(map(str, one.shape)) or 'scalar'}" for one in candidate.arguments)


def _outcome(timed: TimedCandidate, turn: int) -> MeasureOutcome:
    if timed.error is not None:
        return MeasureOutcome(seconds=(), error=timed.error)
    return MeasureOutcome(seconds=(timed.seconds[turn],), error=None)
