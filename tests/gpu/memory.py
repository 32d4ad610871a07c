"""Memory of a GPU with its rules.

Every kind of memory reads and writes elements by lane. ``GlobalArray`` and ``SharedArray`` are seen by several
threads, so a ``Ledger`` remembers who touched which element and when. ``LocalArray`` belongs to one thread. All
three fault on indices out of bounds and on elements that nobody wrote.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tests.gpu.faults import Fault, KernelFault
from tests.gpu.lanes import Batch, Clock, Lanes, Value, spread

_EXTRA_TYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4")


def numpy_dtype(name: str) -> np.dtype:
    """The NumPy type of a scalar type of TVM."""
    if name in _EXTRA_TYPES:
        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype("bool" if name in ("bool", "uint1") else name)


def bits(values: np.ndarray) -> np.ndarray:
    """The values as integers, so that equal means identical: NaN is itself, and -0.0 is not 0.0."""
    if values.dtype.kind in "biu":
        return values
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")


class Ledger:
    """Who read and wrote which cell of a memory, and when, since a kernel started.

    Of the readers two are remembered, of different threads: one of them differs from whoever writes next.
    """

    def __init__(self, name: str, cells: int, clock: Clock, reads_matter: bool, pitch: int = 0) -> None:
        self.name = name
        self.pitch = pitch or cells
        self.clock = clock
        self.reads_matter = reads_matter
        self.writer = np.full(cells, -1, np.int32)
        self.written = np.zeros(cells, np.int32)
        self.readers = [np.full(cells, -1, np.int32) for _ in range(2 if reads_matter else 0)]
        self.read = [np.zeros(cells, np.int32) for _ in range(2 if reads_matter else 0)]
        self.atomic = np.zeros(cells, bool)

    def check_read(self, cells: np.ndarray, lanes: np.ndarray) -> None:
        writer = self.writer[cells]
        raced = self.clock.unordered(writer, self.written[cells], lanes)
        self._report(raced, cells, writer, "wrote", lanes, "reads it")

    def record_read(self, cells: np.ndarray, lanes: np.ndarray) -> None:
        if not self.reads_matter:
            return
        now, (newest, other), (newest_time, other_time) = self.clock.now, self.readers, self.read
        before, before_time = newest[cells], newest_time[cells]
        newest[cells] = lanes
        newest_time[cells] = now
        displaced = (before >= 0) & (before != lanes)
        if displaced.any():
            other[cells[displaced]] = before[displaced]
            other_time[cells[displaced]] = before_time[displaced]
        beaten = newest[cells] != lanes
        if beaten.any():
            other[cells[beaten]] = lanes[beaten]
            other_time[cells[beaten]] = now

    def check_write(self, cells: np.ndarray, lanes: np.ndarray, atomic: bool = False) -> None:
        writer = self.writer[cells]
        raced = self.clock.unordered(writer, self.written[cells], lanes)
        if atomic:
            raced &= ~self.atomic[cells]
        self._report(raced, cells, writer, "wrote", lanes, "writes another value")
        for readers, read in zip(self.readers, self.read, strict=True):
            reader = readers[cells]
            raced = self.clock.unordered(reader, read[cells], lanes)
            self._report(raced, cells, reader, "reads", lanes, "writes it")

    def record_write(self, cells: np.ndarray, lanes: np.ndarray, atomic: bool = False) -> None:
        self.atomic[cells] = atomic
        self.writer[cells] = lanes
        self.written[cells] = self.clock.now

    def _report(
        self, raced: np.ndarray, cells: np.ndarray, one: np.ndarray, did: str, other: np.ndarray, does: str
    ) -> None:
        if not raced.any():
            return
        at = int(np.argmax(raced))
        thread = self.clock.shape.thread
        raise KernelFault(
            Fault.RACE,
            f"{thread(one[at])} {did} cell {cells[at] % self.pitch} of {self.name} and {thread(other[at])} {does}"
            " without a barrier in between",
        )


@dataclass(frozen=True)
class Access:
    """Elements that lanes touch: ``index`` has an entry per element, ``lanes`` the lane of each."""

    index: np.ndarray
    lanes: np.ndarray
    shape: tuple[int, ...]

    @classmethod
    def of(cls, lanes: Lanes, index: Value) -> Access:
        full = spread(index, lanes.count)
        numbers = lanes.numbers
        if full.ndim == 2:
            return cls(full.reshape(-1), np.repeat(numbers, full.shape[1]), full.shape)
        return cls(full, numbers, full.shape)


def check_bounds(name: str, index: Value, size: int, lanes: Lanes) -> None:
    """A fault for an index that is no element."""
    array = np.asarray(index)
    if not array.size:
        return
    low, high = array.min(), array.max()
    if low >= 0 and high < size:
        return
    full = spread(index, lanes.count)
    wrong = np.argwhere((full < 0) | (full >= size))[0]
    thread = lanes.batch.shape.thread(lanes.numbers[wrong[0]])
    raise KernelFault(
        Fault.OUT_OF_BOUNDS, f"{thread} touches element {full[tuple(wrong)]} of {name}, which has {size}"
    )


def check_alignment(name: str, index: Value, itemsize: int, lanes: Lanes) -> None:
    """A fault for a vector of contiguous elements whose address is no multiple of its size."""
    array = np.asarray(index)
    size = array.shape[1]
    if size == 1 or not (array[:, 1] - array[:, 0] == 1).all():
        return
    unit = max(min(size * itemsize, 16) // itemsize, 1)
    if (array[:, 0] % unit).any():
        wrong = array[:, 0][np.argmax(array[:, 0] % unit != 0)]
        raise KernelFault(
            Fault.MISALIGNED, f"a vector of {size} elements starts at element {wrong} of {name}"
        )


class GlobalArray:
    """Memory of the device: an argument of a function, or its workspace. ``known`` marks written elements."""

    def __init__(self, name: str, data: np.ndarray, known: bool) -> None:
        self.name = name
        self.data = data.reshape(-1)
        self.known = None if known else np.zeros(self.data.size, bool)
        self.ledger: Ledger | None = None
        self.in_kernel = False

    def start_kernel(self, clock: Clock, written: bool, read: bool) -> None:
        """A kernel starts: all that earlier ones did is done."""
        self.in_kernel = True
        self.ledger = Ledger(self.name, self.data.size, clock, read) if written else None

    def end_kernel(self) -> None:
        self.in_kernel = False

    def read(self, lanes: Lanes, index: Value, dtype: np.dtype) -> Value:
        self._check_index(lanes, index, dtype)
        data = self._as(dtype)
        if self.ledger is None and self.known is None:
            return data[index]
        access = Access.of(lanes, index)
        if self.known is not None and not self.known[access.index].all():
            at = int(np.argmin(self.known[access.index]))
            raise _unwritten(self.name, access.index[at], access.lanes[at], lanes.batch)
        if self.ledger is not None:
            self.ledger.check_read(access.index, access.lanes)
            self.ledger.record_read(access.index, access.lanes)
        return data[index]

    def write(self, lanes: Lanes, index: Value, value: Value, dtype: np.dtype) -> None:
        self._check_index(lanes, index, dtype)
        access = Access.of(lanes, index)
        values = np.broadcast_to(spread(value, lanes.count), access.shape).reshape(-1)
        assert self.ledger is not None
        _store(self.ledger, self._as(dtype), access.index, access.index, access.lanes, values, self.known)

    def add(self, lanes: Lanes, index: np.ndarray, value: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """Atomic: the result is what was there before."""
        self._check_index(lanes, index, dtype)
        numbers = lanes.numbers
        if self.known is not None and not self.known[index].all():
            at = int(np.argmin(self.known[index]))
            raise _unwritten(self.name, index[at], numbers[at], lanes.batch)
        assert self.ledger is not None
        return _add(self.ledger, self._as(dtype), index, index, numbers, value)

    def _check_index(self, lanes: Lanes, index: Value, dtype: np.dtype) -> None:
        if not self.in_kernel:
            raise KernelFault(Fault.OUTSIDE, self.name)
        check_bounds(self.name, index, self.data.size, lanes)
        if np.ndim(index) == 2:
            check_alignment(self.name, index, dtype.itemsize, lanes)

    def _as(self, dtype: np.dtype) -> np.ndarray:
        if self.data.dtype == dtype:
            return self.data
        if self.data.dtype.itemsize == dtype.itemsize:
            return self.data.view(dtype)
        raise KernelFault(Fault.UNSUPPORTED, f"{self.name} is seen with elements of another size")


class SharedArray:
    """Shared memory of the blocks of a batch: bytes, seen with one or several types."""

    def __init__(self, name: str, size: int, cell: int, batch: Batch) -> None:
        self.name = name
        self.size = size
        self.cell = cell
        self.pitch = -(-size // 16) * 16
        self.bytes = np.zeros(self.pitch * batch.blocks, np.uint8)
        self.ledger = Ledger(name, self.bytes.size // cell, batch.clock, True, self.pitch // cell)
        self.known = np.zeros(self.bytes.size // cell, bool)
        self.in_flight: np.ndarray | None = None

    def read(self, lanes: Lanes, index: Value, dtype: np.dtype) -> Value:
        place, access, cells, numbers = self.locate(lanes, index, dtype)
        self._check_waited(cells)
        known = self.known[cells]
        if not known.all():
            at = int(np.argmin(known))
            raise _unwritten(self.name, self.inside(cells[at]), numbers[at], lanes.batch)
        self.ledger.check_read(cells, numbers)
        self.ledger.record_read(cells, numbers)
        return self.bytes.view(dtype)[place].reshape(access.shape)

    def write(self, lanes: Lanes, index: Value, value: Value, dtype: np.dtype) -> None:
        place, access, cells, numbers = self.locate(lanes, index, dtype)
        self._check_waited(cells)
        values = np.broadcast_to(spread(value, lanes.count), access.shape).reshape(-1)
        _store(self.ledger, self.bytes.view(dtype), place, cells, numbers, values.astype(dtype), self.known)

    def start_copy(
        self, lanes: Lanes, index: Value, value: np.ndarray, dtype: np.dtype, group: np.ndarray
    ) -> Copy:
        """An asynchronous copy: nobody may touch the elements before it is waited for. ``group`` is each lane's."""
        place, access, cells, numbers = self.locate(lanes, index, dtype)
        self._check_waited(cells)
        self.ledger.check_write(cells, numbers)
        if self.in_flight is None:
            self.in_flight = np.zeros(len(self.known), bool)
        self.in_flight[cells] = True
        groups = np.repeat(group, len(place) // lanes.count)
        return Copy(self, dtype, place, access.lanes, groups, value.reshape(-1))

    def finish_copy(self, copy: Copy) -> None:
        """The data arrive."""
        assert self.in_flight is not None
        cells, numbers = self._cells(copy.place, copy.lanes, copy.dtype)
        self.in_flight[cells] = False
        self.bytes.view(copy.dtype)[copy.place] = copy.value
        self.known[cells] = True
        self.ledger.record_write(cells, numbers)

    def add(self, lanes: Lanes, index: np.ndarray, value: np.ndarray, dtype: np.dtype) -> np.ndarray:
        place, access, cells, numbers = self.locate(lanes, index, dtype)
        self._check_waited(cells)
        if not self.known[cells].all():
            at = int(np.argmin(self.known[cells]))
            raise _unwritten(self.name, self.inside(cells[at]), numbers[at], lanes.batch)
        return _add(self.ledger, self.bytes.view(dtype), place, cells, numbers, value)

    def locate(
        self, lanes: Lanes, index: Value, dtype: np.dtype
    ) -> tuple[np.ndarray, Access, np.ndarray, np.ndarray]:
        """Places among elements of the type, the access, and its cells with their lanes."""
        check_bounds(self.name, index, self.size // dtype.itemsize, lanes)
        if np.ndim(index) == 2:
            check_alignment(self.name, index, dtype.itemsize, lanes)
        access = Access.of(lanes, index)
        batch = lanes.batch
        block = access.lanes // batch.shape.threads - batch.first_block
        place = access.index + block * (self.pitch // dtype.itemsize)
        return place, access, *self._cells(place, access.lanes, dtype)

    def _cells(self, place: np.ndarray, lanes: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        width = dtype.itemsize // self.cell
        if width == 1:
            return place, lanes
        return (place[:, None] * width + np.arange(width)).reshape(-1), np.repeat(lanes, width)

    def inside(self, cell: int) -> int:
        return int(cell) % (self.pitch // self.cell)

    def _check_waited(self, cells: np.ndarray) -> None:
        if self.in_flight is not None and self.in_flight[cells].any():
            cell = self.inside(cells[np.argmax(self.in_flight[cells])])
            raise KernelFault(Fault.BEFORE_WAIT, f"cell {cell} of {self.name} is still being copied")


@dataclass(frozen=True)
class Copy:
    """Elements on their way from global to shared memory: their places, the lanes that sent them, their groups."""

    target: SharedArray
    dtype: np.dtype
    place: np.ndarray
    lanes: np.ndarray
    group: np.ndarray
    value: np.ndarray

    def where(self, chosen: np.ndarray) -> Copy:
        return Copy(
            self.target,
            self.dtype,
            self.place[chosen],
            self.lanes[chosen],
            self.group[chosen],
            self.value[chosen],
        )


class LocalArray:
    """Registers: an array for each lane, element by element, so that one element of all lanes is contiguous."""

    def __init__(self, name: str, size: int, dtype: np.dtype, batch: Batch) -> None:
        self.name = name
        self.size = size
        self.data = np.zeros((size, batch.count), dtype)
        self.known = np.zeros((size, batch.count), bool)
        self.all_known = [False] * size

    def read(self, lanes: Lanes, index: Value, dtype: np.dtype) -> Value:
        check_bounds(self.name, index, self.size, lanes)
        if np.ndim(index) == 0 and self.all_known[int(index)]:
            row = self.data[int(index)]
            return self._as(row if lanes.all_active else row[lanes.ids], dtype)
        where = self._where(lanes, index)
        known = self.known[where]
        if not known.all():
            lanes.batch.mark_undefined(lanes.ids[~(known if known.ndim == 1 else known.all(axis=1))])
        return self._as(self.data[where], dtype)

    def write(self, lanes: Lanes, index: Value, value: Value, dtype: np.dtype) -> None:
        """Write; a register with an undefined value counts as not written."""
        check_bounds(self.name, index, self.size, lanes)
        undefined, lanes.batch.undefined = lanes.batch.undefined, None
        if np.ndim(index) == 0 and lanes.all_active:
            row = int(index)
            self._as(self.data[row], dtype)[:] = value
            if undefined is not None:
                self.known[row] = ~undefined
            elif not self.all_known[row]:
                self.known[row] = True
            self.all_known[row] = undefined is None
            return
        where = self._where(lanes, index)
        data = self.data if self.data.dtype == dtype else self.data.view(dtype)
        data[where] = np.broadcast_to(value, np.broadcast_shapes(*(part.shape for part in where)))
        self.known[where] = True
        if undefined is not None:
            self.known[where] = ~undefined[where[1]]
            self.all_known = [False] * self.size

    def _as(self, data: np.ndarray, dtype: np.dtype) -> np.ndarray:
        if data.dtype == dtype:
            return data
        if data.dtype.itemsize == dtype.itemsize:
            return data.view(dtype)
        raise KernelFault(Fault.UNSUPPORTED, f"{self.name} is seen with elements of another size")

    @staticmethod
    def _where(lanes: Lanes, index: Value) -> tuple[Any, Any]:
        full = spread(index, lanes.count)
        ids = lanes.ids[:, None] if full.ndim == 2 else lanes.ids
        return full, ids


class Fragments:
    """The opaque fragments of ``wmma``: matrices that a warp holds together, by their number."""

    def __init__(self, name: str, warps: int) -> None:
        self.name = name
        self.warps = warps
        self.matrices: dict[int, np.ndarray] = {}
        self.known: dict[int, np.ndarray] = {}

    def get(self, warps: np.ndarray, number: int) -> np.ndarray:
        if number not in self.matrices or not self.known[number][warps].all():
            raise KernelFault(Fault.UNINITIALIZED, f"fragment {number} of {self.name} was never filled")
        return self.matrices[number][warps]

    def set(self, warps: np.ndarray, number: int, value: np.ndarray) -> None:
        if number not in self.matrices:
            self.matrices[number] = np.zeros((self.warps, *value.shape[1:]), value.dtype)
            self.known[number] = np.zeros(self.warps, bool)
        self.matrices[number][warps] = value
        self.known[number][warps] = True


Storage = GlobalArray | SharedArray | LocalArray


def _store(
    ledger: Ledger,
    data: np.ndarray,
    place: np.ndarray,
    cells: np.ndarray,
    numbers: np.ndarray,
    values: np.ndarray,
    known: np.ndarray | None,
) -> None:
    """Write with all checks. A store of the value that is already there counts as a read: no order can matter."""
    values = values.astype(data.dtype)
    width = len(cells) // len(place)
    silent = bits(data[place]) == bits(values)
    if silent.any():
        if known is not None:
            silent &= known[cells].reshape(-1, width).all(axis=1)
        wide = np.repeat(silent, width)
        if silent.any():
            ledger.check_read(cells[wide], numbers[wide])
            ledger.record_read(cells[wide], numbers[wide])
        if silent.all():
            return
        changed, writers = cells[~wide], numbers[~wide]
    else:
        changed, writers = cells, numbers
    ledger.check_write(changed, writers)
    data[place] = values
    lost = bits(data[place]) != bits(values)
    if lost.any():
        at = cells[np.argmax(lost) * width] % ledger.pitch
        detail = f"several threads write different values to cell {at} of {ledger.name} in one statement"
        raise KernelFault(Fault.RACE, detail)
    ledger.record_write(changed, writers)
    if known is not None:
        known[changed] = True


def _add(
    ledger: Ledger,
    data: np.ndarray,
    place: np.ndarray,
    cells: np.ndarray,
    numbers: np.ndarray,
    values: np.ndarray,
) -> np.ndarray:
    """Add atomically, in the order of the lanes: only accesses that are not atomic can be raced with."""
    ledger.check_write(cells, numbers, atomic=True)
    before = np.empty_like(values)
    for at, (where, value) in enumerate(zip(place, values, strict=True)):
        before[at] = data[where]
        data[where] += value
    ledger.record_write(cells, numbers, atomic=True)
    return before


def _unwritten(name: str, index: int, lane: int, batch: Batch) -> KernelFault:
    thread = batch.shape.thread(lane)
    return KernelFault(Fault.UNINITIALIZED, f"{thread} reads element {index} of {name}, which nobody wrote")


Pointer = tuple[Storage, Value, np.dtype]  # a memory, an index in elements, and their type
