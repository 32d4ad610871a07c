"""Compiled code grows linearly with the model: chains of functions, slices of joins, recurrences."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from family_samples import fuzz
from hypothesis import given
from stage_samples import TARGET, Function, capture_module, make_context, optimized
from torch import nn
from torch.nn import functional as F
from tvm import te, tirx

from benchmarks.compile_time.graphs import Graph, GraphModel, graphs
from worker.candidates.client import CandidateClient
from worker.compiler.codegen.executable import build_library
from worker.compiler.pipeline.verify import compare_outputs
from worker.compiler.schedules.conditions import fold_conditions
from worker.compiler.schedules.default import default_schedule, schedule_rest
from worker.compiler.schedules.repeated_loads import count_nodes
from worker.compiler.schedules.vector_math import with_vector_math
from worker.compiler.target import compile_target
from worker.compiler.values import StageContext

LLVM = compile_target(TARGET).llvm

pytestmark = pytest.mark.filterwarnings("ignore:.*assigned during export:UserWarning")


class LastStep(nn.Module):
    """A classifier of the last state of a recurrence."""

    def __init__(self, recurrence: nn.Module) -> None:
        super().__init__()
        self.recurrence = recurrence
        self.classify = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.recurrence(x)
        return self.classify(states[:, -1])


def scheduled_nodes(body: Callable[..., torch.Tensor], folder: Path) -> int:
    """Nodes of all scheduled functions of a model."""
    ready = optimized(capture_module(Function(body), torch.randn(4, 16)), make_context(folder))
    functions = schedule_rest(ready.module, LLVM).functions.values()
    return sum(count_nodes(function.body) for function in functions if isinstance(function, tirx.PrimFunc))


def repeated(function: Callable[[torch.Tensor], torch.Tensor], times: int) -> Callable[..., torch.Tensor]:
    def body(_: nn.Module, x: torch.Tensor) -> torch.Tensor:
        for _ in range(times):
            x = function(x)
        return x

    return body


@pytest.mark.sampled
@pytest.mark.parametrize(
    "function",
    [
        F.celu,
        F.mish,
        lambda x: x * torch.sigmoid(x),
        lambda x: torch.where(x > 0, x.tanh(), F.gelu(x)),
        lambda x: torch.cat(F.mish(x).chunk(2, 1)[::-1], 1),
        lambda x: x + x.roll(1, 1),
    ],
    ids=["celu", "mish", "silu", "where", "swapped halves", "sum with a rolled tensor"],
)
def test_a_chain_grows_by_as_much_with_every_link(
    function: Callable[[torch.Tensor], torch.Tensor], tmp_path: Path
) -> None:
    two, four, six = (scheduled_nodes(repeated(function, times), tmp_path) for times in (2, 4, 6))

    assert six - four <= 2 * (four - two)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "recurrence",
    [
        nn.LSTM(8, 16, batch_first=True),
        nn.GRU(8, 16, batch_first=True),
        nn.LSTM(8, 8, num_layers=2, bidirectional=True, batch_first=True),
    ],
    ids=["lstm", "gru", "two layers in both directions"],
)
@pytest.mark.parametrize("steps", [2, 16])
def test_a_classifier_of_the_last_step_compiles(
    recurrence: nn.Module, steps: int, server: CandidateClient, tmp_path: Path
) -> None:
    verify_model(LastStep(recurrence), torch.randn(1, steps, 8), server, make_context(tmp_path))


@pytest.mark.slow
@given(graph=graphs())
@fuzz(12)
def test_a_random_graph_compiles_and_agrees_with_torch(
    graph: Graph, server: CandidateClient, tmp_path: Path
) -> None:
    verify_model(GraphModel(graph), torch.randn(graph.shape), server, make_context(tmp_path))


def verify_model(model: nn.Module, x: torch.Tensor, server: CandidateClient, context: StageContext) -> None:
    ready = optimized(capture_module(model, x, verify={"absolute": 1e-3, "relative": 1e-3}), context)
    library = context.output / "model.so"
    build_library(schedule_rest(ready.module, LLVM), LLVM, library, context.scratch / "objects")
    with server.open_library(library, threads=2) as opened:
        outputs = opened.run(ready.captured.inputs)
    assert not any(one.mismatches for one in compare_outputs(outputs, ready.captured, ready.captured.example))


@pytest.mark.parametrize("start", [0, 5, 8], ids=["the first part", "across both", "the second part"])
def test_a_slice_of_a_join_reads_only_the_parts_it_crosses_without_branches(start: int) -> None:
    first, second = te.placeholder((8,), name="first"), te.placeholder((8,), name="second")
    join = te.compute((16,), lambda i: te.if_then_else(i < 8, first[i], second[i - 8]), name="join")
    piece = te.compute((8,), lambda i: join[i + start], name="piece")

    code = default_schedule(te.create_prim_func([first, second, piece]), LLVM).script()

    assert "if_then_else" not in code
    read = set(re.findall(r"(first|second)\[", code))
    assert read == {0: {"first"}, 5: {"first", "second"}, 8: {"second"}}[start]


@pytest.mark.sampled
@pytest.mark.parametrize("function", [lambda value: value, te.tanh], ids=["copied", "computed"])
def test_a_join_of_a_thousand_parts_does_not_outgrow_the_stack(function: Callable[..., object]) -> None:
    x = te.placeholder((1000,), name="x")

    def joined(i: tirx.Var) -> object:
        value: object = function(x[i])
        for part in range(1, 1000):
            value = te.if_then_else(i >= part, function(x[i - part]), value)
        return value

    y = te.compute((1000,), joined, name="y")

    assert with_vector_math(fold_conditions(te.create_prim_func([x, y]))) is not None


@pytest.mark.sampled
@pytest.mark.parametrize("index", [0, 1, 2, slice(1, 3), slice(0, 2), -1])
def test_a_selection_of_a_value_that_is_not_inlined_is_right(
    index: int | slice, server: CandidateClient, tmp_path: Path
) -> None:
    model = Function(lambda _, x: F.silu(F.gelu(x))[:, index])

    verify_model(model, torch.randn(2, 3, 1), server, make_context(tmp_path))


def test_a_condition_on_data_is_evaluated_at_run_time() -> None:
    x = te.placeholder((8,), name="x")
    y = te.compute((8,), lambda i: te.if_then_else(x[i] > 0, te.sqrt(x[i]), 0.0), name="y")

    code = default_schedule(te.create_prim_func([x, y]), LLVM).script()

    assert "if_then_else" in code


def test_nothing_is_bound_inside_an_expression() -> None:
    x = te.placeholder((8,), name="x")
    y = te.compute((8,), lambda i: te.if_then_else(i > 3, te.tanh(te.exp(x[i])), x[i]), name="y")

    code = default_schedule(te.create_prim_func([x, y]), LLVM).script()

    assert "Let(" not in code
