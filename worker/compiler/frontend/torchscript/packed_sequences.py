"""Packed sequences of a script as padded batches and the lengths of their rows.

torch packs a batch into one tensor of all steps (``data``) and the number of rows at each step
(``batch_sizes``). Their sizes depend on the lengths. Here the padded batch stands for the one, and the
lengths for the other::

    data, batch_sizes = _pack_padded_sequence(x, lengths)     Rows(x, lengths), BatchSizes(lengths)
    lstm(data, batch_sizes, …)                                packed_lstm(x, …, lengths)
    _pad_packed_sequence(data, batch_sizes)                   zeros after each row's length
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from worker.compiler.frontend.torchscript.data_numbers import DataNumber, of_tensor, symbol_of
from worker.compiler.frontend.torchscript.known_values import KnownValues
from worker.compiler.frontend.torchscript.plain_values import as_number
from worker.compiler.packed_recurrence import PACKED_LAYERS

ON_EACH_STEP = frozenset(
    f"aten::{name}" for name in ("contiguous", "dropout", "embedding", "layer_norm", "linear", "to")
)
"""Operators beside those on single elements that compute each step of each row by itself."""


class PackedSequenceError(Exception):
    """An operator needs the steps of a packed sequence in torch's own order."""


@dataclass(frozen=True, eq=False)
class Rows:
    """The data of a packed sequence.

    Attributes:
        padded: rows of steps, or steps of rows.
        lengths: the number of steps of each row.
        batch_first: whether rows come first.
        has_zeros: whether the steps after the end of each row are zeros.
    """

    padded: torch.Tensor
    lengths: torch.Tensor
    batch_first: bool
    has_zeros: bool = False

    @property
    def dtype(self) -> torch.dtype:
        """The elements' dtype."""
        return self.padded.dtype

    @property
    def device(self) -> torch.device:
        """Always the processor."""
        return self.padded.device

    @property
    def steps(self) -> int:
        """The size of the axis of steps."""
        return self.padded.shape[1 if self.batch_first else 0]


@dataclass(frozen=True, eq=False)
class BatchSizes:
    """The number of rows at each step.

    Attributes:
        rows: the packed rows.
        longest: the length of the longest row, which is the number of steps.
    """

    rows: Rows
    longest: object

    @property
    def device(self) -> torch.device:
        """Always the processor."""
        return self.rows.device


def on_packed(
    kind: str, values: list[object], known: KnownValues, compute: Callable[[list[object]], object]
) -> tuple[object] | None:
    """The result of an operator on a packed sequence, in a tuple; None for other calls.

    Args:
        kind: the operator, such as ``aten::relu``.
        values: its arguments.
        known: values of tensors.
        compute: calls the operator on other arguments.

    Raises:
        PackedSequenceError: the operator needs torch's own form of a packed sequence.
    """
    if kind == "aten::_pack_padded_sequence":
        return (_packed(values, known),)
    data = values[0] if values else None
    if isinstance(data, BatchSizes):
        return (_of_sizes(kind, data, values[1:]),)
    if isinstance(data, Rows) and kind in PACKED_LAYERS:
        return (_recurrent(kind, data, values),)
    if isinstance(data, Rows) and kind == "aten::dim":
        return (data.padded.dim() - 1,)
    if isinstance(data, Rows) and kind == "aten::size" and as_number(values[1]) == -1:
        return (data.padded.size(-1),)
    if isinstance(data, Rows) and kind == "aten::_pad_packed_sequence":
        return (_unpacked(data, *values[2:]),)
    if any(isinstance(value, Rows) for value in values):
        return (_on_each_step(kind, values, compute),)
    return None


def _packed(values: list[Any], known: KnownValues) -> tuple[Rows, BatchSizes]:
    padded, lengths, batch_first = values
    batch_first = bool(as_number(batch_first))
    longest: object = None
    if known.has(lengths):
        longest = known.computed(lambda tensor: int(tensor.max()), [known.of(lengths)], {})
    lengths = torch.clamp(lengths, 0, padded.shape[1 if batch_first else 0])
    rows = Rows(padded, lengths, batch_first)
    return rows, BatchSizes(rows, _longest(rows) if longest is None else longest)


def _longest(rows: Rows) -> DataNumber:
    number = of_tensor(int, rows.lengths.max())

    def symbol() -> Any:
        longest: Any = number.symbol
        torch._check(longest >= 0)
        torch._check(longest <= rows.steps)
        return longest

    return DataNumber(int, lambda: number.tensor, symbol)


def _of_sizes(kind: str, sizes: BatchSizes, others: list[object]) -> object:
    if kind == "aten::select" and [as_number(one) for one in others] == [0, 0]:
        return sizes.rows.lengths.shape[0]
    if kind in ("aten::size", "aten::len", "aten::numel"):
        return sizes.longest if others or kind != "aten::size" else [sizes.longest]
    if kind in ("aten::to", "aten::cpu"):
        return sizes
    raise PackedSequenceError(f"{kind} of batch_sizes of a packed sequence: take the lengths instead")


def _recurrent(kind: str, rows: Rows, values: list[Any]) -> tuple[object, ...]:
    """A recurrent layer whose states are tensors."""
    _, _, first, params, *options = values
    plain = map(as_number, options)
    outputs, *last = PACKED_LAYERS[kind](rows.padded, first, params, *plain, rows.batch_first, rows.lengths)
    return replace(rows, padded=outputs, has_zeros=True), *last


def _unpacked(rows: Rows, batch_first: Any, padding: Any, total: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The padded batch and the lengths."""
    axis, padding = 1 if rows.batch_first else 0, as_number(padding)
    padded, total = rows.padded, symbol_of(total)
    if not rows.has_zeros or padding != 0:
        padded = torch.where(_is_inside(rows), padded, padding)
    if not isinstance(total, int) or total < rows.steps:
        padded = padded.narrow(axis, 0, total)
    elif total > rows.steps:
        more = list(padded.shape)
        more[axis] = total - rows.steps
        padded = torch.cat([padded, padded.new_full(more, padding)], axis)
    if bool(as_number(batch_first)) != rows.batch_first:
        padded = padded.transpose(0, 1)
    return padded.contiguous(), rows.lengths.clone()


def _is_inside(rows: Rows) -> torch.Tensor:
    """Whether each step belongs to its row, with an axis for each of the batch."""
    inside = torch.arange(rows.steps) < rows.lengths.unsqueeze(1)
    inside = inside if rows.batch_first else inside.t()
    return inside.reshape(*inside.shape, *[1] * (rows.padded.dim() - 2))


def _on_each_step(kind: str, values: list[Any], compute: Callable[[list[object]], Any]) -> Rows:
    """An operator on each step of each row, those after the end included."""
    first, *others = (value for value in values if isinstance(value, Rows))
    if not _computes_each_step(kind) or any(other.lengths is not first.lengths for other in others):
        raise PackedSequenceError(f"{kind} of a packed sequence: call pad_packed_sequence before it")
    padded = compute([value.padded if isinstance(value, Rows) else value for value in values])
    return replace(first, padded=padded, has_zeros=False)


def _computes_each_step(kind: str) -> bool:
    if kind in ON_EACH_STEP:
        return True
    namespace, _, name = kind.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name, None)
    if packet is None or name.endswith("_"):
        return False
    return any(torch.Tag.pointwise in getattr(packet, one).tags for one in packet.overloads())
