"""Torch objects saved as files, with torch imported in this process."""

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from bessemer.cli.model_argument import call_entry_point
from bessemer.client.exporting import save_module, torch_kind
from bessemer.client.inputs import Inputs
from bessemer.client.submission import name_of_model
from bessemer.contract.tensor import DType, InputSpec
from bessemer.errors import ExportError, InvalidArgumentError


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.drop = torch.nn.Dropout()

    def forward(self, x: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        return self.drop(self.linear(x)) + shift


class Moments(NamedTuple):
    mean: torch.Tensor
    std: torch.Tensor


class Statistics(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Moments:
        return Moments(x.mean(1), x.std(1))


X, SHIFT = torch.randn(2, 4), torch.randn(3)
SPECS = (InputSpec(name="x", shape=(2, 4)), InputSpec(name="shift", shape=(3,)))


@pytest.mark.parametrize(
    "inputs",
    [
        (X, SHIFT),
        {"x": X, "shift": SHIFT},
        {"shift": (3,), "x": (2, 4)},
        {"x": "2x4:float32", "shift": np.zeros(3, np.float32)},
        SPECS,
        ["x=2x4", "shift=3"],
    ],
    ids=["tensors", "named tensors", "shapes in another order", "text and array", "specs", "text"],
)
def test_a_module_is_exported_in_evaluation_mode(tmp_path: Path, inputs: Inputs) -> None:
    net = Net()
    exported = save_module(net, inputs, tmp_path)
    loaded = torch.export.load(str(exported.path)).module()
    torch.testing.assert_close(loaded(X, SHIFT), net.eval()(X, SHIFT))
    assert exported.inputs == ()


class Difference(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x - 2 * y


def test_one_tensor_may_be_the_example_of_two_inputs(tmp_path: Path) -> None:
    exported = save_module(Difference(), (X, X), tmp_path)
    loaded = torch.export.load(str(exported.path)).module()
    torch.testing.assert_close(loaded(X, X + 1), X - 2 * (X + 1))


def test_a_module_that_returns_a_named_tuple_is_saved_with_its_fields(tmp_path: Path) -> None:
    exported = save_module(Statistics(), (X,), tmp_path)
    assert torch.export.load(str(exported.path)).module()(X)._fields == ("mean", "std")


def test_the_modules_own_modes_are_restored(tmp_path: Path) -> None:
    net = Net().train()
    net.linear.eval()
    save_module(net, (X, SHIFT), tmp_path)
    assert (net.training, net.linear.training, net.drop.training) == (True, False, True)


def test_integer_inputs_are_exported_below_every_embedding(tmp_path: Path) -> None:
    net = torch.nn.Embedding(2, 5)
    exported = save_module(net, {"input": "7:int64"}, tmp_path)
    (example,), _ = torch.export.load(str(exported.path)).example_inputs
    assert example.dtype == torch.int64


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ((), "pass its inputs"),
        ({"y": (2, 4)}, "it takes x, shift"),
        ({"x": None}, "'x'"),
        ({"x": (2, 4)}, "forward takes x, shift, but 'shift' is not among the inputs"),
        ((X,), "forward takes x, shift, but 'shift' is not among the inputs"),
        ((X, SHIFT, X), r"forward takes 2 inputs \(x, shift\), but got 3"),
    ],
)
def test_mismatched_inputs_are_named(tmp_path: Path, inputs: Inputs, says: str) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        save_module(Net(), inputs, tmp_path)


def test_an_export_failure_quotes_torch(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="Net"):
        save_module(Net(), {"x": (2, 5), "shift": (3,)}, tmp_path)


class Branching(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x - 1


class Counting(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[: int(x.sum().item())]


class Aligning(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        labels, lengths = torch.tensor([[1, 2]]), torch.tensor([8])
        return torch.nn.functional.ctc_loss(x, labels, lengths, torch.tensor([2]))


@pytest.mark.parametrize(
    ("net", "shape", "says"),
    [
        (Branching(), (8, 8), "Branching: the model branches on a tensor's value (PLACE): use torch.where"),
        (
            Counting(),
            (8, 8),
            "Counting: the model takes a size or an index from a tensor's value (PLACE): use",
        ),
        (Aligning(), (8, 1, 8), "Aligning: DynamicOutputShapeException: aten._ctc_loss.Tensor (PLACE)"),
    ],
    ids=["a branch", "a size", "an operator"],
)
def test_an_export_failure_names_the_line_and_torch_prints_nothing(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    net: torch.nn.Module,
    shape: tuple[int, ...],
    says: str,
) -> None:
    before, place = says.split("PLACE")[0], rf"{Path(__file__).name}:\d+\)"
    with pytest.raises(ExportError, match=re.escape(before) + place) as caught:
        save_module(net, {"x": shape}, tmp_path)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""


class Doubling(torch.nn.Module):
    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * 2


class Sizing(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.size(0) > 1 else x * 2


class Packing(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(4, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        lengths = torch.tensor([2])
        packed = torch.nn.utils.rnn.pack_padded_sequence(x.unsqueeze(0), lengths, batch_first=True)
        return self.lstm(packed)[1][0]


def quantized() -> torch.nn.Module:
    linear = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    return torch.ao.quantization.quantize_dynamic(linear, {torch.nn.Linear}, dtype=torch.qint8)


def of_torchao() -> torch.nn.Module:
    """A module as torchao leaves it: a parameter of torchao's own class cannot be exported."""
    kind = type("Int8Tensor", (torch.nn.Parameter,), {"__module__": "torchao.quantization"})
    net = Sizing()
    net.weight = kind(torch.ones(2))
    return Doubling(torch.nn.Sequential(net, Branching()))


def test_tensors_of_torchao_are_saved_as_plain_ones(tmp_path: Path) -> None:
    kind = type("Int8Tensor", (TwoTensor,), {"__module__": "torchao.quantization"})
    net = torch.nn.Linear(4, 3, bias=False)
    net.weight = torch.nn.Parameter(kind(net.weight.detach(), net.weight.detach()))

    path = save_module(net, (X,), tmp_path).path

    kinds = {type(tensor) for tensor in torch.export.load(path).state_dict.values()}
    assert kinds == {torch.nn.Parameter}


ADVICE = {
    "a scripted submodule": (
        lambda: Doubling(torch.jit.script(Sizing())),
        "script modules as submodules ('inner'), which torch cannot trace: replace",
    ),
    "a scripted submodule in a graph": (
        lambda: torch.fx.symbolic_trace(Doubling(torch.jit.script(Sizing()))),
        "script modules as submodules, which torch cannot trace: replace",
    ),
    "packed sequences": (Packing, "Save it with torch.jit.script or torch.jit.trace instead"),
    "modules of quantize_dynamic": (quantized, "quantized submodules ('0'): compile the float model"),
    "indices that are floats": (
        lambda: torch.nn.Embedding(10, 4),
        "an example input has a dtype that the model does not take: pass another, as in `ids.long()`",
    ),
    "tensors of torchao": (
        of_torchao,
        "torchao's quantized tensors ('inner.0.weight'): save `torch.export.export(",
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("make", "says"), ADVICE.values(), ids=ADVICE)
def test_known_export_failures_come_with_advice(
    tmp_path: Path, make: Callable[[], torch.nn.Module], says: str
) -> None:
    with pytest.raises(ExportError) as caught:
        save_module(make(), (X,), tmp_path)
    message, torchs = str(caught.value).splitlines()
    assert says in message
    assert torchs.startswith("torch's own message: ")


class Recurrent(torch.nn.Module):
    def __init__(self, kind: type[torch.nn.RNNBase]) -> None:
        super().__init__()
        self.layers = kind(8, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)[0]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU])
def test_a_recurrent_layer_of_dynamic_length_comes_with_advice(
    tmp_path: Path, kind: type[torch.nn.RNNBase]
) -> None:
    with pytest.raises(ExportError) as caught:
        save_module(Recurrent(kind), {"x": (1, "length", 8)}, tmp_path, {"length": (2, 64)})
    message, *_ = str(caught.value).splitlines()
    assert "Save the model with torch.jit.script or torch.jit.trace instead, and name the length" in message
    assert '`inputs={"x": (1, "length", 8)}, dimensions={"length": (1, 128)}`' in message


class WithoutForward(torch.nn.Module):
    @torch.jit.export
    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (WithoutForward, "WithoutForward has no method 'forward'"),
        (lambda: torch.jit.script(WithoutForward()), "the script module has 'encode', but no 'forward'"),
    ],
    ids=["a module", "a script"],
)
def test_a_model_without_forward_is_refused_with_advice(
    tmp_path: Path, make: Callable[[], torch.nn.Module], says: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=says) as caught:
        save_module(make(), {"x": (2, 4)}, tmp_path)
    assert "pass a module whose `forward` calls the method" in str(caught.value)


class Kinds(torch.nn.Module):
    def forward(self, *xs: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        return xs[0] + xs[-1] if bias is None else xs[0] + bias


@pytest.mark.parametrize(
    ("net", "inputs", "named"),
    [
        (Net(), {"x": ("batch", 4), "shift": SHIFT}, ["x=batchx4", "shift=3:float32"]),
        (Net(), {"shift": (3,), "x": "batchx4"}, ["x=batchx4", "shift=3"]),
        (Net(), ["x=batchx4", "shift=3"], ["x=batchx4", "shift=3"]),
        (Kinds(), {"a": ("batch", 4), "b": ("batch", 4)}, ["xs_0=batchx4", "xs_1=batchx4"]),
    ],
    ids=["by name", "in another order", "in order", "variadic"],
)
def test_a_named_dimension_stays_dynamic_in_the_export(
    tmp_path: Path, net: torch.nn.Module, inputs: Inputs, named: list[str]
) -> None:
    exported = save_module(net, inputs, tmp_path, {"batch": (1, 64)})
    program = torch.export.load(str(exported.path))
    (limits,) = program.range_constraints.values()
    assert (int(limits.lower), int(limits.upper)) == (1, 64)
    assert list(map(str, exported.inputs)) == named
    assert program.graph_signature.user_inputs == tuple(spec.name for spec in exported.inputs)


@dataclass
class Batch:
    image: torch.Tensor
    masks: list[torch.Tensor]
    scale: float = 1.0


class Nested(torch.nn.Module):
    def forward(self, batch: Batch, pair: Moments, extra: dict[str, Any], gain: int, mode: str) -> Any:
        y = batch.image * batch.scale + batch.masks[0] * gain + pair.mean
        return y + extra["q"][0] if mode == "add" else y


def test_containers_and_constants_are_exported(tmp_path: Path) -> None:
    rows: Any = ("rows", 4)
    shape: Any = (4,)
    given = {"batch": Batch(rows, [rows], 3.0), "pair": Moments(shape, SHIFT), "extra": {"q": [rows]}}
    constants = {"gain": 2, "mode": "add"}
    exported = save_module(Nested(), given, tmp_path, {"rows": (1, 64)}, constants)
    names = ["batch.image", "batch.masks.0", "pair.mean", "pair.std", "extra.q.0"]
    assert [spec.name for spec in exported.inputs] == names
    batch, ones = Batch(X, [X], 3.0), torch.ones(4)
    with torch.serialization.safe_globals([Batch, Moments]):
        program = torch.export.load(str(exported.path)).module()
    found = program(batch, Moments(ones, SHIFT), {"q": [X]}, **constants)
    torch.testing.assert_close(found, X * 6 + ones)


class KeywordOnly(torch.nn.Module):
    def forward(self, x: torch.Tensor, *, mask: torch.Tensor) -> torch.Tensor:
        return x * mask


def test_arguments_that_only_have_names_are_exported_by_name(tmp_path: Path) -> None:
    exported = save_module(KeywordOnly(), {"x": (2, 4), "mask": (2, 4)}, tmp_path)
    program = torch.export.load(str(exported.path)).module()
    torch.testing.assert_close(program(x=X, mask=X * 2), X**2 * 2)


@pytest.mark.parametrize(
    ("dimensions", "says"), [({}, "'batch'.*has no range"), ({"batch": (1, 8), "rows": (1, 8)}, "'rows'")]
)
def test_names_without_ranges_and_ranges_without_names_are_refused(
    tmp_path: Path, dimensions: dict[str, tuple[int, int]], says: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        save_module(Net(), {"x": ("batch", 4), "shift": (3,)}, tmp_path, dimensions)


def traced() -> Any:
    return torch.jit.trace(Net().eval(), (X, SHIFT))


def scripted() -> Any:
    return torch.jit.script(Net().eval())


def graph() -> Any:
    return torch.fx.symbolic_trace(Net().eval())


@pytest.mark.parametrize(
    ("make", "kind"), [(traced, "script"), (scripted, "script"), (graph, "graph"), (Net, "module")]
)
def test_a_torch_object_is_recognized_by_its_class(make: Any, kind: str) -> None:
    assert torch_kind(make()) == kind


@pytest.mark.parametrize("value", [b"bytes", "path", Path("path"), 3, None])
def test_other_objects_are_not_models(value: object) -> None:
    assert torch_kind(value) is None


@pytest.mark.parametrize("make", [traced, scripted, graph])
@pytest.mark.parametrize("inputs", [(X, SHIFT), {"x": (2, 4), "shift": (3,)}])
def test_a_saved_object_keeps_its_own_names(tmp_path: Path, make: Any, inputs: Inputs) -> None:
    exported = save_module(make(), inputs, tmp_path)
    assert [(spec.name, spec.shape) for spec in exported.inputs] == [("x", (2, 4)), ("shift", (3,))]
    assert exported.path.stat().st_size > 0


def test_an_exported_program_is_saved_with_its_own_inputs(tmp_path: Path) -> None:
    program = torch.export.export(Net().eval(), (X, SHIFT))
    exported = save_module(program, (), tmp_path)
    assert exported.inputs == ()
    assert torch.export.load(io.BytesIO(exported.path.read_bytes())).graph_signature.user_inputs


def test_half_precision_inputs_keep_their_dtype(tmp_path: Path) -> None:
    exported = save_module(Net().half().eval(), {"x": "2x4:float16", "shift": "3:float16"}, tmp_path)
    (x, _), _ = torch.export.load(str(exported.path)).example_inputs
    assert DType(str(x.dtype).removeprefix("torch.")) is DType.FLOAT16


@pytest.mark.parametrize(
    ("returned", "named"),
    [("{'input': (1, 4)}", []), ("{'input': ('batch', 4)}, {'batch': (1, 8)}", ["input=batchx4"])],
)
def test_a_pipelines_function_may_return_a_module_with_inputs_and_dimensions(
    tmp_path: Path, returned: str, named: list[str]
) -> None:
    file = tmp_path / "made_for_a_gate.py"
    file.write_text(f"import torch\ndef export():\n    return torch.nn.Linear(4, 2), {returned}\n")
    made = call_entry_point(f"{file}:export", tmp_path)
    assert torch.export.load(str(made.source)).module()(torch.zeros(4, 4)[: 4 if named else 1]).shape[1] == 2
    assert list(map(str, made.inputs)) == named


@pytest.mark.parametrize(
    ("returned", "inputs"),
    [("{'input': (1, 4)}", {"input": ("rows", 4)}), ("{'input': ('rows', 4)}, {'rows': (1, 64)}", ())],
)
def test_a_gates_inputs_and_dimensions_override_the_functions(
    tmp_path: Path, returned: str, inputs: Inputs
) -> None:
    file = tmp_path / "made_for_another_gate.py"
    file.write_text(f"import torch\ndef export():\n    return torch.nn.Linear(4, 2), {returned}\n")
    made = call_entry_point(f"{file}:export", tmp_path, inputs, {"rows": "1..8"})
    assert (list(map(str, made.inputs)), str(made.dimensions["rows"])) == (["input=rowsx4"], "1..8")


def test_a_module_is_named_after_its_class() -> None:
    graph, script = torch.fx.symbolic_trace(Net().eval()), torch.jit.script(Net())
    program = torch.export.export(Net(), (X, SHIFT))
    assert [name_of_model(model) for model in (Net(), graph, script, program)] == ["Net", "Net", "Net", None]
