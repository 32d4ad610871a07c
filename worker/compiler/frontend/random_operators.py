"""torch's random operators as functions of random bits.

Each function takes the arguments of an operator. It calls ``RANDOM_BITS`` without a seed, which the program
gets later, and returns ``NotImplemented`` for a call that draws nothing, such as a dropout at inference.

Sources: G. Box and M. Muller, "A note on the generation of random normal deviates" (1958);
P. Efraimidis and P. Spirakis, "Weighted random sampling with a reservoir" (2006), for draws without
replacement.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from worker.compiler.packed_recurrence import PACKED_LAYERS
from worker.compiler.random_numbers import RANDOM_BITS
from worker.compiler.torch_costs import RECURRENT

Size = Sequence[int]
DType: TypeAlias = torch.dtype | None

_DIGITS = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53}
_ALPHA = 1.7580993408473766
"""The negative limit of SELU, which ``alpha_dropout`` drops to."""


def _bits(size: Size) -> Tensor:
    return RANDOM_BITS(None, 0, size)


def _fraction(bits: Tensor, dtype: torch.dtype) -> Tensor:
    """Uniform in [0, 1): every number of the dtype's digits, exactly."""
    digits = _DIGITS[dtype]
    return (bits & (2**digits - 1)).to(dtype) * 2.0**-digits


def _inner_fraction(bits: Tensor, dtype: torch.dtype) -> Tensor:
    """Uniform in (0, 1), without the ends, so that its logarithm is finite and not 0."""
    digits = _DIGITS[dtype] - 1
    return ((bits & (2**digits - 1)).to(dtype) + 0.5) * 2.0**-digits


def _default(dtype: DType) -> torch.dtype:
    return torch.get_default_dtype() if dtype is None else dtype


