"""Recurrent layers whose rows stop at their own lengths, as on a ``PackedSequence``.

torch packs a padded batch into one tensor of all its steps, whose size depends on the lengths. The same
layers on the padded batch have fixed sizes::

    outputs, *last = packed_lstm(data, first, weights, …, lengths)
    outputs[row, step] = 0                      # from step = lengths[row] on
    last[…, row, :]                             # after lengths[row] steps; backward, from the last one on

A translation rule computes these operators with the lengths in the loop over the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from worker.compiler.torch_costs import shapes_of_recurrent

Layers = Callable[..., tuple[Tensor, ...]]

_NAMES = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_OPTIONS = "bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first"


def _packed(name: str) -> Layers:
    """torch's own layers on sequences packed for the call."""

    def compute(
        data: Tensor,
        first: Tensor | Sequence[Tensor],
        weights: Sequence[Tensor],
        has_biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
        lengths: Tensor,
    ) -> tuple[Tensor, ...]:
        packed = pack_padded_sequence(data, lengths, batch_first, enforce_sorted=False)
        order, back = packed.sorted_indices, packed.unsorted_indices
        states = [state.index_select(1, order) for state in _states(first)]
        joined, *last = getattr(torch, name)(
            packed.data,
            packed.batch_sizes,
            states[0] if isinstance(first, Tensor) else states,
            weights,
            has_biases,
            layers,
            dropout,
            train,
            bidirectional,
        )
        outputs = PackedSequence(joined, packed.batch_sizes, order, back)
        steps = data.shape[1 if batch_first else 0]
        padded, _ = pad_packed_sequence(outputs, batch_first, total_length=steps)
        return padded.contiguous(), *(state.index_select(1, back) for state in last)

    return compute


def _states(first: Tensor | Sequence[Tensor]) -> Sequence[Tensor]:
    return [first] if isinstance(first, Tensor) else first


def _define() -> torch.library.Library:
    library = torch.library.Library("bessemer", "FRAGMENT")
    for name in _NAMES:
        given, returned = ("Tensor[]", 3) if name == "lstm" else ("Tensor", 2)
        results = ", ".join(["Tensor"] * returned)
        arguments = f"Tensor input, {given} hx, Tensor[] params, {_OPTIONS}, Tensor lengths"
        drops = (torch.Tag.nondeterministic_seeded,)
        library.define(f"packed_{name}({arguments}) -> ({results})", tags=drops)
        library.impl(f"packed_{name}", _packed(name), "CPU")
        torch.library.register_fake(f"bessemer::packed_{name}", shapes_of_recurrent, lib=library)
    return library


_LIBRARY = _define()
"""Keeps the operators defined: torch removes them with their library."""

PACKED_LAYERS = {f"aten::{name}": getattr(torch.ops.bessemer, f"packed_{name}").default for name in _NAMES}
"""The operators by the name of torch's."""
