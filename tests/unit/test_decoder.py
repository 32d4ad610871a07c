"""Recognizing decoders by their entry points."""

import pytest
from tensor_samples import tensor

from bessemer.contract.decoder import decoder_tokens, tokens_taken
from bessemer.contract.tensor import TensorSpec

TOKEN, POSITION = tensor("input_ids=1x1:int64"), tensor("cache_position=1:int64")
PIECE, POSITIONS = tensor("input_ids=1x16:int64"), tensor("cache_position=16:int64")
IMAGE = tensor("x=1x3x8x8")


@pytest.mark.parametrize(
    ("inputs", "tokens"),
    [
        ((TOKEN, POSITION), 1),
        ((PIECE, POSITIONS), 16),
        ((PIECE,), 16),
        ((PIECE, POSITION), None),
        ((TOKEN, IMAGE), None),
        ((TOKEN, POSITION, POSITION), None),
        ((), None),
    ],
)
def test_tokens_come_alone_or_with_as_many_positions(
    inputs: tuple[TensorSpec, ...], tokens: int | None
) -> None:
    assert tokens_taken(inputs) == tokens


@pytest.mark.parametrize(
    ("entries", "tokens"),
    [
        ((((PIECE, POSITIONS), True), ((TOKEN, POSITION), True)), (16, 1)),
        ((((IMAGE,), False), ((TOKEN,), True)), (None, 1)),
        ((((PIECE, POSITIONS), True),), (None,)),
        ((((TOKEN, POSITION), False),), (None,)),
    ],
)
def test_a_decoder_has_an_entry_point_that_takes_one_token_and_keeps_state(
    entries: tuple[tuple[tuple[TensorSpec, ...], bool], ...], tokens: tuple[int | None, ...]
) -> None:
    assert decoder_tokens(entries) == tokens
