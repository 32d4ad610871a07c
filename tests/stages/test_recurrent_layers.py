"""Recurrent layers become one loop over one step's functions, and agree with torch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from capture_samples import capture_file, exported, graph, scripted, traced
from family_samples import Array, outputs_compiled, target_of
from program_runs import run_program
from stage_samples import TARGET, capture_module, make_context, optimized
from torch import nn
from torch.export import Dim
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from tvm import relax

from worker.candidates.client import CandidateClient
from worker.compiler.frontend.outputs import export_flat
from worker.compiler.schedules.default import schedule_rest
from worker.compiler.schedules.processors import machine_of
from worker.compiler.schedules.recurrence import plan
from worker.compiler.schedules.recurrence.cells import GRU, LSTM, RNN_RELU, Cell
from worker.compiler.schedules.recurrence.layer import kinds_of, write_recurrence
from worker.compiler.schedules.recurrence.plan import Plan, Recurrence, Tiling, plan_recurrence
from worker.compiler.target import compile_target

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

INPUTS, UNITS = 8, 20
LLVM = compile_target(TARGET).llvm
OPERATORS = {f"aten.{name}.input" for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")}


class Layers(nn.Module):
    """Recurrent layers that take their first states, if given, and return all results."""

    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.layers = kind(INPUTS, UNITS, **options)

    def forward(self, *inputs: torch.Tensor) -> Any:
        x, *first = inputs
        states: Any = (first if isinstance(self.layers, nn.LSTM) else first[0]) if first else None
        return self.layers(x, states)


class Outputs(nn.Module):
    """Only the outputs of recurrent layers, for scripts."""

    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.layers = kind(INPUTS, UNITS, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)[0]


BOTH: dict[str, Any] = {"bidirectional": True}
CASES: dict[str, tuple[type[nn.RNNBase], dict[str, Any], tuple[int, ...]]] = {
    "lstm": (nn.LSTM, {}, (5, 3, INPUTS)),
    "lstm of one row and one step": (nn.LSTM, {}, (1, 1, INPUTS)),
    "lstm without a batch": (nn.LSTM, BOTH, (5, INPUTS)),
    "lstm of three layers": (nn.LSTM, {"num_layers": 3, "batch_first": True}, (2, 6, INPUTS)),
    "lstm in both directions": (nn.LSTM, {**BOTH, "num_layers": 2}, (5, 3, INPUTS)),
    "lstm with projections": (nn.LSTM, {**BOTH, "num_layers": 2, "proj_size": 7}, (5, 3, INPUTS)),
    "lstm without biases": (nn.LSTM, {"bias": False}, (5, 3, INPUTS)),
    "lstm that drops in training": (nn.LSTM, {"num_layers": 2, "dropout": 0.5}, (5, 3, INPUTS)),
    "lstm of many rows": (nn.LSTM, {}, (3, 17, INPUTS)),
    "gru": (nn.GRU, {}, (5, 3, INPUTS)),
    "gru in both directions": (nn.GRU, {**BOTH, "num_layers": 2, "batch_first": True}, (2, 6, INPUTS)),
    "gru without biases": (nn.GRU, {"bias": False}, (5, 1, INPUTS)),
    "rnn": (nn.RNN, {**BOTH, "num_layers": 2}, (5, 3, INPUTS)),
    "rnn of relu": (nn.RNN, {"nonlinearity": "relu", "batch_first": True}, (5, 3, INPUTS)),
}


def first_states(module: Layers, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    layers = module.layers
    count = layers.num_layers * (2 if layers.bidirectional else 1)
    batch = () if x.dim() == 2 else (x.shape[0 if layers.batch_first else 1],)
    hidden = torch.randn(count, *batch, layers.proj_size or UNITS)
    return (hidden, torch.randn(count, *batch, UNITS)) if isinstance(layers, nn.LSTM) else (hidden,)


def flat(result: Any) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else [leaf for part in result for leaf in flat(part)]


def agree(found: list[Array], expected: Any) -> bool:
    pairs = zip(found, flat(expected), strict=True)
    return all(one.shape == tuple(its.shape) and np.allclose(one, its, atol=1e-5) for one, its in pairs)


@pytest.mark.sampled
@pytest.mark.parametrize("with_states", [False, True], ids=["from zeros", "from given states"])
@pytest.mark.parametrize("name", CASES)
def test_layers_agree_with_torch(name: str, with_states: bool) -> None:
    kind, options, shape = CASES[name]
    module, x = Layers(kind, **options).eval(), torch.randn(shape)
    inputs = (x, *first_states(module, x)) if with_states else (x,)

    with torch.no_grad():
        (found,) = run_program(export_flat(module, inputs), inputs)

        assert agree(found, module(*inputs))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float16, 2e-3)])
def test_layers_compute_wide_and_narrow_numbers(dtype: torch.dtype, tolerance: float) -> None:
    module, x = Outputs(nn.GRU).eval().to(dtype), torch.randn(5, 3, INPUTS, dtype=dtype)

    ((found,),) = run_program(export_flat(module, (x,)), (x,))

    with torch.no_grad():
        assert np.allclose(found, module(x).numpy(), atol=tolerance)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (nn.LSTM, {**BOTH, "num_layers": 2}),
        (nn.LSTM, {"proj_size": 7, "batch_first": True}),
        (nn.GRU, BOTH),
        (nn.RNN, {"batch_first": True}),
    ],
)
def test_lengths_and_batches_may_be_open(kind: type[nn.RNNBase], options: dict[str, Any]) -> None:
    module = Layers(kind, **options).eval()
    calls = [(torch.randn(shape),) for shape in ((5, 3, INPUTS), (2, 9, INPUTS), (37, 2, INPUTS))]
    axes = {0: Dim("first", min=2, max=64), 1: Dim("second", min=2, max=64)}

    found = run_program(export_flat(module, calls[0], (axes,)), *calls)

    with torch.no_grad():
        assert all(agree(one, module(*call)) for one, call in zip(found, calls, strict=True))


@pytest.mark.sampled
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("save", [traced, scripted, graph])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_scripts_and_graphs_keep_their_layers_and_an_open_length(
    kind: type[nn.RNNBase], save: Callable[..., Path], tmp_path: Path
) -> None:
    module, path = Outputs(kind, num_layers=2, **BOTH).eval(), tmp_path / "model"
    save(module, path, torch.randn(5, 3, INPUTS))

    captured = capture_file(path, f"x=stepsx3x{INPUTS}", dimensions=("steps=2..64",))

    layers = [node for node in captured.program.graph.nodes if str(node.target) in OPERATORS]
    assert len(layers) == 1
    assert not captured.program.constants  # the weights are parameters, with names
    samples = (captured, *captured.samples)
    inputs = [tuple(map(torch.from_numpy, sample.inputs)) for sample in samples]
    found = run_program(captured.program, *inputs)
    assert len(found) > 1
    assert all(
        np.allclose(one, sample.references[0], atol=1e-5)
        for (one,), sample in zip(found, samples, strict=True)
    )


def functions_of(module: nn.Module, x: torch.Tensor, folder: Path) -> dict[str, int]:
    """The length of each function's text."""
    ready = optimized(capture_module(module, x), make_context(folder)).module
    return {str(name.name_hint): len(function.script()) for name, function in ready.functions_items()}


