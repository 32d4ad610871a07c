"""Programs that are decomposed call by call, beside torch's own decomposition."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from stage_samples import Function
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.fx.node import map_arg

from worker.compiler.torch_costs import linear_torch
from worker.compiler.translation.call_decompositions import decomposed_by_call
from worker.compiler.translation.decompositions import calls_of, tables

X = torch.linspace(-1, 1, 64).reshape(1, 4, 4, 4)


class Residual(nn.Module):
    """Two convolutions with batch norms, whose sum and rectification are written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(4) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu_(self.norms[0](self.first(x)))
        out = self.norms[1](self.second(y))
        out += y
        return torch.relu_(out) * y


def used_again(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    z = y.add_(1)
    z.relu_()
    return y + z


def constant_that_changes_later(x: torch.Tensor) -> torch.Tensor:
    mask = x.new_zeros(4, 4)
    mask.fill_(1.0)
    y = x + mask
    mask.fill_(2.0)
    return y * mask[0]


def of(body: Callable[[torch.Tensor], Any]) -> nn.Module:
    return Function(lambda _, x: body(x))


def masked(x: torch.Tensor) -> torch.Tensor:
    mask = x.new_zeros(4, 4)
    mask[:2, 1:] = 1.0
    mask[2:] = torch.tensor(2.0)
    return x + mask.masked_fill(mask > 1, -100.0)


SUITABLE: dict[str, Callable[[], nn.Module]] = {
    "residual": Residual,
    "a tensor under two names": lambda: of(used_again),
    "an output that is an input": lambda: of(lambda input: (input, input + 1)),
    "split": lambda: of(lambda x: torch.cat(x.chunk(2, 1)[::-1], 1).flatten(1)),
    "dropout": lambda: of(lambda x: nn.functional.dropout(x, training=False) + 1),
    "a pool by size": lambda: of(lambda x: nn.functional.adaptive_avg_pool2d(x, 1)),
    "layers of a transformer": lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True),
    "attention": lambda: of(lambda x: nn.functional.scaled_dot_product_attention(x, x, x)),
    "a constant that changes later": lambda: of(constant_that_changes_later),
    "a recurrent layer": lambda: Function(lambda parts, x: parts.lstm(x[0])[0], lstm=nn.LSTM(4, 3)),
    "masks": lambda: of(lambda x: x.masked_fill(x > 0, 0.0).softmax(-1).to(torch.float64).clamp(0, 1)),
    "a norm of groups": lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.Hardswish(inplace=True)),
}


def exported(model: nn.Module, x: torch.Tensor, **options: Any) -> ExportedProgram:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(model.eval(), (x,), **options)


def calls(program: ExportedProgram) -> list[Any]:
    """Each call with its arguments, where nodes are numbered."""
    places = {node: place for place, node in enumerate(program.graph.nodes)}

    def argument(node: torch.fx.Node) -> str:
        return f"%{places[node]}"

    return [
        (str(node.target), str(map_arg((node.args, node.kwargs), argument)), str(node.meta.get("val")))
        for node in calls_of(program)
        if node.target is not torch.ops.aten._assert_tensor_metadata.default
    ]


def by_call(program: ExportedProgram) -> ExportedProgram | None:
    with linear_torch():
        return decomposed_by_call(program, tables().parts)


@pytest.mark.parametrize("name", SUITABLE)
def test_the_calls_are_those_that_torch_makes(name: str) -> None:
    torch.manual_seed(0)
    program = exported(SUITABLE[name](), X[0] if "transformer" in name else X)
    found = by_call(program)
    assert found is not None
    with linear_torch():
        expected = program.run_decompositions(tables().whole)
    assert calls(found) == calls(expected)
    assert found.graph_signature.input_specs == expected.graph_signature.input_specs
    kinds = [spec.kind for spec in found.graph_signature.output_specs]
    assert kinds == [spec.kind for spec in expected.graph_signature.output_specs]
    assert [node.stack_trace for node in calls_of(found)] == [node.stack_trace for node in calls_of(expected)]
    x = X[0] if "transformer" in name else X
    torch.testing.assert_close(found.module()(x), expected.module()(x))


def test_equal_calls_are_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[object] = []
    own = torch.fx.experimental.proxy_tensor.make_fx

    def counted(*arguments: Any, **named: Any) -> Any:
        traced.append(arguments)
        return own(*arguments, **named)

    monkeypatch.setattr("worker.compiler.translation.call_decompositions.make_fx", counted)
    layers = nn.Sequential(*(nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)) for _ in range(5)))
    assert by_call(exported(layers, X)) is not None
    assert len(traced) == 2


def write_to_a_view(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[0].fill_(1.0)
    return y


def view_before_a_change(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    view = y.flatten()
    y.add_(1)
    return view


def test_a_constant_that_is_written_in_place_is_computed_before() -> None:
    program = exported(of(masked), X)
    found = by_call(program)
    assert found is not None
    assert [str(node.target) for node in calls_of(found)] == ["aten.add.Tensor"]
    (name,) = set(found.constants) - set(program.constants)
    assert found.graph_signature.inputs_to_lifted_tensor_constants[name] == name
    torch.testing.assert_close(found.module()(X), masked(X))


def constant_that_gets_an_input(x: torch.Tensor) -> torch.Tensor:
    mask = x.new_zeros(4, 4)
    row = mask[0]
    row.fill_(1.0)
    mask[1] = x[0, 0, 0]
    return x + mask


@torch.library.custom_op("samplelib::neg_", mutates_args=("x",))
def negate(x: torch.Tensor) -> None:
    x.copy_(-x)


def negated(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    negate(y)
    return y


UNSUITABLE: dict[str, Callable[[], ExportedProgram]] = {
    "a view is changed": lambda: exported(of(write_to_a_view), X),
    "a view was taken before": lambda: exported(of(view_before_a_change), X),
    "a constant gets an input": lambda: exported(of(constant_that_gets_an_input), X),
    "an input is changed": lambda: exported(of(lambda x: x.add_(1)), X),
    "running statistics": lambda: exported(
        of(lambda x: (mean := x.mean((0, 2, 3))) + nn.functional.batch_norm(x, mean, mean, training=True)), X
    ),
    "a power in place": lambda: exported(of(lambda x: (x * 2).pow_(3)), X),
    "a comparison in place": lambda: exported(of(lambda x: (x * 2).gt_(0.5)), X),
    "a custom operator in place": lambda: exported(of(negated), X),
    "another type": lambda: exported(of(lambda x: (x * 2).half().copy_(x * 3)), X),
    "open sizes": lambda: exported(
        of(lambda x: torch.relu(x)), X.repeat(2, 1, 1, 1), dynamic_shapes=({0: Dim("n")},)
    ),
    "branches": lambda: exported(of(lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))), X),
}


@pytest.mark.parametrize("name", UNSUITABLE)
def test_other_programs_are_left_to_torch(name: str) -> None:
    assert by_call(UNSUITABLE[name]()) is None
