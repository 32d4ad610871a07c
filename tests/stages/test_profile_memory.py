"""What the profile of a library does not count."""

import os
import resource
from pathlib import Path

import numpy as np
import torch
from stage_samples import capture_module, make_context, untuned
from torch import nn

from worker.candidates import library as library_module
from worker.candidates.library import FunctionTimer, LoadedLibrary
from worker.candidates.process import fork_process, send_value
from worker.candidates.server import fork_server
from worker.compiler.pipeline.build import build

BYTES = 64 << 20
PAGE_BYTES = 4096


class CountsFaults(FunctionTimer):
    """A timer that also counts the new pages that functions write into."""

    faults: int = 0

    def instrument(self, function: object, name: str, before: bool, result: object, *rest: object) -> int:
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        type(self).faults += -faults if before else faults
        return super().instrument(function, name, before, result, *rest)


class LargeSums(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(torch.cumsum(x.expand(BYTES // 1024, 256), 1), 1).amax()


def faults_of_profile(library: Path) -> int:
    """The new pages that functions write into while this process profiles a library."""
    os.environ["TVM_NUM_THREADS"] = "1"
    library_module.FunctionTimer = CountsFaults  # type: ignore[misc]
    loaded = LoadedLibrary(library)
    loaded.run((np.ones((1, 256), "float32"),))
    loaded.profile(2)
    return CountsFaults.faults


def test_a_profile_does_not_count_the_first_touch_of_memory(tmp_path: Path) -> None:
    with fork_server(tmp_path) as candidates:
        context = make_context(tmp_path, candidates)
        built = build(untuned(capture_module(LargeSums(), torch.randn(1, 256)), context), context)
    process = fork_process(lambda _reader, writer: send_value(writer, faults_of_profile(built.library)))
    try:
        faults = process.receive()
    finally:
        process.kill()

    assert faults < BYTES / PAGE_BYTES / 10