def _computed(dtype: torch.dtype) -> torch.dtype:
    """The dtype to compute in."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _uniform(size: Size, dtype: torch.dtype) -> Tensor:
    return _fraction(_bits(size), dtype)


def _inner_uniform(size: Size, dtype: torch.dtype) -> Tensor:
    return _inner_fraction(_bits(size), dtype)


def _normal(size: Size, dtype: torch.dtype) -> Tensor:
    """Box and Muller's transform; two fractions of float32 come from one element's bits."""
    wide = _computed(dtype)
    first = _bits(size)
    second = _bits(size) if wide == torch.float64 else first >> 32
    radius = torch.sqrt(-2 * torch.log(_inner_fraction(first, wide)))
    return (radius * torch.cos(2 * math.pi * _fraction(second, wide))).to(dtype)


def _chance(size: Size, probability: float | Tensor) -> Tensor:
    """Booleans that are true with a probability."""
    wide = _computed(probability.dtype) if isinstance(probability, Tensor) else torch.float32
    return _uniform(size, wide) < probability


def _integers(size: Size, low: int, count: Any, dtype: torch.dtype) -> Tensor:
    """Integers from ``low`` on; a count beyond 2⁶³ loses its last ones."""
    number = _bits(size) & (2**63 - 1)
    is_whole = type(count) is int and count >= 2**63
    return ((number if is_whole else number % count) + low).to(dtype)


def _rand(size: Size, *, dtype: DType = None, **_: Any) -> Tensor:
    return _uniform(size, _default(dtype))


def _rand_like(like: Tensor, *, dtype: DType = None, **_: Any) -> Tensor:
    return _uniform(like.shape, dtype or like.dtype)


def _randn(size: Size, *, dtype: DType = None, **_: Any) -> Tensor:
    return _normal(size, _default(dtype))


def _randn_like(like: Tensor, *, dtype: DType = None, **_: Any) -> Tensor:
    return _normal(like.shape, dtype or like.dtype)


def _randint(high: int, size: Size, *, dtype: DType = torch.int64, **_: Any) -> Tensor:
    return _integers(size, 0, high, dtype or torch.int64)


def _randint_from(low: int, high: int, size: Size, *, dtype: DType = torch.int64, **_: Any) -> Tensor:
    return _integers(size, low, high - low, dtype or torch.int64)


def _randint_like(like: Tensor, high: Any, *, dtype: DType = None, **_: Any) -> Tensor:
    return _integers(like.shape, 0, high, dtype or like.dtype)


def _randint_like_from(like: Tensor, low: int, high: int, *, dtype: DType = None, **_: Any) -> Tensor:
    return _integers(like.shape, low, high - low, dtype or like.dtype)


def _random(like: Tensor, **_: Any) -> Tensor:
    """Integers up to the largest, or up to the largest below which the float represents all integers."""
    if like.dtype == torch.bool:
        largest = 1
    elif like.is_floating_point():
        largest = 2 ** _DIGITS[like.dtype]
    else:
        largest = torch.iinfo(like.dtype).max
    return _integers(like.shape, 0, largest + 1, like.dtype)


def _random_to(like: Tensor, end: int, **_: Any) -> Tensor:
    return _integers(like.shape, 0, end, like.dtype)


def _permutation(count: int, *, dtype: DType = torch.int64, **_: Any) -> Tensor:
    return torch.argsort(_bits((count,))).to(dtype or torch.int64)


def _bernoulli(probability: Tensor, **_: Any) -> Tensor:
    return _chance(probability.shape, probability).to(probability.dtype)


def _bernoulli_like(like: Tensor, probability: Any = 0.5, **_: Any) -> Tensor:
    return _chance(like.shape, probability).to(like.dtype)


def _uniform_between(like: Tensor, start: float = 0.0, end: float = 1.0, **_: Any) -> Tensor:
    return _uniform(like.shape, like.dtype) * (end - start) + start


def _normal_like(like: Tensor, mean: float = 0.0, std: float = 1.0, **_: Any) -> Tensor:
    return _normal(like.shape, like.dtype) * std + mean


def _normal_around(mean: Any, std: Any = 1.0, **_: Any) -> Tensor:
    """Normal numbers with tensors of means or standard deviations."""
    like = mean + std
    return _normal(like.shape, like.dtype) * std + mean


def _normal_of_size(mean: float, std: float, size: Size, *, dtype: DType = None, **_: Any) -> Tensor:
    return _normal(size, _default(dtype)) * std + mean


def _log_normal(like: Tensor, mean: float = 1.0, std: float = 2.0, **_: Any) -> Tensor:
    return torch.exp(_normal_like(like, mean, std))


def _exponential(like: Tensor, rate: float = 1.0, **_: Any) -> Tensor:
    wide = _computed(like.dtype)
    return (-torch.log(_inner_uniform(like.shape, wide)) / rate).to(like.dtype)


def _cauchy(like: Tensor, median: float = 0.0, sigma: float = 1.0, **_: Any) -> Tensor:
    turn = _inner_uniform(like.shape, _computed(like.dtype)) - 0.5
    return (median + sigma * torch.tan(math.pi * turn)).to(like.dtype)


def _geometric(like: Tensor, probability: float, **_: Any) -> Tensor:
    wide = _computed(like.dtype)
    return torch.ceil(torch.log(_inner_uniform(like.shape, wide)) / math.log1p(-probability)).to(like.dtype)


def _multinomial(weights: Tensor, count: int, replacement: bool = False, **_: Any) -> Tensor:
    """Indices drawn with probabilities in proportion to the weights."""
    wide = weights.to(_computed(weights.dtype))
    if not replacement:
        race = wide / _exponential(wide)
        return race.argmax(-1, keepdim=True) if count == 1 else race.topk(count).indices
    sums = wide.cumsum(-1)
    drawn = _uniform((*weights.shape[:-1], count), wide.dtype) * sums[..., -1:]
    return torch.searchsorted(sums, drawn, right=True).clamp(max=weights.shape[-1] - 1)


def _dropped(data: Tensor, probability: float, size: Size, alpha: bool = False) -> Tensor:
    """Some elements, or the channels of a ``size``, set to 0 or to SELU's limit, and the others scaled."""
    if probability == 1:
        return torch.zeros_like(data)
    kept = _chance(size, 1 - probability).to(data.dtype)
    if not alpha:
        return data * (kept / (1 - probability))
    scale = 1 / math.sqrt((_ALPHA * _ALPHA * probability + 1) * (1 - probability))
    return data * (kept * scale) + ((kept - 1) * (_ALPHA * scale) + _ALPHA * scale * probability)


def _dropout(of_channels: bool, alpha: bool) -> Callable[[Tensor, float, bool], Tensor]:
    def drop(data: Tensor, probability: float, train: bool) -> Tensor:
        if not train or probability == 0:
            return NotImplemented
        size = (*data.shape[:2], *[1] * (data.ndim - 2)) if of_channels else data.shape
        return _dropped(data, probability, size, alpha)

    return drop


def _native_dropout(data: Tensor, probability: float, train: bool | None) -> tuple[Tensor, Tensor]:
    if train is False or probability == 0:
        return NotImplemented
    if probability == 1:
        return torch.zeros_like(data), torch.zeros_like(data, dtype=torch.bool)
    kept = _chance(data.shape, 1 - probability)
    return data * (kept.to(data.dtype) / (1 - probability)), kept


