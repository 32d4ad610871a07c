"""Packed sequences of scripts and traces stop each row at its own length, as torch does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from capture_samples import capture_file, refusal, scripted, traced
from program_runs import run_program
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from bessemer.contract.problem import ErrorCode
from worker.compiler.values import Captured

pytestmark = pytest.mark.filterwarnings("ignore")

ROWS, STEPS, FEATURES, UNITS = 3, 7, 8, 20
SORTED = [[7, 4, 2], [6, 6, 1], [3, 2, 2]]
UNSORTED = [*SORTED, [2, 5, 3]]


class Layers(nn.Module):
    """Recurrent layers on packed rows."""

    def __init__(
        self,
        kind: type[nn.RNNBase] = nn.LSTM,
        is_sorted: bool = False,
        total: int | None = None,
        padding: float = 0.0,
        batch_first: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        self.layers = kind(FEATURES, UNITS, batch_first=batch_first, **options)
        self.is_sorted, self.total, self.padding, self.batch_first = is_sorted, total, padding, batch_first

    def packed(self, x: Tensor, lengths: Tensor) -> PackedSequence:
        return pack_padded_sequence(x, lengths, self.batch_first, self.is_sorted)

    def padded(self, packed: PackedSequence) -> tuple[Tensor, Tensor]:
        return pad_packed_sequence(packed, self.batch_first, self.padding, self.total)


class All(Layers):
    """All results of an LSTM."""

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        outputs, last = self.layers(self.packed(x, lengths))
        return self.padded(outputs), last


class AllOfOneState(Layers):
    """All results of other layers."""

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        outputs, last = self.layers(self.packed(x, lengths))
        return self.padded(outputs), last


class FromStates(Layers):
    """From given states."""

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        rows, units = x.shape[0], self.layers.hidden_size
        first = torch.arange(rows * units, dtype=x.dtype).reshape(1, rows, units) / 99
        outputs, last = self.layers(self.packed(x, lengths), (first, -first))
        return self.padded(outputs)[0], last


class Steps(Layers):
    """Operators on the steps of packed rows."""

    def __init__(self) -> None:
        super().__init__(total=STEPS)
        self.linear, self.norm = nn.Linear(FEATURES, FEATURES), nn.LayerNorm(FEATURES)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = self.packed(x, lengths)
        data = torch.relu(self.norm(self.linear(packed.data)) * 2 + packed.data)
        packed = PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
        return self.padded(self.layers(packed)[0])[0]


class WithoutLayers(Layers):
    """Padding of what was packed."""

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        return self.padded(self.packed(x, lengths))


class OfMask(Layers):
    """Lengths from a mask, and attention over the steps."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        mask = torch.arange(x.shape[1]).unsqueeze(0) < lengths.unsqueeze(1)
        outputs = self.padded(self.layers(self.packed(x, mask.long().sum(1)))[0])[0]
        return (outputs @ outputs.transpose(1, 2)).softmax(-1) @ outputs