@pytest.mark.sampled
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_longer_sequence_has_no_more_functions(kind: type[nn.RNNBase], tmp_path: Path) -> None:
    module = Outputs(kind, num_layers=3)
    few, many = (functions_of(module, torch.randn(steps, 1, INPUTS), tmp_path) for steps in (10, 99))

    assert few.keys() == many.keys()
    loops = [name for name in few if name.startswith(("lstm", "gru", "rnn"))]
    assert loops
    assert all(few[name] == many[name] for name in loops)


def test_equal_layers_share_a_function(tmp_path: Path) -> None:
    two, five = (
        functions_of(Outputs(nn.LSTM, num_layers=layers), torch.randn(9, 1, INPUTS), tmp_path)
        for layers in (2, 5)
    )

    assert len(two) == len(five)


class Streaming(nn.Module):
    """One step at a time, with the states in buffers."""

    hidden: torch.Tensor
    kept: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(INPUTS, UNITS)
        self.register_buffer("hidden", torch.zeros(1, 1, UNITS))
        self.register_buffer("kept", torch.zeros(1, 1, UNITS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, (hidden, kept) = self.layer(x, (self.hidden, self.kept))
        self.hidden, self.kept = hidden, kept
        return y


@pytest.mark.parametrize("save", [exported, scripted])
def test_states_may_live_in_buffers(save: Callable[..., Path], tmp_path: Path) -> None:
    save(Streaming().eval(), tmp_path / "model", torch.randn(1, 1, INPUTS))

    captured = capture_file(tmp_path / "model", f"x=1x1x{INPUTS}")

    assert captured.states == 2
    calls = [tuple(map(torch.from_numpy, call.inputs)) for call in (captured, *captured.samples)]
    found = run_program(captured.program, *calls)
    assert len(found) > 1
    for one, call in zip(found, (captured, *captured.samples), strict=True):
        assert all(np.allclose(*pair, atol=1e-5) for pair in zip(one, call.references, strict=True))


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (nn.LSTM, {}),
        (nn.LSTM, {"proj_size": 7}),
        (nn.GRU, {"batch_first": True}),
        (nn.GRU, {"bias": False}),
        (nn.RNN, {}),
    ],
)
def test_threads_may_divide_each_step(
    kind: type[nn.RNNBase],
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    server: CandidateClient,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(plan, "_MIN_SHARED_WORK", 1)
    module = Layers(kind, num_layers=2, **options).eval()
    x = torch.randn((1, 23, INPUTS) if "batch_first" in options else (23, 1, INPUTS))
    ready = optimized(capture_module(module, x, *first_states(module, x)), make_context(tmp_path))

    found = outputs_compiled(server, schedule_rest(ready.module, LLVM), LLVM, ready.captured.inputs, tmp_path)

    assert "parallel_barrier" in ready.module.script()
    for one, expected in zip(found, ready.captured.references, strict=True):
        assert np.allclose(one, expected, atol=1e-5)


def test_threads_that_take_the_same_rows_do_not_share_states() -> None:
    asked = Recurrence(
        GRU,
        directions=2,
        units=UNITS,
        projected=None,
        length=5,
        batch=7,
        batch_first=True,
        has_lengths=False,
        dtype="float32",
    )
    tiles_of_four_rows = Plan(rows=4, units=Tiling(UNITS, 1, 16), projected=None, parallel=True, shared=False)

    text = write_recurrence(asked, tiles_of_four_rows).script()

    assert f"hidden = T.alloc_buffer((2, 2, 8, {UNITS}))" in text


LENGTHS = [4, 6, 1]
PACKED: dict[str, tuple[type[nn.RNNBase], Cell, dict[str, Any]]] = {
    "lstm": (nn.LSTM, LSTM, {}),
    "lstm in both directions with projections": (nn.LSTM, LSTM, {**BOTH, "proj_size": 7}),
    "gru in both directions": (nn.GRU, GRU, BOTH),
    "rnn": (nn.RNN, RNN_RELU, {"nonlinearity": "relu"}),
}


@pytest.mark.sampled
@pytest.mark.parametrize("mcpu", ["x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize("name", PACKED)
def test_a_row_ends_at_its_length_as_in_packed_sequences(
    name: str, mcpu: str, server: CandidateClient, tmp_path: Path
) -> None:
    kind, cell, options = PACKED[name]
    layer, x = kind(INPUTS, UNITS, **options).eval(), torch.randn(6, 3, INPUTS)
    directions, projected = 1 + layer.bidirectional, layer.proj_size or None
    asked = Recurrence(cell, directions, UNITS, projected, None, 3, False, True, "float32")
    target = target_of(mcpu)
    tiles = plan_recurrence(asked, machine_of(target))
    tensors = _tensors(layer, asked, tiles.units, tiles.projected, x)
    kinds = kinds_of(asked, tiles, 6, 3)
    inputs = tuple(
        np.ascontiguousarray(tensors[one].reshape(shape)) for one, (shape, _) in kinds.inputs.items()
    )
    builder = relax.BlockBuilder()
    variables = [relax.Var(one, relax.TensorType(*about)) for one, about in kinds.inputs.items()]
    with builder.function("main", variables):
        function = builder.add_func(write_recurrence(asked, tiles), cell.name)
        types = [relax.TensorType(*about) for about in kinds.results.values()]
        builder.emit_func_output(builder.emit(relax.call_tir(function, variables, types)))

    outputs, hidden, *_ = outputs_compiled(
        server, schedule_rest(builder.get(), target), target, inputs, tmp_path
    )

    with torch.no_grad():
        packed, states = layer(pack_padded_sequence(x, torch.tensor(LENGTHS), enforce_sorted=False))
        expected = pad_packed_sequence(packed)[0]
    assert np.allclose(outputs.reshape(expected.shape), expected.numpy(), atol=1e-5)
    assert np.allclose(hidden, flat(states)[0].numpy(), atol=1e-5)


def _tensors(
    layer: nn.RNNBase, asked: Recurrence, units: Tiling, projected: Tiling | None, x: torch.Tensor
) -> dict[str, Array]:
    """The tensors of one layer as its function takes them."""

    def of(name: str) -> Array:
        ends = ("", "_reverse")[: asked.directions]
        return np.stack([getattr(layer, f"{name}_l0{end}").detach().numpy() for end in ends])

    def packed(name: str, gates: int, tiling: Tiling) -> Array:
        matrices = of(name)
        parts = matrices.reshape(asked.directions, gates, tiling.size, -1)[:, :, list(tiling.units)]
        tiles = parts.reshape(asked.directions, gates, tiling.count, tiling.width, -1)
        return tiles.transpose(0, 2, 4, 1, 3)

    gates, inner = asked.cell.gates, asked.cell.inner
    shape = (asked.directions, gates, asked.units)
    hidden_bias = of("bias_hh").reshape(shape)
    early = np.ones((gates, 1), "float32")
    if inner is not None:
        early[inner] = 0
    bias = of("bias_ih").reshape(shape) + hidden_bias * early
    inputs = np.einsum("tbi,dgi->tbdg", x.numpy(), of("weight_ih")).reshape(*x.shape[:2], *shape) + bias
    tensors = {
        "inputs": inputs,
        "weights": packed("weight_hh", gates, units),
        "first_hidden": np.zeros((asked.directions, x.shape[1], asked.outputs), "float32"),
        "first_kept": np.zeros((asked.directions, x.shape[1], asked.units), "float32"),
        "lengths": np.array(LENGTHS),
    }
    if inner is not None:
        tensors["inner_bias"] = hidden_bias[:, inner]
    if projected is not None:
        tensors["projection"] = packed("weight_hr", 1, projected)
    return tensors
