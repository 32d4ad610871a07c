"""Recognizes decoders: language models that keep a cache as state and generate token by token."""

from collections.abc import Iterable, Sequence
from math import prod
from typing import Protocol


class Tensor(Protocol):
    """A spec of a tensor, of the contract or of a bundle's runner."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes."""
        ...

    @property
    def dtype(self) -> str:
        """Its element type, such as ``int64``."""
        ...


def tokens_taken(inputs: Sequence[Tensor]) -> int | None:
    """How many tokens an entry point takes: token ids, alone or with as many positions.

    Args:
        inputs: its inputs without the state.

    Returns:
        None unless there are one or two inputs, all integers, with the same number of elements.
    """
    if not 1 <= len(inputs) <= 2 or not all("int" in spec.dtype for spec in inputs):
        return None
    sizes = {prod(spec.shape) for spec in inputs}
    return sizes.pop() if len(sizes) == 1 else None


def decoder_tokens(entries: Iterable[tuple[Sequence[Tensor], bool]]) -> tuple[int | None, ...]:
    """The number of tokens that each entry point of a library takes.

    Args:
        entries: the inputs of each without the state, and whether it keeps state.

    Returns:
        None for an entry point that takes something else, and for all unless one that keeps state takes a
        single token.
    """
    found = tuple(tokens_taken(inputs) if keeps_state else None for inputs, keeps_state in entries)
    return found if 1 in found else (None,) * len(found)
