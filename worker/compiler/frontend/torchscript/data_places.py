"""Reads and writes of tensors and lists at a place that depends on data: ``x[:, t]``, ``out[t] = y``.

torch's ``select`` and ``slice`` take numbers, so a read becomes ``index_select``. That copies, so a write to
the copy (or to a view of it) is repeated into the original by ``index_copy_``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from worker.compiler.frontend.torchscript.data_numbers import (
    DataNumber,
    kind_of,
    of_tensor,
    symbol_of,
    tensor_of,
)
from worker.compiler.frontend.torchscript.nested_values import ControlFlowError, Grown
from worker.compiler.frontend.torchscript.plain_values import as_number

READS = frozenset({"aten::select", "aten::slice", "aten::narrow"})

MAX_PIECE = 4096
"""The longest slice that is read at a place of data."""


class DataPlaces:
    """The reads of one run that copied, by their results."""

    def __init__(self) -> None:
        self._writers: dict[int, tuple[torch.Tensor, Callable[[], None]]] = {}

    def read(self, kind: str, values: list[object]) -> torch.Tensor | None:
        """The result of ``select``, ``slice`` or ``narrow`` at a place of data; None for other calls."""
        if not any(isinstance(value, DataNumber | torch.SymInt) for value in values[1:]):
            return None
        tensor: Any = values[0]
        axis = as_number(values[1])
        if type(axis) is not int or not isinstance(tensor, torch.Tensor):
            return None
        if kind == "aten::select":
            row = self._read(tensor, axis, values[2], 1)
            squeezed = row.squeeze(axis)
            self.view(row, squeezed)
            return squeezed
        piece = _piece(kind, values)
        if piece is None and not any(isinstance(value, DataNumber) for value in values[2:]):
            return None
        return self._read(tensor, axis, *(piece or _bounds(kind, values, tensor.size(axis))))

    def _read(self, tensor: torch.Tensor, axis: int, start: object, count: Any) -> torch.Tensor:
        first = _counted_from_front(start, tensor.size(axis)).reshape(1)
        places = first if isinstance(count, int) and count == 1 else first + torch.arange(count)
        found = tensor.index_select(axis, places)

        def write() -> None:
            tensor.index_copy_(axis, places, found)
            self.written(tensor)

        self._writers[id(found)] = (found, write)
        return found

    def view(self, of: object, result: object) -> None:
        """Note that a result is a view of an operand."""
        known = self._writers.get(id(of))
        if known is not None and isinstance(result, torch.Tensor):
            self._writers[id(result)] = (result, known[1])

    def written(self, tensor: object) -> None:
        """Repeat a write in the tensor that the written one was read from."""
        known = self._writers.get(id(tensor))
        if known is not None:
            known[1]()


def _piece(kind: str, values: list[object]) -> tuple[object, int] | None:
    """The start and the length of a slice whose bounds are a constant distance apart."""
    if kind == "aten::narrow":
        length = as_number(values[3])
        return (values[2], length) if isinstance(length, int) else None
    if kind != "aten::slice" or as_number(values[4]) != 1:
        return None
    start, end = values[2], values[3]
    if not isinstance(start, DataNumber) or not isinstance(end, DataNumber):
        return None
    (base, offset), (other, further) = start.origin, end.origin
    length = further - offset
    return (start, length) if base is other and 0 < length <= MAX_PIECE else None


def _bounds(kind: str, values: list[object], size: Any) -> tuple[object, Any]:
    """The start and the length of any slice of step 1."""
    if kind == "aten::narrow":
        return values[2], symbol_of(values[3])
    if as_number(values[4]) != 1:
        raise ControlFlowError("a slice with a step has a bound that depends on data")
    last = tensor_of(size)
    low, high = (
        torch.minimum(_counted_from_front(whole if bound is None else bound, size).clamp(min=0), last)
        for bound, whole in ((values[2], 0), (values[3], size))
    )
    count = of_tensor(int, (high - low).clamp(min=0))
    return of_tensor(int, low), count.symbol


def _counted_from_front(place: object, size: Any) -> torch.Tensor:
    first = tensor_of(place)
    return torch.where(first < 0, first + tensor_of(size), first)


def item_at(items: list[object], place: DataNumber) -> object:
    """An item of a list of tensors of one shape, or of numbers."""
    if all(isinstance(item, torch.Tensor) for item in items):
        stacked = torch.stack([item for item in items if isinstance(item, torch.Tensor)])
        return stacked.index_select(0, _from_front(place, len(items)).reshape(1)).squeeze(0)
    kind = kind_of(items[0])
    assert kind is not None
    numbers = torch.stack([tensor_of(item) for item in items])
    return of_tensor(kind, numbers.index_select(0, _from_front(place, len(items)).reshape(1)))


def set_item_at(items: list[object], place: DataNumber, value: Any) -> None:
    """Set an item of a list of tensors of one shape, or of numbers."""
    at = _from_front(place, len(items))
    for index, item in enumerate(items):
        if isinstance(item, torch.Tensor):
            items[index] = torch.where(at == index, value, item)
        else:
            kind = kind_of(item)
            assert kind is not None
            items[index] = of_tensor(kind, torch.where(at == index, tensor_of(value), tensor_of(item)))


def _from_front(place: DataNumber, count: int) -> torch.Tensor:
    return torch.where(place.tensor < 0, place.tensor + count, place.tensor)


def on_grown(kind: str, values: list[object]) -> tuple[object] | None:
    """The result of an operator on a list that a loop has grown, in a tuple; None for other calls.

    Raises:
        ControlFlowError: the operator needs the items one by one.
    """
    items = values[0]
    if not isinstance(items, list) or not any(isinstance(item, Grown) for item in items):
        return None
    if kind == "aten::append":
        return None
    if kind in ("aten::stack", "aten::cat") and isinstance(axis := as_number(values[1]), int):
        if kind == "aten::stack":
            parts = [_rows(item) for item in items]
            return ((parts[0] if len(parts) == 1 else torch.cat(parts)).movedim(0, axis),)
        return (_joined(items, axis),)
    if kind == "aten::len":
        return (sum(item.rows.size(0) if isinstance(item, Grown) else 1 for item in items),)
    if kind == "aten::__getitem__" and as_number(values[1]) == -1:
        last: Any = items[-1]
        return (last.rows.select(0, -1) if isinstance(last, Grown) else last,)
    raise ControlFlowError(f"{kind} of a list that a loop on data has filled: use torch.stack or torch.cat")


def _rows(item: Any) -> torch.Tensor:
    return item.rows if isinstance(item, Grown) else item.unsqueeze(0)


def _joined(items: list[Any], axis: int) -> torch.Tensor:
    """All items one after the other along an axis."""
    parts = []
    for item in items:
        if isinstance(item, Grown):
            along = axis % (item.rows.dim() - 1)
            parts.append(item.rows.movedim(0, along).flatten(along, along + 1))
        else:
            parts.append(item)
    return parts[0] if len(parts) == 1 else torch.cat(parts, axis)
