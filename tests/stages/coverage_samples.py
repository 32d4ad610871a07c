"""Functions and modules of torch that are neither products nor convolutions, each with inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import tvm
from family_samples import Array, source_of
from stage_samples import capture_module, make_context, optimized
from torch import nn

from worker.candidates.client import CandidateClient
from worker.compiler.codegen.link import link_shared
from worker.compiler.schedules.default import schedule_rest, unclaimed_functions

IMAGE = (2, 16, 12, 10)
ROWS = (3, 50)


@dataclass(frozen=True)
class Case:
    """A torch function with its inputs or the shapes of its float inputs."""

    name: str
    function: Callable[..., Any]
    given: tuple[tuple[int, ...] | torch.Tensor, ...] = (ROWS,)
    low: float = -3.0
    high: float = 3.0
    dtype: torch.dtype = torch.float32
    tolerance: float = 1e-5

    def inputs(self) -> tuple[torch.Tensor, ...]:
        """Seeded random inputs."""
        generator = torch.Generator().manual_seed(0)
        return tuple(
            given if isinstance(given, torch.Tensor) else self._random(given, generator)
            for given in self.given
        )

    def _random(self, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
        numbers = torch.rand(shape, generator=generator) * (self.high - self.low) + self.low
        return numbers.to(self.dtype)


class Together(nn.Module):
    """All functions in one model: each has its own inputs, and the outputs follow one another."""

    def __init__(self, cases: tuple[Case, ...]) -> None:
        super().__init__()
        self.cases = cases
        self.parts = nn.ModuleList(case.function for case in cases if isinstance(case.function, nn.Module))

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        """The outputs of all cases, in order."""
        rest, outputs = list(inputs), []
        for case in self.cases:
            own, rest = rest[: len(case.given)], rest[len(case.given) :]
            result = case.function(*own)
            outputs += [result] if isinstance(result, torch.Tensor) else list(result)
        return outputs


@dataclass(frozen=True)
class Run:
    """The results of functions compiled as one model and run once."""

    unclaimed: tuple[str, ...]
    code: str
    computed: tuple[Array, ...]
    expected: tuple[Array, ...]


def run_together(
    server: CandidateClient, cases: tuple[Case, ...], target: tvm.target.Target, folder: Path
) -> Run:
    """Compile functions for a target at zero trials, and run them in a process of the server."""
    captured = capture_module(Together(cases), *(tensor for case in cases for tensor in case.inputs()))
    module = schedule_rest(optimized(captured, make_context(folder)).module, target)
    executable = tvm.compile(module, target)
    path = folder / "functions.so"
    executable.export_library(str(path), fcompile=link_shared, workspace_dir=str(folder))
    with server.open_library(path, threads=2) as library:
        computed = tuple(map(np.asarray, library.run(captured.inputs)))
    return Run(unclaimed_functions(module), source_of(executable.mod), computed, captured.references)


def _over(name: str, dim: int) -> Case:
    return Case(f"{name}-{dim}", lambda x: getattr(torch, name)(x, dim=dim), (IMAGE,))


def _named(*names: str, low: float = -3.0, high: float = 3.0) -> tuple[Case, ...]:
    return tuple(Case(name, getattr(torch, name), low=low, high=high) for name in names)


def _aligned(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x, size=(17, 23), mode="bilinear", align_corners=True)


INDICES = torch.tensor([[0, 3, 19, 7], [4, 4, 2, 1]])
PAIR = (ROWS, ROWS)

ACTIVATIONS = (
    *(
        Case(type(module).__name__.lower(), module)
        for module in (
            nn.Hardswish(),
            nn.Hardsigmoid(),
            nn.Hardtanh(),
            nn.ELU(),
            nn.SELU(),
            nn.CELU(1.3),
            nn.Mish(),
            nn.Softplus(),
            nn.SiLU(),
            nn.GLU(-1),
            nn.LeakyReLU(0.1),
            nn.ReLU6(),
            nn.Tanhshrink(),
            nn.Softsign(),
            nn.Softshrink(),
            nn.Hardshrink(),
            nn.Threshold(0.1, 2.0),
            nn.LogSigmoid(),
            nn.Sigmoid(),
            nn.Tanh(),
            nn.GELU(),
        )
    ),
    Case("gelu-tanh", nn.GELU("tanh")),
    Case("prelu", nn.PReLU(16), (IMAGE,)),
    Case("half-gelu", nn.GELU(), dtype=torch.float16, tolerance=2e-3),
)

MATHEMATICS = (
    *_named("exp", "expm1", "sin", "cos", "tan", "atan", "sinh", "cosh", "asinh", "abs", "square", "sign"),
    *_named("floor", "ceil", "round", "trunc", "erf", "frac"),
    *_named("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", low=0.1),
    *_named("asin", "acos", "atanh", low=-0.99, high=0.99),
    Case("acosh", torch.acosh, low=1.01, high=9),
    Case("pow-tensor", torch.pow, PAIR, low=0.1),
    Case("pow-half", lambda x: x**0.5, low=0.1),
    Case("pow-other", lambda x: x**2.5, low=0.1),
    Case("pow-base", lambda x: 10000.0**x, low=-1, high=1),
    Case("atan2", torch.atan2, PAIR),
    Case("remainder", lambda x: torch.remainder(x, 0.7)),
    Case("clamp", lambda x: x.clamp(-1, 1)),
    Case("where", lambda x, y: torch.where(x > 0, x, y), PAIR),
    Case("masked-fill", lambda x: x.masked_fill(x > 0, -1e9)),
    Case("logical", lambda x: (x > 0) & ~(x > 1) | (x < -2)),
    Case("isnan", lambda x: torch.isnan(x) | torch.isinf(x)),
    Case("double-sin", torch.sin, dtype=torch.float64, tolerance=1e-12),
)

NORMS_AND_REDUCTIONS = (
    Case("layer-norm", nn.LayerNorm(50)),
    Case("group-norm", nn.GroupNorm(4, 16), (IMAGE,)),
    Case("instance-norm", nn.InstanceNorm2d(16, affine=True), (IMAGE,)),
    Case("rms-norm", nn.RMSNorm(50)),
    Case("batch-norm", lambda x: F.batch_norm(x, None, None, training=True), ((3, 16, 5, 4),)),
    Case("normalize", lambda x: F.normalize(x, dim=1), (IMAGE,)),
    Case("local-response-norm", nn.LocalResponseNorm(3), (IMAGE,)),
    Case("softmax-last", nn.Softmax(-1)),
    Case("softmax-first", nn.Softmax(0)),
    Case("softmax-channels", nn.Softmax(1), (IMAGE,)),
    Case("log-softmax-channels", nn.LogSoftmax(1), (IMAGE,)),
    *(_over(name, dim) for name in ("sum", "amax", "argmax", "var") for dim in (-1, 1, 0)),
    *(_over(name, 1) for name in ("mean", "amin", "argmin", "logsumexp", "std", "cumsum")),
    Case("sum-all", lambda x: x.sum(), (IMAGE,)),
    Case("sum-two", lambda x: x.sum((0, 2)), (IMAGE,)),
    Case("mean-but-channels", lambda x: x.mean((0, 2, 3)), (IMAGE,)),
    Case("prod", lambda x: x.prod(1), (IMAGE,), low=0.5, high=1.5),
    Case("max", lambda x: x.max(1), (IMAGE,)),
    Case("min", lambda x: x.min(-1), (IMAGE,)),
    Case("any", lambda x: (x > 2.9).any(1), (IMAGE,)),
    Case("all", lambda x: (x > -2.9).all(-1), (IMAGE,)),
    Case("norm", lambda x: x.norm(dim=1), (IMAGE,)),
    Case("cumsum-last", lambda x: x.cumsum(-1), (IMAGE,)),
    Case("cumprod", lambda x: x.cumprod(-1), (IMAGE,), low=0.5, high=1.5),
    Case("global-mean", lambda x: x.mean((2, 3)), (IMAGE,)),
    Case("adaptive-average", nn.AdaptiveAvgPool2d(1), (IMAGE,)),
    Case("adaptive-irregular", nn.AdaptiveAvgPool2d(3), (IMAGE,)),
    Case("max-pool", nn.MaxPool2d(3, 2, 1), ((1, 3, 12, 16),)),
    Case("average-pool", nn.AvgPool2d(2), ((1, 3, 12, 16),)),
    Case("max-pool-1d", nn.MaxPool1d(2), ((1, 5, 32),)),
    Case("half-softmax", nn.Softmax(-1), dtype=torch.float16, tolerance=2e-3),
    Case("double-softmax", nn.Softmax(0), dtype=torch.float64, tolerance=1e-12),
    Case("int-sum", lambda x: x.sum(0), (torch.arange(150).reshape(3, 50),)),
    Case("int-max", lambda x: x.amax(-1), (torch.arange(150, dtype=torch.int32).reshape(3, 50),)),
    Case("bool-sum", lambda x: x.sum(-1), (torch.arange(150).reshape(3, 50) % 3 == 0,)),
)

MOVEMENT = (
    Case("transpose", lambda x: x.t().contiguous() * 1.5, ((37, 45),)),
    Case("transpose-3d", lambda x: x.permute(2, 0, 1).contiguous(), ((5, 19, 33),)),
    Case("transpose-heads", lambda x: x.transpose(1, 2).contiguous(), ((1, 19, 4, 16),)),
    Case("transpose-4d", lambda x: x.permute(0, 2, 3, 1).contiguous(), (IMAGE,)),
    Case("transpose-5d", lambda x: x.permute(0, 3, 1, 4, 2).contiguous(), ((2, 3, 4, 5, 6),)),
    Case("transpose-exp", lambda x: torch.exp(x.t()) + 1, ((37, 45),)),
    Case("transpose-add", lambda x, y: x.t() + y, ((37, 45), (45, 37))),
    Case("transpose-half", lambda x: x.t() * 2, dtype=torch.float16, given=((37, 45),)),
    Case("transpose-bytes", lambda x: x.t() + 1, (torch.arange(120, dtype=torch.int8).reshape(3, 40),)),
    Case("cat-first", lambda x, y: torch.cat([x, y], 0), (ROWS, (4, 50))),
    Case("cat-channels", lambda x, y: torch.cat([x, y], 1), (IMAGE, IMAGE)),
    Case("cat-relu", lambda x, y: torch.relu(torch.cat([torch.sigmoid(x), y], -1)), (ROWS, (3, 17))),
    Case("stack", lambda x, y: torch.stack([x, y], 1), PAIR),
    Case("split", lambda x: torch.split(x, [10, 17, 23], -1)),
    Case("chunk-gate", lambda x: x.chunk(2, 1)[0] * torch.sigmoid(x.chunk(2, 1)[1]), (IMAGE,)),
    Case("slice", lambda x: x[:, 3:40:2]),
    Case("select", lambda x: x[:, 4] * 2, (IMAGE,)),
    Case("pad-constant", lambda x: F.pad(x, (1, 2, 3, 0), value=0.5), (IMAGE,)),
    Case("pad-reflect", lambda x: F.pad(x, (1, 2, 3, 1), mode="reflect"), (IMAGE,)),
    Case("pad-replicate", lambda x: F.pad(x, (1, 2, 3, 1), mode="replicate"), (IMAGE,)),
    Case("pad-circular", lambda x: F.pad(x, (1, 2, 3, 1), mode="circular"), (IMAGE,)),
    Case("flip", lambda x: x.flip(-1), (IMAGE,)),
    Case("roll", lambda x: x.roll((2, 3), (2, 3)), (IMAGE,)),
    Case("embedding", nn.Embedding(20, 33), (INDICES,)),
    Case("gather", lambda x, i: torch.gather(x, 0, i), ((20, 4), INDICES)),
    Case("index-select", lambda x, i: torch.index_select(x, 1, i[0]), ((3, 20), INDICES)),
    Case("index", lambda x, i: x[i], ((20, 9), INDICES)),
    Case("one-hot", lambda i: F.one_hot(i, 20), (INDICES,)),
    Case("tile", lambda x: x.repeat(2, 3)),
    Case("expand", lambda x: x.expand(4, 3, 50) + 1),
    Case("repeat-interleave", lambda x: x.repeat_interleave(2, 1)),
    Case("resize-nearest", lambda x: F.interpolate(x, scale_factor=2), (IMAGE,)),
    Case("resize-bilinear", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (IMAGE,)),
    Case("resize-aligned", _aligned, (IMAGE,)),
    Case("resize-bicubic", lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), (IMAGE,)),
    Case("pixel-shuffle", nn.PixelShuffle(2), (IMAGE,)),
    Case("pixel-unshuffle", nn.PixelUnshuffle(2), (IMAGE,)),
    Case("channel-shuffle", nn.ChannelShuffle(4), (IMAGE,)),
    Case("tril", torch.tril, ((20, 20),)),
    Case("arange", lambda x: x + torch.arange(50)),
)

SERIAL = (
    Case("sort", lambda x: torch.sort(x, -1)),
    Case("argsort", lambda x: torch.argsort(x, -1)),
    Case("topk", lambda x: torch.topk(x, 5, -1)),
    Case("scatter", lambda x, i, y: torch.scatter(x, 0, i, y), ((20, 4), INDICES, (2, 4))),
)

GROUPS = {
    "activations": ACTIVATIONS,
    "mathematics": MATHEMATICS,
    "norms and reductions": NORMS_AND_REDUCTIONS,
    "movement": MOVEMENT,
    "serial": SERIAL,
}
