"""Random bits from a seed: Philox-4x32-10, as ``worker.compiler.random_numbers`` computes it in torch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from tvm import relax, te, tirx

from worker.compiler.random_numbers import KEY_STEPS, MULTIPLIERS, ROUNDS, WORD
from worker.compiler.translation.element_functions import let
from worker.compiler.translation.emitter import Emitter
from worker.compiler.translation.rule import Decomposition, Rule, Rules

Words = tuple[Any, ...]


def _random_bits(emit: Emitter, seed: relax.Expr, stream: int, size: Sequence[Any]) -> relax.Expr:
    def compute(key: te.Tensor) -> te.Tensor:
        return te.compute(tuple(size), lambda *at: _element(key(), stream, _flat(at, size)), name="random")

    return emit.tensor_expression(compute, seed)


def _flat(at: Sequence[Any], size: Sequence[Any]) -> Any:
    """The row-major index of an element."""
    axes = zip(at, size, strict=True)
    return reduce(lambda index, axis: index * axis[1] + axis[0], axes, tirx.const(0, "int64"))


def _element(seed: Any, stream: int, index: Any) -> Any:
    """Unsigned, because LLVM assumes that products of signed numbers do not overflow."""
    key = tirx.reinterpret("uint64", seed.astype("int64"))
    at = index.astype("uint64")
    counter = (_low(at), _high(at), _word(stream & WORD), _word(stream >> 32))
    return let(key, lambda bits: _rounds(counter, (_low(bits), _high(bits)), ROUNDS))


def _rounds(counter: Words, key: Words, left: int) -> Any:
    if not left:
        return tirx.reinterpret("int64", counter[0] | (counter[1] << tirx.const(32, "uint64")))

    def step(first: Any, second: Any) -> Any:
        words = (
            _high(second) ^ counter[1] ^ key[0],
            _low(second),
            _high(first) ^ counter[3] ^ key[1],
            _low(first),
        )
        following = tuple(_low(word + _word(add)) for word, add in zip(key, KEY_STEPS, strict=True))
        return _bound(words, lambda bound: _rounds(bound, following, left - 1))

    products = (counter[0] * _word(MULTIPLIERS[0]), counter[2] * _word(MULTIPLIERS[1]))
    return _bound(products, lambda bound: step(*bound))


def _bound(values: Words, body: Any, done: Words = ()) -> Any:
    """An expression of several values, each computed once."""
    if not values:
        return body(done)
    return let(values[0], lambda value: _bound(values[1:], body, (*done, value)))


def _word(value: int) -> Any:
    return tirx.const(value, "uint64")


def _low(value: Any) -> Any:
    return value & _word(WORD)


def _high(value: Any) -> Any:
    return value >> tirx.const(32, "uint64")


def _all_dropped(data: torch.Tensor, probability: float, train: bool | None) -> Any:
    """A dropout of everything draws nothing, so capture leaves it."""
    if train is False or probability != 1:
        return NotImplemented
    return torch.zeros_like(data), torch.zeros_like(data, dtype=torch.bool)


RULES: Rules = (
    Rule("bessemer.random_bits.default", _random_bits),
    Decomposition("aten.native_dropout.default", _all_dropped),
)
