"""Operators as small functions with inputs, for the tests of the translation rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

import worker.compiler.translation.rules.matrix_products  # noqa: F401 - defines an operator that samples call


class Sample(NamedTuple):
    """A function of tensors, and tensors for it."""

    name: str
    body: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]


def floats(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Numbers around zero, the same at each call."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(dtype)


def whole(*shape: int, low: int = -9, high: int = 9) -> torch.Tensor:
    """Whole numbers, the same at each call."""
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(5))


def truths(*shape: int) -> torch.Tensor:
    """Booleans, the same at each call."""
    return whole(*shape) > 0


X, N, B = floats(3, 4), whole(3, 4), truths(3, 4)
IMAGE = floats(2, 3, 7, 9)
BAG = (floats(9, 4), torch.tensor([1, 2, 4, 5, 4, 3, 2, 8]), torch.tensor([0, 3, 3, 6]))

ARITHMETIC = (
    Sample("add booleans", lambda a, b: a + b, (B, ~B)),
    Sample("add with alpha", lambda a, b: torch.add(a, b, alpha=3), (N, N)),
    Sample("add an integer and a fraction", lambda a: a + 0.5, (N,)),
    Sample("subtract from a number", lambda a: 3 - a, (N,)),
    Sample("multiply booleans", lambda a, b: a * b, (B, ~B)),
    Sample("multiply a boolean and a float", lambda a, b: a * b, (B, X)),
    Sample("divide integers", lambda a, b: a / b, (N, N.abs() + 1)),
    Sample("floor divide a float by an integer", lambda a: a // 2, (X * 5,)),
    Sample("floor divide negative integers", lambda a: a // 4, (N,)),
    Sample("truncating division", lambda a: torch.div(a, 4, rounding_mode="trunc"), (N,)),
    Sample("truncating division of floats", lambda a: torch.div(a, 0.3, rounding_mode="trunc"), (X,)),
    Sample("remainder of floats", lambda a: a % 0.75, (X * 4,)),
    Sample("remainder of integers", lambda a: torch.remainder(a, -4), (N,)),
    Sample("fmod", lambda a: torch.fmod(a, 0.75), (X * 4,)),
    Sample("fmod of integers", lambda a: torch.fmod(a, 4), (N,)),
    Sample("integer power", lambda a: a**4, (N,)),
    Sample("cube", lambda a: a**3, (X,)),
    Sample("root", lambda a: a.abs() ** 0.5, (X,)),
    Sample("inverse root", lambda a: a.abs() ** -0.5, (X,)),
    Sample("power of a number", lambda a: 2**a, (X,)),
    Sample("compare an integer with a fraction", lambda a: a > 0.5, (N,)),
    Sample("compare an integer with a float", lambda a, b: a <= b, (N, X)),
    Sample("compare booleans", lambda a, b: a == b, (B, ~B)),
    Sample("and of booleans", lambda a, b: a & b, (B, truths(4))),
    Sample("not of booleans", lambda a: ~a, (B,)),
    Sample("not of integers", lambda a: ~a, (N,)),
    Sample("logical and of integers", torch.logical_and, (N, X)),
    Sample("where with another dtype", lambda a, b: torch.where(a, b, 0.5), (B, N)),
    Sample("clamp above only", lambda a: a.clamp(max=0.5), (X,)),
    Sample("clamp of integers", lambda a: a.clamp(-3, 3), (N,)),
    Sample("clamp by tensors", lambda a, b: a.clamp(b, b + 1), (X, floats(4))),
    Sample("maximum of two dtypes", torch.maximum, (N, X)),
    Sample("larger and smaller of booleans", lambda a, b: (torch.maximum(a, b), a.min(b)), (B, ~B)),
    Sample("sign of another dtype", torch.copysign, (X, floats(4, dtype=torch.float64))),
    Sample("arc tangent of two", torch.atan2, (X, X.flip(0))),
    Sample("float64", lambda a: a * 2 + 1 / a, (floats(3, 4, dtype=torch.float64),)),
)

POINTWISE = (
    Sample("sine of integers", torch.sin, (N,)),
    Sample("exponential of booleans", torch.exp, (B,)),
    Sample("sigmoid of integers", torch.sigmoid, (N,)),
    Sample("rounding half to even", torch.round, (torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 0.2]),)),
    Sample("floor of integers", torch.floor, (N,)),
    Sample("logarithm of 1 + tiny", torch.log1p, (floats(8).abs() * 1e-6,)),
    Sample("exponential less one of tiny", torch.expm1, (floats(8) * 1e-6,)),
    Sample("logarithms", lambda a: torch.log2(a) + torch.log10(a), (N.abs() + 1,)),
    Sample("is not a number", torch.isnan, (N,)),
    Sample("reciprocal of integers", torch.reciprocal, (N.abs() + 1,)),
    Sample("to booleans", lambda a: a.to(torch.bool), (X.round(),)),
    Sample("booleans to integers", lambda a: a.long() + 1, (B,)),
    Sample("to integers", lambda a: (a * 9).to(torch.int32), (X,)),
    Sample("gelu by tanh", lambda a: F.gelu(a, approximate="tanh"), (X,)),
    Sample("leaky relu", lambda a: F.leaky_relu(a, 0.2), (X,)),
    Sample("elu", lambda a: F.elu(a, 0.7), (X,)),
    Sample("celu", lambda a: F.celu(a, 0.7), (X,)),
    Sample("softplus", lambda a: F.softplus(a * 9, 2.0, 3.0), (X,)),
    Sample("softshrink", F.softshrink, (X,)),
    Sample("mish and hardswish", lambda a: F.mish(a) + F.hardswish(a), (X,)),
    Sample("logit", lambda a: torch.logit(a.sigmoid()), (X,)),
    Sample("prelu", lambda a, b: F.prelu(a, b), (IMAGE, floats(3))),
)

REDUCTIONS = (
    Sample("sum of booleans", torch.sum, (B,)),
    Sample("sum of booleans along an axis", lambda a: a.sum(-1), (B,)),
    Sample("sum over no axis at all", lambda a: a.sum(()), (X,)),
    Sample("mean of two axes", lambda a: a.mean((-1, 0), keepdim=True), (IMAGE,)),
    Sample("product of integers", lambda a: a.prod(1), (N,)),
    Sample("amax", lambda a: a.amax(-1), (X,)),
    Sample("amin of all", lambda a: a.amin(), (N,)),
    Sample("amax of booleans", lambda a: a.amax(0, keepdim=True), (B,)),
    Sample("max with places", lambda a: a.max(-1), (X,)),
    Sample("min with places", lambda a: a.min(0, keepdim=True), (X,)),
    Sample("argmax of all", torch.argmax, (X,)),
    Sample("argmin along an axis", lambda a: a.argmin(-1, keepdim=True), (X,)),
    Sample("any", torch.any, (B,)),
    Sample("any of floats", lambda a: a.any(1), (X.round(),)),
    Sample("all", lambda a: a.all(-1), (N,)),
    Sample("variance", lambda a: a.var((1, 2)), (IMAGE,)),
    Sample("deviation without correction", lambda a: a.std(-1, correction=0), (X,)),
    Sample("norms", lambda a: (a.norm(2, -1), a.norm(1), a.norm(float("inf"), 0)), (X,)),
    Sample("norm of a third order", lambda a: torch.linalg.vector_norm(a, 3.5, -1), (X,)),
    Sample("log of summed exponentials", lambda a: a.logsumexp(-1), (X,)),
    Sample("softmax of narrow floats", lambda a: a.softmax(-1).float(), (X.half(),)),
    Sample("of one number", lambda a: (a.softmax(0), a.log_softmax(-1), a.topk(1)), (X[0, 0],)),
    Sample("median", lambda a: a.median(-1), (floats(3, 5),)),
    Sample("largest three", lambda a: a.topk(3, -1), (floats(3, 9),)),
    Sample("smallest three", lambda a: a.topk(3, 0, largest=False), (floats(9, 3),)),
    Sample("sort downwards", lambda a: a.sort(0, descending=True), (floats(9, 3),)),
    Sample("stable sort", lambda a: torch.sort(a, stable=True), (whole(24, low=0, high=4),)),
    Sample("argsort", lambda a: a.argsort(-1), (floats(3, 9),)),
    Sample("running sum of booleans", lambda a: a.cumsum(-1), (B,)),
    Sample("running product", lambda a: a.cumprod(0), (X,)),
    Sample("running maximum", lambda a: a.cummax(-1), (floats(3, 9).round(),)),
    Sample("running minimum of integers", lambda a: a.cummin(0), (N,)),
)

INDEXING = (
    Sample("indices below zero", lambda a, i: a[i], (X, torch.tensor([-1, 0, -3]))),
    Sample("two indices", lambda a, i, j: a[i, j], (X, torch.tensor([2, 0]), torch.tensor([-1, 1]))),
    Sample(
        "indices that broadcast",
        lambda a, i, j: a[i, j],
        (X, torch.tensor([[0], [2], [-1]]), torch.tensor([1, 3])),
    ),
    Sample(
        "indices that broadcast between axes",
        lambda a, i, j: a[:, i, j],
        (IMAGE, torch.tensor([[0], [2]]), torch.tensor([[1, -2, 0]])),
    ),
    Sample(
        "indices of axes that are not adjacent",
        lambda a, i, j: a[:, i, :, j],
        (IMAGE, torch.tensor([0, 2]), torch.tensor([1, -1])),
    ),
    Sample("a table in rows of two", F.embedding, (whole(2, 3, low=0), X.repeat(3, 1))),
    Sample("gather", lambda a, i: a.gather(1, i), (X, whole(3, 2, low=0, high=4))),
    Sample("gather from fewer rows", lambda a, i: a.gather(1, i), (X, whole(2, 2, low=0, high=4))),
    Sample("take", torch.take, (X, torch.tensor([[0, -1], [5, 11]]))),
    Sample("index select", lambda a, i: a.index_select(-1, i), (X, torch.tensor([3, 0, 0]))),
    Sample("one element from the end", lambda a: a[..., -2], (X,)),
    Sample("a slice from the end", lambda a: a[:, -3:-1], (X,)),
    Sample("a slice with a step", lambda a: a[:, 1::2], (X,)),
    Sample("put", lambda a, i: a.index_put((i,), torch.ones(())), (X, torch.tensor([0, -1]))),
    Sample("add at", lambda a, i, b: a.index_add(0, i, b), (X, torch.tensor([2, 0, 2]), X)),
    Sample("scatter", lambda a, i, b: a.scatter(1, i, b), (X, torch.tensor([[1, 0], [3, 2]]), X)),
    Sample("scatter a number", lambda a, i: a.scatter(1, i, 7.0), (X, torch.tensor([[1], [3]]))),
    Sample("scatter and add", lambda a, i, b: a.scatter_add(0, i, b), (X, whole(3, 4, low=0, high=3), X)),
    Sample(
        "scatter and reduce without self",
        lambda a, i, b: a.scatter_reduce(0, i, b, "amax", include_self=False),
        (X, whole(2, 4, low=0, high=3), X),
    ),
    Sample("masked fill", lambda a, m: a.masked_fill(m, float("-inf")), (X, B)),
    Sample("masked scatter", lambda a, m, b: a.masked_scatter(m, b), (X, B, floats(12))),
    Sample("write one row", lambda a: torch.select_scatter(a, torch.ones(4), 0, -1), (X,)),
    Sample("write a slice", lambda a: torch.slice_scatter(a, a[:, :2] * 2, 1, 2), (X,)),
    Sample("write a slice without bounds", lambda a: torch.slice_scatter(a, a[:, ::2] * 2, 1, step=2), (X,)),
    Sample("write a whole axis", lambda a: torch.slice_scatter(a, a * 2, 1), (X,)),
    Sample("windows", lambda a: a.unfold(-1, 3, 2), (floats(2, 8),)),
    Sample("diagonal", lambda a: a.diagonal(1), (X,)),
    Sample("triangles", lambda a: a.tril(-1) + a.triu(1), (X,)),
    Sample("roll and flip", lambda a: a.roll((1, -2), (0, 1)).flip(-1), (X,)),
    Sample("repeat each", lambda a: a.repeat_interleave(3, 1), (X,)),
    Sample("one hot", lambda a: F.one_hot(a, 5), (whole(3, low=0, high=5),)),
    Sample("buckets", torch.bucketize, (X, torch.tensor([-1.0, 0.0, 1.0]))),
    Sample("joining with nothing", lambda a, n: torch.cat([torch.empty(0), a, n], -1), (X, N)),
    Sample("infinities", lambda a: torch.full_like(a, float("-inf")), (X,)),
    Sample("cut and pad", lambda a: F.pad(a, (-1, 2, 1, 0), value=3.0), (X,)),
    Sample("pad booleans", lambda a: F.pad(a, (1, 1), value=True), (B,)),
    Sample("pad by reflection", lambda a: F.pad(a, (2, 1, 1, 2), mode="reflect"), (IMAGE,)),
    Sample("pad by the edge", lambda a: F.pad(a, (2, 1, 1, 2), mode="replicate"), (IMAGE,)),
    Sample("pad around", lambda a: F.pad(a, (2, 1), mode="circular"), (floats(2, 3, 7),)),
    Sample("a range", lambda a: torch.arange(2, 9, 0.75) + a[0, 0], (X,)),
    Sample("sums of bags", lambda t, i, o: F.embedding_bag(i, t, o, mode="sum"), BAG),
    Sample("means of bags", lambda t, i, o: F.embedding_bag(i, t, o, mode="mean"), BAG),
    Sample(
        "rows of at most a norm",
        lambda t, i: torch.ops.aten.embedding_renorm(t, i, 1.5, 2.0),
        BAG[:2],
    ),
    Sample("maxima of bags", lambda t, i, o: F.embedding_bag(i, t, o, mode="max"), BAG),
    Sample(
        "bags with a padding",
        lambda t, i, o: F.embedding_bag(i, t, o, mode="sum", padding_idx=4, include_last_offset=True),
        BAG,
    ),
    Sample("distances", lambda a, b: torch.cdist(a, b), (floats(2, 3, 4), floats(2, 5, 4))),
)


def _normed_and_moved(a: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> Any:
    mean, variance = mean.clone(), variance.clone()
    return F.batch_norm(a, mean, variance, training=True), mean, variance


def _volume_means(a: torch.Tensor) -> torch.Tensor:
    return F.avg_pool3d(a, 2, 1, 1, divisor_override=3)


IMAGES = (
    Sample("adaptive maximum", lambda a: F.adaptive_max_pool2d(a, (3, 4)), (IMAGE,)),
    Sample("adaptive mean", lambda a: F.adaptive_avg_pool2d(a, (3, 4)), (IMAGE,)),
    Sample("adaptive mean of one axis", lambda a: F.adaptive_avg_pool1d(a, 3), (floats(2, 3, 7),)),
    Sample(
        "adaptive means of one image",
        lambda a, v: (
            F.adaptive_avg_pool1d(a[0], 3),
            F.adaptive_avg_pool2d(a, (3, 4)),
            F.adaptive_avg_pool3d(v, (2, 3, 3)),
        ),
        (IMAGE[0], floats(2, 4, 3, 5)),
    ),
    Sample("maximum with a rest", lambda a: F.max_pool2d(a, 3, 2, 1, ceil_mode=True), (IMAGE,)),
    Sample("mean with a rest", lambda a: F.avg_pool2d(a, 3, 2, 1, ceil_mode=True), (IMAGE,)),
    Sample("mean without the padding", lambda a: F.avg_pool2d(a, 3, 2, 1, count_include_pad=False), (IMAGE,)),
    Sample("bilinear", lambda a: F.interpolate(a, (5, 13), mode="bilinear"), (IMAGE,)),
    Sample(
        "bilinear by corners",
        lambda a: F.interpolate(a, (11, 5), mode="bilinear", align_corners=True),
        (IMAGE,),
    ),
    Sample("bilinear by a factor", lambda a: F.interpolate(a, scale_factor=1.7, mode="bilinear"), (IMAGE,)),
    Sample("nearest", lambda a: F.interpolate(a, (5, 13)), (IMAGE,)),
    Sample("nearest by a factor", lambda a: F.interpolate(a, scale_factor=1.7), (IMAGE,)),
    Sample(
        "bilinear-to-one",
        lambda a: F.interpolate(a, (1, 4), mode="bilinear", align_corners=True),
        (IMAGE,),
    ),
    Sample("exp2", lambda a: torch.exp2(a), (IMAGE,)),
    *(
        Sample(
            f"trilinear to {size}, corners {corners}",
            lambda a, size=size, corners=corners: F.interpolate(
                a, size, mode="trilinear", align_corners=corners
            ),
            (floats(2, 3, 4, 5, 6),),
        )
        for size, corners in (((3, 9, 6), False), ((7, 1, 8), True))
    ),
    Sample(
        "trilinear by a factor",
        lambda a: F.interpolate(a, scale_factor=1.7, mode="trilinear"),
        (floats(1, 2, 3, 4, 5),),
    ),
    Sample("bicubic", lambda a: F.interpolate(a, (9, 11), mode="bicubic"), (IMAGE,)),
    Sample("linear", lambda a: F.interpolate(a, 11, mode="linear"), (floats(2, 3, 7),)),
    Sample(
        "grid sampling", lambda a, g: F.grid_sample(a, g, align_corners=False), (IMAGE, floats(2, 4, 5, 2))
    ),
    Sample("pixel shuffle", lambda a: F.pixel_unshuffle(F.pixel_shuffle(a, 2), 2), (floats(1, 8, 3, 4),)),
    Sample("channel shuffle", lambda a: F.channel_shuffle(a, 2), (floats(1, 8, 3, 4),)),
    Sample("patches and back", lambda a: F.fold(F.unfold(a, 2), (7, 9), 2), (IMAGE,)),
    Sample("group norm", lambda a: F.group_norm(a, 3), (IMAGE,)),
    Sample("group norm in bfloat16", lambda a: F.group_norm(a.bfloat16(), 3).float(), (IMAGE,)),
    Sample(
        "batch norm of wider statistics",
        lambda a, m, v: F.batch_norm(a.bfloat16(), m, v).float(),
        (IMAGE, floats(3), floats(3).abs()),
    ),
    Sample("layer norm", lambda a: F.layer_norm(a, a.shape[-1:]), (IMAGE,)),
    Sample("layer norm in float64", lambda a: F.layer_norm(a.double(), a.shape[-1:]), (IMAGE,)),
    Sample("layer norm in bfloat16", lambda a: F.layer_norm(a.bfloat16(), a.shape[-1:]).float(), (IMAGE,)),
    Sample("instance norm", lambda a: F.instance_norm(a), (IMAGE,)),
    Sample(
        "norm by the batch's own statistics",
        lambda a, w: F.batch_norm(a, None, None, w, None, training=True),
        (IMAGE, floats(3)),
    ),
    Sample("and its running ones", _normed_and_moved, (IMAGE, floats(3), floats(3).abs())),
    Sample("mean of volumes by a divisor", _volume_means, (IMAGE,)),
    Sample("layer norm of two axes", lambda a: F.layer_norm(a, (7, 9)), (IMAGE,)),
    Sample("root mean square norm", lambda a, w: F.rms_norm(a, (4,), w), (X, floats(4))),
    Sample("local response norm", lambda a: F.local_response_norm(a, 2), (IMAGE,)),
    Sample("float64 convolution", lambda a, w: F.conv2d(a, w), (IMAGE.double(), floats(2, 3, 3, 3).double())),
    Sample("float64 product", lambda a: a @ a.mT, (X.double(),)),
    Sample(
        "transposed convolution",
        lambda a, w: F.conv_transpose2d(a, w, None, 2, 1, 1),
        (IMAGE, floats(3, 2, 3, 3)),
    ),
    Sample(
        "transposed convolution with rows beyond it",
        lambda a, w, b: F.conv_transpose2d(a, w, b, (1, 2), (0, 2), (2, 3), dilation=(4, 4)),
        (IMAGE, floats(3, 2, 3, 3), floats(2)),
    ),
    Sample(
        "statistics of norms",
        lambda a: (
            torch.native_layer_norm(a, (7, 9), None, None, 1e-5),
            torch.native_group_norm(a, None, None, 2, 3, 63, 3, 1e-5),
        ),
        (IMAGE,),
    ),
    Sample(
        "attention",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        (floats(1, 2, 5, 4), floats(1, 2, 5, 4), floats(1, 2, 5, 4)),
    ),
    Sample("products by name", lambda a, b: torch.einsum("bchw,cd->bdhw", a, b), (IMAGE, floats(3, 5))),
    Sample("outer product", torch.outer, (floats(3), floats(4))),
    Sample("weighted product", lambda a: torch.baddbmm(a, a, a, beta=0.5, alpha=2.0), (floats(2, 3, 3),)),
    Sample(
        "product of bytes",
        torch._int_mm,
        (whole(17, 8).to(torch.int8), whole(8, 8).to(torch.int8)),
    ),
)


def _rotated(a: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    pairs = torch.view_as_complex(a.reshape(2, 4, 3, 2))
    turns = torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(pairs * turns[None]).flatten(2)


def _complex_shapes(a: torch.Tensor) -> torch.Tensor:
    pairs = torch.fft.fft(a).permute(2, 0, 1).unsqueeze(1)[1:-1]
    joined = torch.cat([pairs, pairs.conj()], -1).expand(4, 2, 2, 8).reshape(4, 2, 16)[1]
    return torch.view_as_real((joined - joined * 0.5 + 1) / 3)


SIGNAL = floats(2, 4, 6)
VOLUME = (floats(2, 3, 4, 5, 6), floats(2, 2, 3, 4, 3))

COMPLEX = (
    Sample("transform of two axes", lambda a: torch.fft.fftn(a, dim=(1, 2)).real, (SIGNAL,)),
    Sample("transform of complex numbers", lambda a: torch.view_as_real(torch.fft.fft2(a + 0j)), (SIGNAL,)),
    Sample("transform and back", lambda a: torch.fft.irfft(torch.fft.rfft(a, norm="ortho"), 6), (SIGNAL,)),
    Sample("back to an odd length", lambda a: torch.fft.irfft(torch.fft.rfft(a), 5), (SIGNAL[..., :5],)),
    Sample("of two axes and back", lambda a: torch.fft.irfft2(torch.fft.rfft2(a) * 2), (SIGNAL,)),
    Sample("inverse transform", lambda a: torch.fft.ifft(a, dim=1).imag * 2, (SIGNAL,)),
    Sample("magnitudes", lambda a: torch.fft.fft(a.double(), norm="forward").abs(), (SIGNAL,)),
    Sample(
        "spectrogram",
        lambda a: torch.stft(a, 8, 4, window=torch.hann_window(8), return_complex=True).abs(),
        (floats(2, 32),),
    ),
    Sample("rotation", _rotated, (SIGNAL, floats(4, 3))),
    Sample("shapes of complex numbers", _complex_shapes, (SIGNAL,)),
)

VOLUMES = tuple(
    Sample(
        f"volume by {mode}, {padding}, corners {corners}",
        lambda a, g, m=mode, p=padding, c=corners: F.grid_sample(a, g, m, p, c),
        VOLUME,
    )
    for mode, padding, corners in (
        ("bilinear", "zeros", False),
        ("bilinear", "border", True),
        ("bilinear", "reflection", False),
        ("nearest", "reflection", True),
        ("nearest", "zeros", False),
    )
)

GROUPS = (floats(7, 4), floats(3, 4, 5), torch.tensor([2, 2, 7]))

PAIRS = (
    Sample("power of two", torch.exp2, (X,)),
    Sample("hypotenuse", lambda a, b: torch.hypot(a * 1e20, b * 1e20) / 1e20, (X, X.flip(0))),
    Sample("sign of another", torch.copysign, (X, torch.tensor([0.0, -0.0, 1.0, -1.0]))),
    Sample(
        "maximum of all but NaN",
        lambda a, b: torch.fmax(a, b) + torch.fmin(a, b),
        (X, torch.tensor([0.5, float("nan"), -1.0, 0.0])),
    ),
    *(
        Sample(
            f"margins by {how}",
            lambda a, t, how=how: F.multilabel_margin_loss(a, t, reduction=how),
            (X, torch.tensor([[3, 0, -1, 1], [0, -1, 1, 2], [2, 1, 0, 3]])),
        )
        for how in ("mean", "sum", "none")
    ),
    Sample("logarithm of a sum of powers", torch.logaddexp, (X * 9, X.flip(0))),
    Sample("by two", torch.logaddexp2, (X * 9, X.flip(0))),
    Sample("times a power of two", torch.ldexp, (X, whole(3, 4, low=-3, high=3))),
    Sample("shifts", lambda a: (a << 2) + (a >> 1), (N,)),
    Sample("many rows by groups", torch.ops.transformers.grouped_mm_fallback, GROUPS),
    Sample(
        "few rows by groups",
        torch.ops.transformers.grouped_mm_fallback,
        (GROUPS[0][:2], GROUPS[1], torch.tensor([0, 1, 2])),
    ),
    Sample("distances of all pairs", lambda a: torch.pdist(a), (floats(5, 4),)),
    Sample("triangle", lambda a: a.sum() + torch.tril_indices(3, 4, 1), (N,)),
    *VOLUMES,
)
