"""What each rewrite finds, what it leaves alone, and that the model stays the same."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import tvm
from stage_samples import Function, Perceptron, capture_module, make_context
from torch import nn
from tvm import relax
from tvm.relax.dpl import is_const, is_op, is_tuple, wildcard

from bessemer.contract.options import OptimizeOptions
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import RewriteResult
from worker.compiler.pipeline.optimize import optimize
from worker.compiler.pipeline.translate import translate
from worker.compiler.rewrites.engine import Application
from worker.compiler.rewrites.rewrite import Match, Rewrite
from worker.compiler.values import Optimized
from worker.errors import JobError

ROW = torch.linspace(0.5, 1.5, 8)
X = torch.linspace(-3, 3, 32).reshape(1, 4, 8)

Body = Callable[[Any, torch.Tensor], torch.Tensor]


def erf_product(_: Any, x: torch.Tensor) -> torch.Tensor:
    return x * (0.5 * (1 + torch.erf(x * math.sqrt(0.5))))


def erf_quotient(_: Any, x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (torch.erf(x / math.sqrt(2)) + 1)


def tanh_power(_: Any, x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def tanh_products(_: Any, x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def tanh_growing(_: Any, x: torch.Tensor) -> torch.Tensor:
    return x * 0.5 * (1 + torch.tanh(x * 0.7978845608 * (1 + 0.044715 * x * x)))


def layer_norm_by_root(self: Any, x: torch.Tensor) -> torch.Tensor:
    centered = x - x.mean(-1, keepdim=True)
    return centered / torch.sqrt(centered.pow(2).mean(-1, keepdim=True) + 1e-5) * self.row + self.row


def layer_norm_by_variance(self: Any, x: torch.Tensor) -> torch.Tensor:
    variance = x.var(-1, keepdim=True, unbiased=False)
    return self.row * (x - x.mean(-1, keepdim=True)) * torch.rsqrt(variance + 1e-5)


def plain_layer_norm(_: Any, x: torch.Tensor) -> torch.Tensor:
    centered = x - x.mean(-1, keepdim=True)
    return centered * (centered * centered).mean(-1, keepdim=True).add(1e-5).rsqrt()


def rms_norm_scaled(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.row * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def rms_norm_divided(_: Any, x: torch.Tensor) -> torch.Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6)


RECOGNIZED: dict[str, tuple[Body, str]] = {
    "gelu-erf-product": (erf_product, "gelu_erf"),
    "gelu-erf-quotient": (erf_quotient, "gelu_erf"),
    "gelu-tanh-power": (tanh_power, "gelu_tanh"),
    "gelu-tanh-products": (tanh_products, "gelu_tanh"),
    "gelu-tanh-growing": (tanh_growing, "gelu_tanh"),
    "layer-norm-root": (layer_norm_by_root, "layer_norm"),
    "layer-norm-variance": (layer_norm_by_variance, "layer_norm"),
    "layer-norm-plain": (plain_layer_norm, "layer_norm"),
    "rms-norm-scaled": (rms_norm_scaled, "rms_norm"),
    "rms-norm-divided": (rms_norm_divided, "rms_norm"),
}

NOT_QUITE: dict[str, Body] = {
    "gelu of another scale": lambda _, x: x * 0.5 * (1 + torch.erf(x * 0.9)),
    "gelu of another cube": lambda _, x: (
        0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.05 * x**3)))
    ),
    "norm along another axis": lambda _, x: x / torch.sqrt((x * x).mean(1, keepdim=True) + 1e-6),
    "norm of two tensors": lambda _, x: (
        (x.exp() - x.mean(-1, keepdim=True)) / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6)
    ),
    "mean of cubes": lambda _, x: x / torch.sqrt(x.pow(3).mean(-1, keepdim=True) + 1e-6),
}


def rewritten(tmp_path: Path, module: nn.Module, *inputs: torch.Tensor, **options: Any) -> Optimized:
    context = make_context(tmp_path)
    captured = capture_module(module, *inputs, optimize=OptimizeOptions(**options))
    return optimize(translate(captured, context), context)


def fired(optimized: Optimized) -> dict[str, int]:
    return {rewrite.name: rewrite.count for rewrite in optimized.rewrites if rewrite.count}


def result_of(optimized: Optimized, name: str) -> RewriteResult:
    (found,) = (rewrite for rewrite in optimized.rewrites if rewrite.name == name)
    return found


def calls(optimized: Optimized) -> list[str]:
    return re.findall(r"R\.call_tir\(cls\.(\w+)", optimized.module.script(show_meta=False))


def with_row(body: Body) -> nn.Module:
    return Function(body, row=nn.Parameter(ROW, requires_grad=False))


@pytest.mark.parametrize("name", RECOGNIZED)
def test_a_function_that_is_written_out_is_recognized(name: str, tmp_path: Path) -> None:
    body, rewrite = RECOGNIZED[name]

    optimized = rewritten(tmp_path, with_row(body), X)

    assert fired(optimized) == {rewrite: 1}
    assert len(calls(optimized)) == 1


@pytest.mark.parametrize("name", NOT_QUITE)
def test_what_is_nearly_such_a_function_is_left_alone(name: str, tmp_path: Path) -> None:
    assert fired(rewritten(tmp_path, Function(NOT_QUITE[name]), X)) == {}


def test_a_place_is_the_operator_with_its_module_and_its_line(tmp_path: Path) -> None:
    class Written(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return erf_product(self, x)

    (place,) = result_of(rewritten(tmp_path, nn.Sequential(Written()), X), "gelu_erf").places

    assert (place.operator, place.module_path, place.file) == ("aten.mul.Tensor", "0", __file__)
    assert place.line is not None


def test_a_rewrite_that_is_switched_off_does_not_run(tmp_path: Path) -> None:
    optimized = rewritten(tmp_path, Function(erf_product), X, disable=("gelu_erf",))

    assert "gelu_erf" not in {rewrite.name for rewrite in optimized.rewrites}


def test_an_unknown_rewrite_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="no rewrite 'layernorm'; did you mean 'layer_norm'") as raised:
        rewritten(tmp_path, Function(erf_product), X, enable=("layernorm",))

    assert raised.value.code is ErrorCode.REWRITE_UNKNOWN


@pytest.mark.parametrize(
    ("body", "function"),
    [
        (lambda _, x: x * x.exp() + x.sin(), "fused_tir_exp_tir_sin_ewise_fma"),
        (lambda self, x: x * self.row + 1, "fused_multiply_add"),
    ],
    ids=["same shapes", "shapes that broadcast"],
)
def test_a_product_and_a_sum_become_one(body: Body, function: str, tmp_path: Path) -> None:
    optimized = rewritten(tmp_path, with_row(body), X, enable=("ewise_fma",))

    assert fired(optimized) == {"ewise_fma": 1}
    assert sorted(calls(optimized)[0].split("_")) == sorted(function.split("_"))


LAYERS = {
    "relu": (torch.relu, "fused_linear_add_relu"),
    "gelu": (nn.functional.gelu, "fused_linear_add_gelu"),
    "none": (lambda x: x, "fused_linear_add"),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_linear_layer_is_a_group_that_says_what_it_holds(name: str, tmp_path: Path) -> None:
    activation, function = LAYERS[name]
    module = Function(lambda self, x: activation(self.layer(x)), layer=nn.Linear(8, 4))

    optimized = rewritten(tmp_path, module, X, enable=("linear",), fusion="patterns")

    assert calls(optimized) == [function]


def test_layers_of_the_same_shapes_share_one_group(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))

    optimized = rewritten(tmp_path, module, X, enable=("linear",), fusion="patterns")

    assert calls(optimized) == ["fused_linear_add"] * 2


def test_without_fusion_every_operator_is_a_function(tmp_path: Path) -> None:
    optimized = rewritten(tmp_path, Perceptron(), torch.randn(1, 16), enable=("linear",), fusion="none")

    assert calls(optimized) == ["linear", "add", "relu", "linear1", "add1"]
    assert fired(optimized) == {}


def test_a_costly_producer_that_others_read_is_not_computed_twice(tmp_path: Path) -> None:
    module = Function(
        lambda self, x: (lambda y: torch.relu(y) + y.sum(-1, keepdim=True))(self.layer(x)),
        layer=nn.Linear(8, 4),
    )

    optimized = rewritten(tmp_path, module, X, enable=("linear",), fusion="patterns")

    assert sum("linear" in name for name in calls(optimized)) == 1
    assert "fused_linear_add" in calls(optimized)


def test_a_cheap_producer_that_others_read_is(tmp_path: Path) -> None:
    module = Function(lambda _, x: (lambda y: (y + x.sin()) * (y + x.cos()))(x * x.exp()))

    assert fired(rewritten(tmp_path, module, X, enable=("ewise_fma",))) == {"ewise_fma": 2}


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = [layer(x).view(1, 6, 2, 8).transpose(1, 2) for layer in (self.query, self.key, self.value)]
        return nn.functional.scaled_dot_product_attention(*heads)


def test_queries_keys_and_values_come_from_one_product(tmp_path: Path) -> None:
    optimized = rewritten(tmp_path, SelfAttention(), torch.randn(1, 6, 16), enable=("projections",))

    assert fired(optimized) == {"projections": 1, "attention": 1}
    assert calls(optimized) == ["fused_linear_add", "attention"]
    assert result_of(optimized, "attention").places[0].operator == (
        "aten.scaled_dot_product_attention.default"
    )


def test_projections_that_others_read_stay_apart(tmp_path: Path) -> None:
    class Shared(SelfAttention):
        def forward(self, x: torch.Tensor) -> Any:
            return super().forward(x), self.key(x).exp()

    optimized = rewritten(tmp_path, Shared(), torch.randn(1, 6, 16), enable=("projections",))

    assert fired(optimized) == {"attention": 1}


def main_of(build: Callable[[relax.BlockBuilder, relax.Var], relax.Expr]) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(build(builder, x))
        builder.emit_func_output(result)
    return builder.get()


def test_a_pattern_of_ones_own_is_replaced() -> None:
    x, two = wildcard(), is_const()

    def doubled(match: Match) -> relax.Expr | None:
        return relax.op.add(match[x], match[x]) if match.is_close(two, 2) else None

    def build(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return relax.op.multiply(
            builder.emit(relax.op.multiply(x, relax.const(2.0)), "first"), relax.const(3.0)
        )

    rewrite = Rewrite("doubled", "adds where it multiplied", is_op("relax.multiply")(x, two), doubled)
    module, fired = Application(rewrite).apply(main_of(build))

    assert [str(variable.name) for variable in fired] == ["first"]
    assert "R.add(x, x)" in module.script()


def test_a_group_holds_what_stands_in_tuples() -> None:
    def build(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return relax.op.concat([builder.emit(relax.op.exp(x)), x], axis=0)

    pattern = is_op("relax.concat")(is_tuple([is_op("relax.exp")(wildcard()), wildcard()]))
    rewrite = Rewrite("joined", "", pattern, lambda match: match.group("fused_exp_concat"))
    module, fired = Application(rewrite).apply(main_of(build))

    assert len(fired) == 1
    assert "R.exp" in module["fused_exp_concat"].script()
    assert "R.exp" not in module["main"].script()
