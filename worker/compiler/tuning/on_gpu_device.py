"""Has devices with a GPU time the candidates of a search that are built here as kernels.

Emits, in the folder of each candidate::

    launches    what a run starts, as the program of ``candidate_cuda.c`` reads it
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from worker.candidates.client import CandidateClient
from worker.candidates.gpu_timing import GpuCandidate, read_gpu_candidate
from worker.candidates.requests import Evaluation, MeasureCandidate
from worker.compiler.codegen.standalone.candidate import CANDIDATE_PROGRAM, write_gpu_candidate_program
from worker.compiler.tuning.meta_schedule import BuilderSettings
from worker.compiler.tuning.on_device import (
    DeviceBench,
    DeviceCandidateRunner,
    DeviceProgram,
    tensor_words,
)
from worker.compiler.tuning.on_gpu import RUN_TIMEOUT_SECONDS, References, gpu_builder

_LAUNCHES = "launches"


class GpuPrograms:
    """One program runs all candidates, and compares each with the default schedule of its function."""

    def __init__(self, program: Path, references: References) -> None:
        self._program = program
        self._references = references

    def of(self, candidate: MeasureCandidate) -> DeviceProgram:
        """See ``DevicePrograms.of``."""
        reference = self._references.expected.get(candidate.library)
        files = {CANDIDATE_PROGRAM: self._program, **_files(candidate.library)}
        compared: tuple[str, ...] = ()
        if reference is not None:
            files |= _files(reference)
            compared = ("--reference", f"{Path(reference).parent.name}/{_LAUNCHES}")
        launches = f"{Path(candidate.library).parent.name}/{_LAUNCHES}"
        return DeviceProgram((CANDIDATE_PROGRAM, launches, *compared, *tensor_words(candidate)), files)

    def remove(self, library: str) -> None:
        """See ``DevicePrograms.remove``."""
        self._references.expected.pop(library, None)
        shutil.rmtree(Path(library).parent, ignore_errors=True)


def _files(library: str) -> dict[str, Path]:
    """A candidate's files on a device."""
    path = Path(library)
    candidate, launches = read_gpu_candidate(path), path.with_name(_LAUNCHES)
    launches.write_text("".join(f"{line}\n" for line in launch_lines(candidate)), encoding="ascii")
    folder = path.parent.name
    return {
        f"{folder}/{_LAUNCHES}": launches,
        f"{folder}/{candidate.image}": path.with_name(candidate.image),
    }


def launch_lines(candidate: GpuCandidate) -> Iterator[str]:
    """The memory, the outputs and the launches of a candidate, one a line."""
    yield from (f"w {size}" for size in candidate.workspaces)
    yield from (f"o {index}" for index in candidate.outputs)
    for one in candidate.launches:
        numbers = (*one.grid, *one.block, one.shared_bytes, len(one.arguments), *one.arguments)
        yield " ".join(("l", one.kernel, *map(str, numbers)))


def gpu_device_tools(
    candidates: CandidateClient,
    settings: BuilderSettings,
    bench: DeviceBench,
    target: Any,
    evaluation: Evaluation,
) -> tuple[Any, Any, References]:
    """The builder, the runner and the references of a search on devices with GPUs.

    Raises:
        LinkError: the program of the candidates cannot be compiled.
    """
    resolved = bench.target.resolved
    program = settings.folder / CANDIDATE_PROGRAM
    write_gpu_candidate_program(program, resolved.triple)
    builder = gpu_builder(candidates, settings, resolved.gpus)
    references = References(builder, target)
    runner = DeviceCandidateRunner(bench, GpuPrograms(program, references), evaluation, RUN_TIMEOUT_SECONDS)
    return builder, runner, references
