"""Fused attention agrees with torch and is found in real models."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tvm
import tvm_ffi
from family_samples import TARGETS, Array, fuzz, main_of, run_compiled, scheduled, target_of
from hypothesis import given
from hypothesis import strategies as st
from stage_samples import capture_module
from torch import nn
from torch.nn import functional
from tvm import relax, tirx

from examples.models import bert
from worker.candidates.client import CandidateClient
from worker.compiler.layout.attention.fuse_attention import fuse_attention
from worker.compiler.pipeline.translate import translate
from worker.compiler.schedules.default import unclaimed_functions

TOLERANCES = {"bfloat16": 2e-2, "float16": 2e-3, "float32": 2e-5, "float64": 1e-12}
op = relax.op


@dataclass(frozen=True)
class Case:
    """Attention of ``batch`` heads; ``swapped`` operands and results have the heads after the tokens."""

    batch: tuple[int, ...]
    queries: int
    keys: int
    depth: int
    width: int
    dtype: str
    mask: str
    swapped: bool


cases = st.builds(
    Case,
    batch=st.sampled_from([(1, 2), (2, 3), (1, 1)]),
    queries=st.sampled_from([1, 2, 3, 4, 7, 8, 17, 33, 64, 100]),
    keys=st.sampled_from([1, 3, 8, 13, 50, 64, 300, 515]),
    depth=st.sampled_from([1, 5, 8, 13, 32, 64, 80]),
    width=st.sampled_from([1, 3, 8, 13, 32, 64]),
    dtype=st.sampled_from(["float32", "float32", "float64", "float16", "bfloat16"]),
    mask=st.sampled_from(["none", "causal", "added", "added-per-key", "chosen", "filled", "capped"]),
    swapped=st.booleans(),
)


def edited(case: Case, scores: Any, mask: Any, causal: Array) -> Any:
    """The scores as the softmax takes them, in Relax."""
    infinite = relax.const(-np.inf, case.dtype)
    match case.mask:
        case "causal":
            return op.where(relax.const(causal, "bool"), scores, infinite)
        case "added" | "added-per-key":
            return op.add(scores, mask)
        case "chosen" | "filled":
            return op.where(op.greater(mask, relax.const(-1.0, case.dtype)), scores, infinite)
        case "capped":
            two = relax.const(2.0, case.dtype)
            return op.multiply(op.tanh(op.divide(scores, two)), two)
    return scores


def expected(case: Case, query: Array, key: Array, value: Array, mask: Array, causal: Array) -> Array:
    """The same in numpy, in float64."""
    query, key, value, mask = (x.astype("float64") for x in (query, key, value, mask))
    scores = query @ np.swapaxes(key, -1, -2) * 0.25
    match case.mask:
        case "causal":
            scores = np.where(causal, scores, -np.inf)
        case "added" | "added-per-key":
            scores = scores + mask
        case "chosen" | "filled":
            scores = np.where(mask > -1, scores, -np.inf)
        case "capped":
            scores = np.tanh(scores / 2) * 2
    with np.errstate(invalid="ignore"):
        powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True) @ value


def calls_of(module: tvm.IRModule, name: str) -> int:
    """The number of calls in ``main`` of functions with this name."""
    found: list[str] = []

    def visit(expression: relax.Expr) -> None:
        if isinstance(expression, relax.Call) and expression.op == tvm.ir.Op.get("relax.call_tir"):
            found.append(str(expression.args[0].name_hint).rstrip("0123456789"))

    relax.analysis.post_order_visit(module["main"], visit)
    return found.count(name)


@pytest.mark.slow
@fuzz(10)
@given(mcpu=st.sampled_from(TARGETS), case=cases)
def test_attention_agrees_with_numpy(server: CandidateClient, tmp_path: Path, mcpu: str, case: Case) -> None:
    generator = np.random.default_rng(0)

    def random(*shape: int) -> Array:
        return generator.standard_normal(shape).astype(case.dtype)

    query, key = random(*case.batch, case.queries, case.depth), random(*case.batch, case.keys, case.depth)
    value = random(*case.batch, case.keys, case.width)
    mask = (
        random(case.batch[0], 1, 1, case.keys) if "per-key" in case.mask else random(case.queries, case.keys)
    )
    if case.mask == "filled":
        first, end = case.keys // 4, case.keys // 2 + 1
        mask[:, first], mask[:, :first], mask[:, end:] = 0, -2, -2
    causal = np.tri(case.queries, case.keys, max(0, case.keys - case.queries), dtype=bool)
    axes = [0, 2, 1, 3] if case.swapped else [0, 1, 2, 3]
    given = [np.ascontiguousarray(x.transpose(axes)) for x in (query, key, value)]

    def build(*operands: Any) -> Any:
        q, k, v = (op.permute_dims(x, axes) for x in operands[:3])
        scores = op.multiply(op.matmul(q, op.permute_dims(k, [0, 1, 3, 2])), relax.const(0.25, case.dtype))
        weights = op.nn.softmax(edited(case, scores, operands[3], causal))
        return op.permute_dims(op.matmul(weights, v), axes)

    module = scheduled(main_of(build, *given, mask), target_of(mcpu))
    computed = run_compiled(server, module, target_of(mcpu), (*given, mask), tmp_path)

    assert calls_of(module, "attention") == 1
    assert unclaimed_functions(module) == ()
    tolerance = TOLERANCES[case.dtype]
    exact = expected(case, query, key, value, mask, causal).transpose(axes)
    np.testing.assert_allclose(computed, exact, rtol=tolerance, atol=tolerance)


class Written(nn.Module):
    """Attention written out, as in GPT-2."""

    def __init__(self, tokens: int = 16, heads: int = 4, width: int = 64) -> None:
        super().__init__()
        self.heads, self.project = heads, nn.Linear(width, 3 * width)
        seen = torch.ones(tokens, tokens, dtype=torch.bool).tril()
        self.register_buffer("seen", seen.view(1, 1, tokens, tokens))

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(*x.shape[:2], self.heads, -1).permute(0, 2, 1, 3)

    def weights(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.size(-1))
        least = torch.finfo(scores.dtype).min
        return functional.dropout(torch.where(self.seen, scores, least).softmax(-1), 0.1, self.training)

    def forward(self, x: torch.Tensor) -> Any:
        query, key, value = map(self.split, self.project(x).split(x.size(-1), dim=2))
        return (self.weights(query, key) @ value).transpose(1, 2).flatten(2)


class WrittenWithWeights(Written):
    """The same, with the weights as an output."""

    def forward(self, x: torch.Tensor) -> Any:
        query, key, value = map(self.split, self.project(x).split(x.size(-1), dim=2))
        weights = self.weights(query, key)
        return weights @ value, weights


class Whole(nn.Module):
    """torch's own operator, with fewer heads of keys than of queries."""

    def __init__(self, tokens: int = 16) -> None:
        super().__init__()
        self.query, self.shared = nn.Linear(64, 64), nn.Linear(64, 32)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> Any:
        query = self.query(x).unflatten(2, (4, 16)).transpose(1, 2)
        shared = self.shared(x).unflatten(2, (2, 16)).transpose(1, 2)
        attended = functional.scaled_dot_product_attention(
            query, shared, shared, attn_mask=mask, is_causal=mask is None, enable_gqa=True
        )
        return attended.transpose(1, 2).flatten(2)


