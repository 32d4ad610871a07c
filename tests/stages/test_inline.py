from pathlib import Path

import numpy as np
import torch
from stage_samples import Function, capture_module, make_workshop, optimized
from torch import nn

from worker.candidates.client import CandidateClient
from worker.executable import build_library
from worker.schedules.default import schedule_rest
from worker.targets import tvm_target


def test_halves_of_shuffled_channels_are_both_written(server: CandidateClient, tmp_path: Path) -> None:
    def body(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        joined = torch.cat([x[:, :8], self.first(x[:, 8:]).relu()], 1)
        shuffled = joined.view(1, 2, 8, 8, 8).transpose(1, 2).reshape(1, 16, 8, 8)
        left, right = shuffled.chunk(2, 1)
        return torch.cat([left, self.second(right).relu()], 1)

    module = Function(body, first=nn.Conv2d(8, 8, 1), second=nn.Conv2d(8, 8, 1))
    ready = optimized(capture_module(module, torch.randn(1, 16, 8, 8)), make_workshop(tmp_path))
    target = tvm_target(ready.captured.upload.target)
    path = tmp_path / "model.so"
    build_library(schedule_rest(ready.module, target), target, path, tmp_path / "objects")
    with server.open_library(path, threads=2) as library:
        (computed,) = library.run(ready.captured.inputs)

    np.testing.assert_allclose(computed, ready.captured.references[0], rtol=1e-4, atol=1e-5)