class Classifier(nn.Module):
    """Words, a recurrent network in both directions, and a layer on its last states."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, FEATURES)
        self.layers = nn.GRU(FEATURES, UNITS, bidirectional=True, batch_first=True)
        self.score = nn.Linear(2 * UNITS, 4)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        words = self.words((x * 10).long().abs()[:, :, 0])
        last = self.layers(pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False))[1]
        return self.score(torch.cat([last[-2], last[-1]], 1))


CASES: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: All(num_layers=2, bidirectional=True),
    "lstm with projections": lambda: All(proj_size=5),
    "gru": lambda: AllOfOneState(nn.GRU, bidirectional=True),
    "rnn": lambda: AllOfOneState(nn.RNN, num_layers=2),
    "rnn of relu": lambda: AllOfOneState(nn.RNN, nonlinearity="relu"),
    "steps first": lambda: All(batch_first=False, bidirectional=True),
    "sorted rows": lambda: All(is_sorted=True),
    "a total length": lambda: All(total=STEPS),
    "a longer total length": lambda: All(total=STEPS + 2),
    "other padding": lambda: All(padding=-1.5),
    "other padding to a total length": lambda: All(padding=2.0, total=STEPS + 2),
    "given states": FromStates,
    "operators on steps": Steps,
    "no layers": WithoutLayers,
    "lengths of a mask": OfMask,
    "a classifier": Classifier,
}


def check(captured: Captured, module: nn.Module, calls: list[tuple[Tensor, Tensor]]) -> None:
    """Assert that the program and the module agree."""
    with torch.no_grad():
        for found, call in zip(run_program(captured.program, *calls), calls, strict=True):
            for one, other in zip(found, flat(module(*call)), strict=True):
                np.testing.assert_allclose(one, other.numpy(), atol=1e-5)


def flat(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else [leaf for part in result for leaf in flat(part)]


@pytest.mark.sampled
@pytest.mark.parametrize("save", [scripted, traced])
@pytest.mark.parametrize("name", CASES)
def test_rows_of_any_lengths_agree_with_torch(name: str, save: Callable[..., Path], tmp_path: Path) -> None:
    module, path = CASES[name]().eval(), tmp_path / "model"
    steps_first = isinstance(module, Layers) and not module.batch_first
    shape = (STEPS, ROWS, FEATURES) if steps_first else (ROWS, STEPS, FEATURES)
    lengths = SORTED if isinstance(module, Layers) and module.is_sorted else UNSORTED
    calls = [(torch.randn(shape), torch.tensor(own)) for own in lengths]
    save(module, path, *calls[0])

    captured = capture_file(path, "x=" + "x".join(map(str, shape)), f"lengths={ROWS}:int64")

    check(captured, module, calls)


@pytest.mark.sampled
@pytest.mark.parametrize("save", [scripted, traced])
def test_the_number_of_rows_and_steps_may_be_open(save: Callable[..., Path], tmp_path: Path) -> None:
    module, path = All(num_layers=2, bidirectional=True).eval(), tmp_path / "model"
    calls = [
        (torch.randn(*shape, FEATURES), torch.tensor(lengths))
        for shape, lengths in (((3, 7), [7, 4, 2]), ((2, 9), [5, 8]), ((5, 4), [1, 2, 3, 4, 1]))
    ]
    save(module, path, *calls[0])

    captured = capture_file(
        path,
        f"x=rowsxstepsx{FEATURES}",
        "lengths=rows:int64",
        dimensions=("rows=2..8@3", "steps=2..16@7"),
    )

    check(captured, module, calls)


def test_the_reference_lengths_go_from_the_longest_to_short_ones(tmp_path: Path) -> None:
    scripted(All(is_sorted=True), tmp_path / "model")

    lengths = capture_file(tmp_path / "model", f"x=8x{STEPS}x{FEATURES}", "lengths=8:int64").inputs[1]

    assert lengths[0] == STEPS
    assert len(set(lengths)) > 2
    assert sorted(lengths, reverse=True) == list(lengths)


class Constant(Layers):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.padded(self.layers(self.packed(x, torch.tensor([2, 5, 3])))[0])


@pytest.mark.parametrize("save", [scripted, traced])
def test_constant_lengths_give_a_constant_size(save: Callable[..., Path], tmp_path: Path) -> None:
    module, x = Constant().eval(), torch.randn(ROWS, STEPS, FEATURES)
    save(module, tmp_path / "model", x)

    captured = capture_file(tmp_path / "model", f"x={ROWS}x{STEPS}x{FEATURES}")

    assert captured.output_specs[0].shape == (ROWS, 5, UNITS)
    assert not captured.dynamic.of_data
    with torch.no_grad():
        (found,) = run_program(captured.program, (x,))
        assert all(np.allclose(one, its, atol=1e-5) for one, its in zip(found, module(x), strict=True))


def test_a_length_beyond_the_steps_counts_as_all_steps(tmp_path: Path) -> None:
    module, x = All(total=STEPS).eval(), torch.randn(ROWS, STEPS, FEATURES)
    scripted(module, tmp_path / "model")
    captured = capture_file(tmp_path / "model", f"x={ROWS}x{STEPS}x{FEATURES}", f"lengths={ROWS}:int64")

    (beyond, within) = run_program(
        captured.program, *((x, torch.tensor(own)) for own in ([99, 7, -5], [7, 7, 0]))
    )

    assert all(np.array_equal(*pair) for pair in zip(beyond, within, strict=True))


def test_a_dropout_between_layers_draws_from_the_seed(tmp_path: Path) -> None:
    scripted(All(num_layers=2, dropout=0.5, total=STEPS).train(), tmp_path / "model")

    captured = capture_file(tmp_path / "model", f"x={ROWS}x{STEPS}x{FEATURES}", f"lengths={ROWS}:int64")

    assert captured.seed == "seed"


class Summed(Layers):
    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = self.layers(self.packed(x, lengths))[0]
        return packed.data.sum(0)


def test_an_operator_across_packed_steps_is_named(tmp_path: Path) -> None:
    scripted(Summed(), tmp_path / "model")

    error = refusal(tmp_path / "model", f"x={ROWS}x{STEPS}x{FEATURES}", f"lengths={ROWS}:int64")

    assert error.code is ErrorCode.CAPTURE_FAILED
    assert "aten::sum of a packed sequence: call pad_packed_sequence before it" in error.detail
    assert error.places[0].operator == "aten::sum"