def _slopes(data: Tensor, lower: float, upper: float) -> Tensor:
    slope = _uniform_between(data, lower, upper)
    return torch.where(data <= 0, slope, torch.ones_like(slope))


def _rrelu(
    data: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, *_: Any, **__: Any
) -> Tensor:
    return data * _slopes(data, lower, upper) if training else NotImplemented


def _rrelu_with_noise(
    data: Tensor, _noise: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, *_: Any
) -> tuple[Tensor, Tensor]:
    if not training:
        return NotImplemented
    slopes = _slopes(data, lower, upper)
    return data * slopes, slopes


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    probability: float = 0.0,
    causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention whose weights are dropped."""
    if probability == 0:
        return NotImplemented
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
    scores = query @ key.transpose(-2, -1) * (scale or 1 / math.sqrt(query.shape[-1]))
    if causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    weights = torch.softmax(scores, -1)
    return _dropped(weights, probability, weights.shape) @ value


def _recurrent(operator: torch._ops.OpOverload) -> Callable[..., Any]:
    """A recurrent layer of several layers with dropout between them: one call for each layer."""

    def layers(
        data: Tensor,
        first: Any,
        params: list[Tensor],
        biases: bool,
        count: int,
        probability: float,
        train: bool,
        *rest: Any,
    ) -> Any:
        if not train or probability == 0 or count == 1:
            return NotImplemented
        size, states = len(params) // count, [first] if isinstance(first, Tensor) else first
        directions = states[0].shape[0] // count
        last: list[tuple[Tensor, ...]] = []
        for layer in range(count):
            own = [state[layer * directions : (layer + 1) * directions] for state in states]
            given = own[0] if isinstance(first, Tensor) else own
            weights = params[layer * size : (layer + 1) * size]
            data, *after = operator(data, given, weights, biases, 1, 0.0, False, *rest)
            data = _dropped(data, probability, data.shape) if layer < count - 1 else data
            last.append(tuple(after))
        return data, *(torch.cat(each) for each in zip(*last, strict=True))

    return layers


_aten = torch.ops.aten

FUNCTIONS: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    _aten.rand.default: _rand,
    _aten.rand.generator: _rand,
    _aten.rand_like.default: _rand_like,
    _aten.rand_like.generator: _rand_like,
    _aten.randn.default: _randn,
    _aten.randn.generator: _randn,
    _aten.randn_like.default: _randn_like,
    _aten.randn_like.generator: _randn_like,
    _aten.randint.default: _randint,
    _aten.randint.generator: _randint,
    _aten.randint.low: _randint_from,
    _aten.randint.low_generator: _randint_from,
    _aten.randint_like.default: _randint_like,
    _aten.randint_like.generator: _randint_like,
    _aten.randint_like.Tensor: _randint_like,
    _aten.randint_like.Tensor_generator: _randint_like,
    _aten.randint_like.low_dtype: _randint_like_from,
    _aten.randint_like.low_generator_dtype: _randint_like_from,
    _aten.random.default: _random,
    _aten.random.to: _random_to,
    _aten.randperm.default: _permutation,
    _aten.randperm.generator: _permutation,
    _aten.bernoulli.default: _bernoulli,
    _aten.bernoulli.p: _bernoulli_like,
    _aten.bernoulli.Tensor: _bernoulli_like,
    _aten.uniform.default: _uniform_between,
    _aten.normal_functional.default: _normal_like,
    _aten.normal.Tensor_Tensor: _normal_around,
    _aten.normal.Tensor_float: _normal_around,
    _aten.normal.float_Tensor: _normal_around,
    _aten.normal.float_float: _normal_of_size,
    _aten.log_normal.default: _log_normal,
    _aten.exponential.default: _exponential,
    _aten.cauchy.default: _cauchy,
    _aten.geometric.default: _geometric,
    _aten.multinomial.default: _multinomial,
    _aten.dropout.default: _dropout(of_channels=False, alpha=False),
    _aten.feature_dropout.default: _dropout(of_channels=True, alpha=False),
    _aten.alpha_dropout.default: _dropout(of_channels=False, alpha=True),
    _aten.feature_alpha_dropout.default: _dropout(of_channels=True, alpha=True),
    _aten.native_dropout.default: _native_dropout,
    _aten.rrelu.default: _rrelu,
    _aten.rrelu_with_noise_functional.default: _rrelu_with_noise,
    _aten.scaled_dot_product_attention.default: _attention,
    **{operator: _recurrent(operator) for operator in (*RECURRENT, *PACKED_LAYERS.values())},
}
"""The functions by operator."""
