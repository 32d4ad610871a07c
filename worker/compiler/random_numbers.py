"""The random numbers of compiled models: a function of a seed, a stream and an element's index.

``torch.ops.bessemer.random_bits`` computes it in torch, and a translation rule in TensorIR, with the same
bits. Each call in a program has its own stream. Element ``i`` is a block of Philox-4x32-10::

    key     = the seed's two words of 32 bits
    counter = (i's two words, the stream's two words)
    10 x    : counter = (high(M1 * c2) ^ c1 ^ k0, low(M1 * c2), high(M0 * c0) ^ c3 ^ k1, low(M0 * c0))
              key    += (W0, W1)
    element = the first two words of the last counter

Source: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11 (2011), sections 3.3 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
WORD = 0xFFFFFFFF


def philox(seed: torch.Tensor, stream: int, size: Sequence[int]) -> torch.Tensor:
    """Random bits.

    Args:
        seed: an int64 scalar.
        stream: the number of the call in its program.
        size: the shape of the result.

    Returns:
        int64, all 64 bits of each element random.
    """
    index = torch.arange(math.prod(size)).reshape(tuple(size))
    counter = [index & WORD, index >> 32, torch.tensor(stream & WORD), torch.tensor(stream >> 32)]
    key = [seed & WORD, (seed >> 32) & WORD]
    for _ in range(ROUNDS):
        high0, low0 = _product(MULTIPLIERS[0], counter[0])
        high1, low1 = _product(MULTIPLIERS[1], counter[2])
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0]
        key = [(word + step) & WORD for word, step in zip(key, KEY_STEPS, strict=True)]
    return (counter[0] | (counter[1] << 32)).expand(tuple(size)).contiguous()


def _product(factor: int, word: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The high and the low word of a product of two words, which overflows int64 without harm to its bits."""
    product = word * factor
    return (product >> 32) & WORD, product & WORD


def _define() -> torch.library.Library:
    library = torch.library.Library("bessemer", "FRAGMENT")
    library.define("random_bits(Tensor? seed, int stream, SymInt[] size) -> Tensor")
    library.impl("random_bits", philox, "CPU")

    @torch.library.register_fake("bessemer::random_bits", lib=library)
    def _(_seed: torch.Tensor | None, _stream: int, size: Sequence[int]) -> torch.Tensor:
        return torch.empty(size, dtype=torch.int64)

    return library


_LIBRARY = _define()
"""Keeps the operator defined: torch removes it with its library."""

RANDOM_BITS = torch.ops.bessemer.random_bits.default
"""Takes the seed, which is None until the program has one, the stream, and the shape."""
