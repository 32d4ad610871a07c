"""A function that takes too long to compile is split into its parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from capture_samples import capture_file, exported
from stage_samples import Function, capture_module, compile_to_library, make_context, optimized
from torch import nn
from tvm import tirx

from bessemer.contract.problem import ErrorCode
from bessemer.contract.stage import Stage
from worker.candidates.client import CandidateClient
from worker.candidates.requests import CompileBatch, CompileFunctions
from worker.candidates.server import fork_server
from worker.compiler.pipeline.build import build
from worker.compiler.pipeline.tune import tune
from worker.compiler.pipeline.verify import verify
from worker.compiler.values import Built, StageContext
from worker.errors import JobError
from worker.protocol.observer import JobObserver

AT_ONCE = 0.001


class Hurried:
    """A candidate server with a tiny time limit for some functions."""

    def __init__(self, server: CandidateClient, is_hurried: Callable[[str], bool]) -> None:
        self._server = server
        self._is_hurried = is_hurried
        self.ordered: list[tuple[str, ...]] = []

    def compile_many(self, batch: CompileBatch, progress: Any) -> Any:
        self.ordered.append(tuple(name for group in batch.groups for name in group.names))
        return self._server.compile_many(
            replace(batch, groups=tuple(map(self._hurry, batch.groups))), progress
        )

    def _hurry(self, group: CompileFunctions) -> CompileFunctions:
        return replace(group, seconds=AT_ONCE) if any(map(self._is_hurried, group.names)) else group

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)


@pytest.fixture
def server(tmp_path: Path) -> Any:
    with fork_server(tmp_path) as candidates:
        yield candidates


def whole(name: str) -> bool:
    return name.startswith("fused") and "_part" not in name


def hurried(server: CandidateClient, folder: Path, is_hurried: Callable[[str], bool]) -> StageContext:
    return make_context(folder, Hurried(server, is_hurried))


def built(context: StageContext, module: nn.Module, *inputs: torch.Tensor, **request: Any) -> Built:
    captured = capture_module(module, *inputs, **request)
    return compile_to_library(captured, context)


MODELS: dict[str, tuple[nn.Module, torch.Tensor]] = {
    "chain": (Function(lambda _, x: torch.tanh(x).exp().transpose(0, 1)[1:] * 2), torch.randn(4, 6)),
    "several outputs": (
        Function(lambda _, x: torch.split(torch.sigmoid(x.squeeze(0)) + 1, 2, dim=-1)),
        torch.randn(1, 3, 6),
    ),
    "reduction": (
        Function(lambda self, x: torch.relu(self.linear(x)) + 1, linear=nn.Linear(6, 5)),
        torch.randn(4, 6),
    ),
    "called twice": (
        Function(lambda _, x: (torch.tanh(x).exp() * 2).cumsum(0).tanh().exp() * 2),
        torch.randn(4, 6),
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize(("module", "x"), MODELS.values(), ids=MODELS)
def test_a_function_over_its_time_limit_is_split_and_the_library_is_right(
    server: CandidateClient, tmp_path: Path, module: nn.Module, x: torch.Tensor
) -> None:
    context = hurried(server, tmp_path, whole)
    library = built(context, module, x)
    assert library.splits
    names = {str(variable.name_hint) for variable in library.module.get_global_vars()}
    for split in library.splits:
        assert split.name not in names
        assert set(split.parts) <= names
        assert len(split.parts) > 1
    assert verify(library, context).comparisons


def test_objects_compiled_before_a_split_are_kept(server: CandidateClient, tmp_path: Path) -> None:
    candidates = Hurried(server, whole)
    context = make_context(tmp_path, candidates)
    module = Function(lambda self, x: torch.tanh(self.pool(x)).exp(), pool=nn.MaxPool1d(2))
    built(context, module, torch.randn(1, 2, 8))
    first, *later = candidates.ordered
    assert later
    again = [name for names in later for name in names if name in first and not whole(name)]
    assert again == []


def test_a_split_function_names_its_operators(server: CandidateClient, tmp_path: Path) -> None:
    linear = nn.Linear(6, 5)
    module = Function(lambda self, x: self.linear(torch.tanh(x).exp() * 2), linear=linear)
    library = built(hurried(server, tmp_path, whole), module, torch.randn(4, 6))
    (split,) = (split for split in library.splits if "tanh" in split.name)
    assert [place.operator for place in split.places] == [
        "aten.tanh.default",
        "aten.exp.default",
        "aten.mul.Tensor",
    ]
    assert all(place.file and place.line for place in split.places)


def test_a_part_over_its_time_limit_ends_the_job_with_its_name_and_places(
    server: CandidateClient, tmp_path: Path
) -> None:
    module = Function(lambda _, x: (torch.tanh(x).exp() * 2).cumsum(0))
    with pytest.raises(JobError, match=r"_part\d*, a part of fused") as caught:
        built(hurried(server, tmp_path, lambda name: name.startswith("fused")), module, torch.randn(4, 6))
    assert caught.value.code is ErrorCode.FUNCTION_TOO_SLOW
    assert "aten.exp.default" in {place.operator for place in caught.value.places}


def test_a_function_with_dynamic_sizes_is_split(server: CandidateClient, tmp_path: Path) -> None:
    module = Function(lambda _, x: torch.cat([torch.tanh(x).exp() * 2, x], 1))
    sizes = ({0: torch.export.Dim("batch", max=64), 1: torch.export.Dim("length", max=64)},)
    captured = capture_file(exported(module, tmp_path / "model", torch.randn(4, 6, 8), dynamic_shapes=sizes))
    context = hurried(server, tmp_path, whole)
    library = compile_to_library(captured, context)
    assert library.splits
    assert len(verify(library, context).comparisons) > 1


def test_build_reports_which_function_of_how_many_it_compiles(
    server: CandidateClient, tmp_path: Path
) -> None:
    news: list[tuple[int, int, str]] = []

    class Progress(JobObserver):
        def progress(self, stage: Stage, done: int, total: int, detail: str, estimate: Any = None) -> None:
            news.append((done, total, detail))

    context = replace(make_context(tmp_path, server), observer=Progress())
    module = Function(lambda self, x: torch.tanh(self.linear(x).cumsum(0)), linear=nn.Linear(6, 5))
    captured = capture_module(module, torch.randn(4, 6))
    tuned = tune(optimized(captured, context), context)
    news.clear()
    library = build(tuned, context)
    functions = [f for f in library.module.functions.values() if isinstance(f, tirx.PrimFunc)]
    names = {str(variable.name_hint) for variable in library.module.get_global_vars()}
    total = len(functions) + 1  # the check of the input
    assert {of for _, of, _ in news} == {total}
    counts = [done for done, _, _ in news]  # functions that end at the same time are counted at once
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, total)
    assert {name for *_, name in news} <= names | {"", "check_input_float32_4x6"}


def test_only_the_slow_function_of_a_slow_group_is_split(server: CandidateClient, tmp_path: Path) -> None:
    def body(self: Any, x: torch.Tensor) -> torch.Tensor:
        for size in range(1, 40):
            x = (
                torch.tanh(self.pool(x[:, : 2 * (60 - size)]).repeat(1, 2)).exp()
                if size == 9
                else x.cumsum(1)[:, 1:]
            )
        return x

    candidates = Hurried(server, lambda name: "tanh" in name and "_part" not in name)
    context = make_context(tmp_path, candidates)
    library = built(context, Function(body, pool=nn.AvgPool1d(2)), torch.randn(2, 120))
    assert len(candidates.ordered[0]) >= 64
    assert all("tanh" in split.name for split in library.splits)
    assert len(library.splits) == 1
    assert verify(library, context).comparisons