class Vision(nn.Module):
    """Two layers of torch's encoder, on an odd number of patches."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 96, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def tokens(count: int) -> torch.Tensor:
    return torch.randn(1, count, 64, generator=torch.Generator().manual_seed(0))


def mask_of(count: int) -> torch.Tensor:
    """Every query but the first sees some keys."""
    return torch.rand(count, count, generator=torch.Generator().manual_seed(1)).gt(0.5) & (
        torch.arange(count)[:, None] > 0
    )


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[torch.Tensor, ...], int]] = {
    "gpt-2": (Written, (tokens(16),), 1),
    "vision": (Vision, (tokens(17),), 2),
    "torch's operator, causal": (Whole, (tokens(16),), 1),
    "torch's operator, masked": (Whole, (tokens(16), mask_of(16)), 1),
    "weights as an output": (WrittenWithWeights, (tokens(16),), 0),
}


ERRORS = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
"""By dtype, the error that a model's outputs of about 1 may have."""


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("name", MODELS)
def test_the_attentions_of_a_model_are_found_and_right(
    server: CandidateClient, tmp_path: Path, name: str, dtype: torch.dtype
) -> None:
    build, inputs, count = MODELS[name]
    torch.manual_seed(0)
    given = (each.to(dtype) if each.is_floating_point() else each for each in inputs)
    captured = capture_module(build().to(dtype), *given)
    target = target_of("x86-64-v3")

    module = scheduled(translate(captured, None).module, target)  # type: ignore[arg-type]
    computed = run_compiled(server, module, target, captured.inputs, tmp_path)

    assert calls_of(module, "attention") == count
    found, expected = (each.astype("float64") for each in (computed, captured.references[0]))
    np.testing.assert_allclose(found, expected, rtol=10 * ERRORS[dtype], atol=ERRORS[dtype])


