"""Recognizing decoders by their entry points."""

from pathlib import Path

import pytest
from tensor_samples import tensor

from bessemer.bundle.run import Entry, Model
from bessemer.cli.generating import check_tokens, read_tokens, token_entries
from bessemer.contract.decoder import decoder_tokens, tokens_taken
from bessemer.contract.tensor import TensorSpec
from bessemer.errors import InvalidArgumentError

TOKEN, POSITION = tensor("input_ids=1x1:int64"), tensor("cache_position=1:int64")
PIECE, POSITIONS = tensor("input_ids=1x16:int64"), tensor("cache_position=16:int64")
SEED = TensorSpec(name="seed", shape=(), dtype="int64")
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


@pytest.mark.parametrize("inputs", [(TOKEN, SEED), (TOKEN, POSITION, SEED)])
def test_the_seed_of_a_decoder_is_neither_token_nor_position(
    inputs: tuple[TensorSpec, ...], tmp_path: Path
) -> None:
    specs = [spec.model_dump(mode="json") for spec in inputs]
    entry = Entry(tmp_path, {"inputs": specs, "outputs": [], "seed": "seed"}, list)
    assert token_entries(Model(tmp_path, {}, [entry], 1)) == {1: entry}


@pytest.mark.parametrize(
    ("text", "words"),
    [("1,x", "not a list of token numbers"), ("1," + "9" * 5000, "a number of 5000 digits")],
)
def test_a_prompt_is_a_list_of_token_numbers(text: str, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        read_tokens(text)
    assert read_tokens("1, 2,18446744073709551615") == (1, 2, 2**64 - 1)


def test_a_token_must_fit_every_entry_point_that_reads_tokens(tmp_path: Path) -> None:
    narrow = tensor("input_ids=1x16:int8")
    entries = [
        Entry(tmp_path, {"inputs": [spec.model_dump(mode="json") for spec in inputs], "outputs": []}, list)
        for inputs in ((TOKEN, POSITION), (narrow, POSITIONS))
    ]
    check_tokens(entries, [127])
    with pytest.raises(InvalidArgumentError, match="token 128 does not fit the decoder's int8"):
        check_tokens(entries, [128])
