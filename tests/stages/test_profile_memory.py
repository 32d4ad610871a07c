"""What the profile of a library does not count."""

import resource
from pathlib import Path

import numpy as np
import pytest
import torch
from stage_samples import capture_module, make_context, untuned
from torch import nn

from worker.candidates import library as library_module
from worker.candidates.library import FunctionTimer, LoadedLibrary
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


def test_a_profile_does_not_count_the_first_touch_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fork_server(tmp_path) as candidates:
        context = make_context(tmp_path, candidates)
        built = build(untuned(capture_module(LargeSums(), torch.randn(1, 256)), context), context)
    monkeypatch.setattr(library_module, "FunctionTimer", CountsFaults)
    loaded = LoadedLibrary(built.library)
    loaded.run((np.ones((1, 256), "float32"),))

    loaded.profile(2)

    assert CountsFaults.faults < BYTES / PAGE_BYTES / 10