class Padded(nn.Module):
    """Attention with a finite mask that hides all keys of some queries, as of padded batches."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> Any:
        scores = x @ x.transpose(-1, -2) * 0.25 + mask
        return torch.softmax(scores, -1, dtype=torch.float32).to(x.dtype) @ x


class Truncated(nn.Module):
    """Attention whose scores are integers for a while."""

    def forward(self, x: torch.Tensor) -> Any:
        scores = (x @ x.transpose(-1, -2)).to(torch.int32).to(x.dtype)
        return torch.softmax(scores, -1) @ x


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_query_whose_keys_a_finite_mask_hides_agrees_with_torch(
    server: CandidateClient, tmp_path: Path, dtype: torch.dtype
) -> None:
    mask = torch.zeros(1, 16, 16, dtype=dtype)
    mask[:, :3] = torch.finfo(dtype).min
    captured = capture_module(Padded(), tokens(16).to(dtype), mask)
    target = target_of("x86-64-v3")

    module = scheduled(translate(captured, None).module, target)  # type: ignore[arg-type]
    computed = run_compiled(server, module, target, captured.inputs, tmp_path)

    assert calls_of(module, "attention") == 1
    found, expected = (each.astype("float64") for each in (computed, captured.references[0]))
    np.testing.assert_allclose(found, expected, rtol=10 * ERRORS[dtype], atol=ERRORS[dtype])


def test_scores_that_become_integers_are_not_attention() -> None:
    captured = capture_module(Truncated(), tokens(16).half())

    module = fuse_attention(translate(captured, None).module)  # type: ignore[arg-type]

    assert calls_of(module, "attention") == 0


def test_every_layer_of_bert_has_one_attention() -> None:
    captured = capture_module(bert.build(), torch.arange(bert.TOKENS).unsqueeze(0))

    module = fuse_attention(translate(captured, None).module)  # type: ignore[arg-type]

    assert calls_of(module, "attention") == bert.LAYERS


@pytest.mark.parametrize("safe", [False, True])
@pytest.mark.parametrize("queries", [2, 40])
def test_a_query_without_visible_keys_agrees_with_torch(
    server: CandidateClient, tmp_path: Path, queries: int, safe: bool
) -> None:
    x = np.random.default_rng(0).standard_normal((1, queries, 300, 8)).astype("float32")
    query, key = x[:, :, :queries], x
    mask = np.ones((queries, 300), "float32")
    mask[1] = -np.inf
    infinite = relax.const(-np.inf, "float32")

    def build(q: Any, k: Any, m: Any) -> Any:
        scores = op.add(op.matmul(q, op.permute_dims(k, [0, 1, 3, 2])), m)
        weights = op.nn.softmax(scores)
        if safe:
            nothing = op.equal(op.max(scores, -1, keepdims=True), infinite)
            weights = op.where(nothing, relax.const(0.0, "float32"), weights)
        return op.matmul(weights, k)

    target = target_of("x86-64-v3")
    module = scheduled(main_of(build, query, key, mask), target)
    computed = run_compiled(server, module, target, (query, key, mask), tmp_path)

    assert calls_of(module, "attention") == 1
    assert np.isfinite(computed[:, :, 0]).all()
    assert (computed[:, :, 1] == 0).all() if safe else np.isnan(computed[:, :, 1]).all()


def test_no_buffer_holds_all_scores_of_a_long_sequence() -> None:
    count = 1024
    captured = capture_module(Written(tokens=count), tokens(count))
    module = scheduled(translate(captured, None).module, target_of("x86-64-v3"))  # type: ignore[arg-type]

    assert calls_of(module, "attention") == 1
    assert max(sizes_of(module)) < count * count // 4


def sizes_of(module: tvm.IRModule) -> list[int]:
    """The elements of every buffer of the functions, and of every tensor of ``main``."""
    sizes: list[int] = []

    def buffer(allocated: Any) -> None:
        sizes.append(math.prod(int(size) for size in allocated.buffer.shape))

    def tensor(expression: relax.Expr) -> None:
        if isinstance(expression.ty, relax.TensorType):
            sizes.append(math.prod(int(size) for size in expression.ty.shape))

    for function in module.functions.values():
        if isinstance(function, tirx.PrimFunc):
            tvm_ffi.structural_walk(function.body, (tirx.AllocBuffer, buffer))
    relax.analysis.post_order_visit(module["main"], tensor)
    return sizes
