"""Fourier transforms along one axis.

Up to ``LARGEST_MATRIX`` values, a transform is a product with the matrix of its roots of unity. A longer one
takes passes over a row of memory, one for each factor of the length:

    transform(length n, inner s)     rows of [n, inner], in parallel
    m = n
    for radix in radices(n)          Stockham: no pass permutes, and no bits are reversed
        m = m / radix
        for p in m, q in s           vectors along q, or along p in the first pass of a single row
            a = source[q + s * (p + m * j)] for j in radix
            target[q + s * (radix * p + k)] = codelet(a)[k] * root(n / s, p * k) for k in radix
        s = s * radix

Values of a real row of even length are transformed in pairs, as one complex row of half the length. A length
with a large prime factor becomes a convolution with a chirp of a length of small factors (Bluestein).

Sources: C. Van Loan, "Computational Frameworks for the Fast Fourier Transform" (1992), sections 1.7, 4.2 and
4.3; L. Bluestein, "A linear filtering approach to the computation of discrete Fourier transform" (1970).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from worker.compiler.translation.emitter import Emitter, axis_of, dtype_of, fixed, shape_of
from worker.compiler.translation.fourier_codelets import Codelet, codelet, radices
from worker.compiler.translation.rule import (
    OF_COMPLEX,
    ComplexDecomposition,
    Decomposition,
    Parts,
    Rule,
    Rules,
)

LARGEST_MATRIX = 64
_MIN_PARALLEL = 1 << 14
"""Rows with fewer values together are computed by one thread."""
_MAX_LANES = 16

_BY_ROOT, _BY_LENGTH = 1, 2
"""Values of torch's ``fft_norm_mode``; 0 does not scale."""

Pair = tuple[Any, Any]
Read = Callable[[Any, Any], Pair]
Write = Callable[[Any, Any, Pair], None]
Matrix = NDArray[np.float64]


def _of_complex(value: Parts, axes: list[int], normalization: int, forward: bool) -> Parts:
    scale = _scale([value.real.shape[axis] for axis in axes], normalization)
    for axis in axes:
        value = Parts(*torch.ops.bessemer.fourier(*value, axis, forward, scale))
        scale = 1.0
    return value


def _of_real(value: torch.Tensor, axes: list[int], normalization: int, onesided: bool) -> Parts:
    *others, last = axes
    scale = _scale([value.shape[axis] for axis in axes], normalization)
    if not onesided:
        return _of_complex(Parts(value, torch.zeros_like(value)), axes, normalization, True)
    found = Parts(*torch.ops.bessemer.fourier_of_real(value, last, scale))
    return _of_complex(found, others, 0, True)


def _to_real(value: Parts, axes: list[int], normalization: int, length: int) -> torch.Tensor:
    *others, last = axes
    scale = _scale([*(value.real.shape[axis] for axis in others), length], normalization)
    found: torch.Tensor = torch.ops.bessemer.fourier_to_real(
        *_of_complex(value, others, 0, False), last, length, scale
    )
    return found


def _scale(sizes: Sequence[int], normalization: int) -> float:
    count = float(prod(sizes))
    return {_BY_ROOT: count**-0.5, _BY_LENGTH: 1 / count}.get(normalization, 1.0)


def _frequencies(size: int, step: float = 1.0, *, dtype: torch.dtype | None = None, **_: Any) -> torch.Tensor:
    places = torch.arange(size)
    return torch.where(places < (size + 1) // 2, places, places - size).to(_floating(dtype)) / (size * step)


def _frequencies_of_real(
    size: int, step: float = 1.0, *, dtype: torch.dtype | None = None, **_: Any
) -> torch.Tensor:
    return torch.arange(size // 2 + 1).to(_floating(dtype)) / (size * step)


def _floating(dtype: torch.dtype | None) -> torch.dtype:
    return torch.get_default_dtype() if dtype is None else dtype


def _with_size(tensor: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    shape = list(tensor.shape)
    shape[axis] = size
    return tensor.new_empty(shape)


def _define() -> torch.library.Library:
    library = torch.library.Library("bessemer", "FRAGMENT")
    library.define(
        "fourier(Tensor real, Tensor imaginary, int axis, bool forward, float scale) -> (Tensor, Tensor)"
    )
    library.define("fourier_of_real(Tensor data, int axis, float scale) -> (Tensor, Tensor)")
    library.define(
        "fourier_to_real(Tensor real, Tensor imaginary, int axis, int length, float scale) -> Tensor"
    )

    @torch.library.register_fake("bessemer::fourier", lib=library)
    def _(real: torch.Tensor, imaginary: torch.Tensor, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return real.new_empty(real.shape), real.new_empty(real.shape)

    @torch.library.register_fake("bessemer::fourier_of_real", lib=library)
    def _(data: torch.Tensor, axis: int, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        kept = data.shape[axis] // 2 + 1
        return _with_size(data, axis, kept), _with_size(data, axis, kept)

    @torch.library.register_fake("bessemer::fourier_to_real", lib=library)
    def _(real: torch.Tensor, imaginary: torch.Tensor, axis: int, length: int, scale: float) -> torch.Tensor:
        return _with_size(real, axis, length)

    return library


_LIBRARY = _define()
"""Keeps the operators defined: torch removes them with their library."""


def _fourier(
    emit: Emitter, real: relax.Expr, imaginary: relax.Expr, axis: int, forward: bool, scale: float
) -> tuple[relax.Expr, ...]:
    size = _length(real, axis)
    if not _is_fast(real, size):
        cosine, sine = (matrix * scale for matrix in _roots(size, size, forward))
        a, b = _along(emit, real, cosine, axis), _along(emit, imaginary, sine, axis)
        c, d = _along(emit, real, sine, axis), _along(emit, imaginary, cosine, axis)
        return emit(relax.op.subtract(a, b)), emit(relax.op.add(c, d))
    first, second = (real, imaginary) if forward else (imaginary, real)
    left, right = _rows(emit, "fourier", _complex_row, (first, second), axis, (size, size), size, scale)
    return (left, right) if forward else (right, left)


def _fourier_of_real(emit: Emitter, data: relax.Expr, axis: int, scale: float) -> tuple[relax.Expr, ...]:
    size = _length(data, axis)
    kept = size // 2 + 1
    if not _is_fast(data, size):
        real, imaginary = (_along(emit, data, matrix * scale, axis) for matrix in _roots(size, kept, True))
        return real, imaginary
    body = _real_row if size % 2 else _paired_row
    return tuple(_rows(emit, "fourier_of_real", body, (data,), axis, (kept, kept), size, scale))


def _fourier_to_real(
    emit: Emitter, real: relax.Expr, imaginary: relax.Expr, axis: int, length: int, scale: float
) -> relax.Expr:
    """All frequencies but the first and the middle one count twice: the others are their conjugates."""
    kept = _length(real, axis)
    if not _is_fast(real, length) or kept != length // 2 + 1:
        weights = np.full(kept, 2 * scale)
        weights[0] = scale
        if length % 2 == 0:
            weights[length // 2 :] = scale
        cosine, sine = (matrix.T * weights[:, None] for matrix in _roots(length, kept, forward=False))
        return emit(relax.op.subtract(_along(emit, real, cosine, axis), _along(emit, imaginary, sine, axis)))
    body = _row_to_real if length % 2 else _row_to_pairs
    return _rows(emit, "fourier_to_real", body, (real, imaginary), axis, (length,), length, scale)[0]


def _length(data: relax.Expr, axis: int) -> int:
    sizes = shape_of(data)
    return fixed((sizes[axis_of(axis, len(sizes))],), "a Fourier transform")[0]


def _is_fast(data: relax.Expr, size: int) -> bool:
    """Whether the passes apply: they need fixed sizes, and are faster from some length on."""
    return size > LARGEST_MATRIX and all(isinstance(one, int) for one in shape_of(data))


def _along(emit: Emitter, data: relax.Expr, matrix: Matrix, axis: int) -> relax.Expr:
    """Multiply one axis by a matrix ``[old, new]``."""
    rank = len(shape_of(data))
    order = [*(place for place in range(rank) if place != axis_of(axis, rank)), axis_of(axis, rank)]
    back = sorted(range(rank), key=order.__getitem__)
    moved = emit(relax.op.permute_dims(data, order))
    product = emit(relax.op.matmul(moved, relax.const(matrix, dtype_of(data))))
    return emit(relax.op.permute_dims(product, back))


def _roots(length: int, kept: int, forward: bool) -> tuple[Matrix, Matrix]:
    """Cosines and sines as ``[position, frequency]``, for the first ``kept`` frequencies."""
    turns = np.outer(np.arange(length), np.arange(kept)) % length
    angles = 2 * np.pi / length * turns
    return np.cos(angles), np.sin(angles) * (-1 if forward else 1)


class _Tables:
    """Roots of unity that the loops of a function read, in one constant."""

    def __init__(self) -> None:
        self._values: list[Matrix] = []
        self.size = 0

    def add(self, values: NDArray[np.complex128]) -> int:
        """Append complex numbers, real and imaginary parts apart; returns the place of the first."""
        place = self.size
        self._values += [values.real.ravel(), values.imag.ravel()]
        self.size += 2 * values.size
        return place

    def array(self) -> Matrix:
        """All numbers."""
        return np.concatenate(self._values) if self._values else np.zeros(1)


class _Row:
    """Writes the loops that transform one row: ``inner`` neighbors at once."""

    def __init__(self, dtype: str, inner: int, scale: float) -> None:
        self.dtype, self.inner, self.scale = dtype, inner, scale
        self.tables = _Tables()
        self.table: Any = None

    def number(self, value: float) -> Any:
        """A constant."""
        return tirx.const(value, self.dtype)

    def root(self, place: int, count: int, at: Any) -> Pair:
        """An entry of a table."""
        return self.table[place + at], self.table[place + count + at]

    def scratch(self, length: int) -> tuple[Read, Write]:
        """A row in memory."""
        buffers = [T.alloc_buffer((length * self.inner,), self.dtype) for _ in range(2)]

        def read(place: Any, lane: Any) -> Pair:
            first, second = (tirx.BufferLoad(one, [place * self.inner + lane]) for one in buffers)
            return first, second

        def write(place: Any, lane: Any, value: Pair) -> None:
            for one, part in zip(buffers, value, strict=True):
                T.buffer_store(one, part, [place * self.inner + lane])

        return read, write

    def each(self, length: int, body: Callable[[Any, Any], None]) -> None:
        """For each position, and each neighbor in it."""
        with T.serial(0, length) as place, T.serial(0, self.inner) as lane:
            body(place, lane)

    def transform(self, length: int, read: Read, write: Write) -> None:
        """Transform ``length`` values."""
        passes = radices(length)
        if passes is None:
            self._chirp(length, read, write)
            return
        stride, rest = 1, length
        source = read
        for number, radix in enumerate(passes):
            rest //= radix
            is_last = number == len(passes) - 1
            reader, target = (None, write) if is_last else self.scratch(length)
            self._pass(radix, rest, stride, source, target)
            stride *= radix
            if reader is not None:
                source = reader

    def _pass(self, radix: int, rest: int, stride: int, read: Read, write: Write) -> None:
        """One pass: ``rest`` groups of ``stride`` transforms of ``radix`` values."""
        turns = np.outer(np.arange(1, radix), np.arange(rest)) / (radix * rest)
        place = self.tables.add(np.exp(-2j * np.pi * turns)) if rest > 1 else None
        count = (radix - 1) * rest
        lanes = self._lanes(stride)
        code = codelet(radix)

        def one(group: Any, offset: Any, lane: Any, values: Any, at: Any) -> None:
            for j in range(radix):
                pair = read(offset + stride * (group + rest * j), lane)
                T.buffer_store(values, pair[0], [2 * j, at])
                T.buffer_store(values, pair[1], [2 * j + 1, at])
            self._run(code, values, at)
            for k, (x, y) in enumerate(code.outputs):
                found = tirx.BufferLoad(values, [x, at]), tirx.BufferLoad(values, [y, at])
                if k and place is not None:
                    found = _multiplied(found, self.root(place, count, (k - 1) * rest + group))
                write(offset + stride * (radix * group + k), lane, found)

        slots = code.inputs + len(code.sums)
        wide = stride * self.inner
        with T.serial(0, rest) as group:
            if lanes == 1:
                with T.serial(0, wide) as place_in_group:
                    values = T.alloc_buffer((slots, 1), self.dtype, scope="local")
                    one(group, place_in_group // self.inner, place_in_group % self.inner, values, 0)
            else:
                with T.serial(0, wide // lanes) as vector:
                    values = T.alloc_buffer((slots, lanes), self.dtype, scope="local")
                    with T.vectorized(0, lanes) as at:
                        whole = vector * lanes + at
                        one(group, *self._places(whole, stride), values, at)

    def _places(self, whole: Any, stride: int) -> tuple[Any, Any]:
        """Position and neighbor, chosen so that the address stays a plain sum."""
        if self.inner == 1:
            return whole, 0
        return 0 if stride == 1 else whole // self.inner, whole if stride == 1 else whole % self.inner

    def _lanes(self, stride: int) -> int:
        wide, lanes = stride * self.inner, _MAX_LANES
        while wide % lanes:
            lanes //= 2
        return lanes if lanes >= 4 else 1

    def _run(self, code: Codelet, values: Any, at: Any) -> None:
        for number, terms in enumerate(code.sums):
            total: Any = None
            for factor, place in terms:
                value = tirx.BufferLoad(values, [place, at])
                if abs(factor) != 1:
                    value = value * self.number(abs(factor))
                if total is None:
                    total = value if factor > 0 else self.number(0) - value
                else:
                    total = total + value if factor > 0 else total - value
            T.buffer_store(values, total, [code.inputs + number, at])

    def _chirp(self, length: int, read: Read, write: Write) -> None:
        """Bluestein's algorithm: ``j k = (j² + k² - (k - j)²) / 2`` makes the sum a convolution."""
        whole = _smooth(2 * length - 1)
        places = np.arange(length)
        chirp = np.exp(-1j * np.pi * (places * places % (2 * length)) / length)
        filtered = np.zeros(whole, complex)
        filtered[:length] = chirp.conj()
        filtered[whole - length + 1 :] = chirp.conj()[:0:-1]
        turns = self.tables.add(chirp)
        answer = self.tables.add(np.fft.fft(filtered) / whole)
        (get, put), (get_next, put_next) = self.scratch(whole), self.scratch(whole)
        zero = self.number(0)

        def load(place: Any, lane: Any) -> None:
            put(place, lane, _multiplied(read(place, lane), self.root(turns, length, place)))

        def put_filtered(place: Any, lane: Any, value: Pair) -> None:
            x, y = _multiplied(value, self.root(answer, whole, place))
            put_next(place, lane, (y, x))

        def unload(place: Any, lane: Any) -> None:
            y, x = get(place, lane)
            write(place, lane, _multiplied((x, y), self.root(turns, length, place)))

        self.each(length, load)
        self.each(whole - length, lambda place, lane: put(length + place, lane, (zero, zero)))
        self.transform(whole, get, put_filtered)
        self.transform(whole, get_next, put)
        self.each(length, unload)


Body = Callable[[_Row, int, list[Any], list[Any]], None]


def _complex_row(row: _Row, size: int, given: list[Any], made: list[Any]) -> None:
    row.transform(size, _reader(given), _writer(row, made))


def _real_row(row: _Row, size: int, given: list[Any], made: list[Any]) -> None:
    """For odd lengths: a complex row without imaginary parts, half of whose frequencies are kept."""
    read, write = row.scratch(size)
    row.transform(size, lambda place, lane: (given[0](place, lane), row.number(0)), write)
    out = _writer(row, made)
    row.each(size // 2 + 1, lambda place, lane: out(place, lane, read(place, lane)))


def _paired_row(row: _Row, size: int, given: list[Any], made: list[Any]) -> None:
    """For even lengths: even positions are real parts, odd ones imaginary parts of a row half as long."""
    half = size // 2
    read, write = row.scratch(half)
    row.transform(half, lambda place, lane: (given[0](2 * place, lane), given[0](2 * place + 1, lane)), write)
    turns = row.tables.add(np.exp(-2j * np.pi * np.arange(half) / size))
    out = _writer(row, made)

    def ends(lane: Any) -> None:
        x, y = read(0, lane)
        out(0, lane, (x + y, row.number(0)))
        out(half, lane, (x - y, row.number(0)))

    def middle(before: Any, lane: Any) -> None:
        place = before + 1
        (a, b), (c, d) = read(place, lane), read(half - place, lane)
        turned = _multiplied((b + d, c - a), row.root(turns, half, place))
        two = row.number(0.5)
        out(place, lane, ((a + c + turned[0]) * two, (b - d + turned[1]) * two))

    with T.serial(0, row.inner) as lane:
        ends(lane)
    row.each(half - 1, middle)


def _row_to_real(row: _Row, size: int, given: list[Any], made: list[Any]) -> None:
    """For odd lengths: the conjugates complete the row; real and imaginary parts change places to invert."""
    read, write = row.scratch(size)
    source = _reader(given)
    with T.serial(0, row.inner) as lane:
        write(0, lane, (row.number(0), source(0, lane)[0]))

    def complete(before: Any, lane: Any) -> None:
        x, y = source(before + 1, lane)
        write(before + 1, lane, (y, x))
        write(size - 1 - before, lane, (row.number(0) - y, x))

    row.each(size // 2, complete)
    row.transform(
        size, read, lambda place, lane, value: made[0](place, lane, value[1] * row.number(row.scale))
    )


def _row_to_pairs(row: _Row, size: int, given: list[Any], made: list[Any]) -> None:
    """For even lengths: the reverse of ``_paired_row``."""
    half = size // 2
    read, write = row.scratch(half)
    source = _reader(given)
    turns = row.tables.add(np.exp(2j * np.pi * np.arange(half) / size))
    with T.serial(0, row.inner) as lane:
        first, last = source(0, lane)[0], source(half, lane)[0]
        write(0, lane, (first - last, first + last))

    def middle(before: Any, lane: Any) -> None:
        place = before + 1
        (a, b), (c, d) = source(place, lane), source(half - place, lane)
        x, y = _multiplied((a - c, b + d), row.root(turns, half, place))
        write(place, lane, (b - d + x, a + c - y))

    row.each(half - 1, middle)
    scale = row.number(row.scale)

    def out(place: Any, lane: Any, value: Pair) -> None:
        made[0](2 * place, lane, value[1] * scale)
        made[0](2 * place + 1, lane, value[0] * scale)

    row.transform(half, read, out)


def _reader(given: list[Any]) -> Read:
    return lambda place, lane: (given[0](place, lane), given[1](place, lane))


def _writer(row: _Row, made: list[Any]) -> Write:
    def write(place: Any, lane: Any, value: Pair) -> None:
        for one, part in zip(made, value, strict=True):
            one(place, lane, part if row.scale == 1 else part * row.number(row.scale))

    return write


def _multiplied(left: Pair, right: Pair) -> Pair:
    (a, b), (c, d) = left, right
    return a * c - b * d, a * d + b * c


def _smooth(least: int) -> int:
    """The smallest length from ``least`` on that is a power of two, or three or five times one."""
    return min(factor << max(0, (-(-least // factor) - 1).bit_length()) for factor in (1, 3, 5))


def _rows(
    emit: Emitter,
    name: str,
    body: Body,
    inputs: Sequence[relax.Expr],
    axis: int,
    kept: Sequence[int],
    size: int,
    scale: float,
) -> list[relax.Expr]:
    """Transform along an axis; ``kept`` are the results' sizes along it."""
    shape = shape_of(inputs[0])
    place = axis_of(axis, len(shape))
    outer, inner, dtype = prod(shape[:place]), prod(shape[place + 1 :]), dtype_of(inputs[0])
    row = _Row(dtype, inner, scale)
    flat = [emit(relax.op.reshape(one, (outer * shape[place] * inner,))) for one in inputs]

    def loops(given: Sequence[Any], made: Sequence[Any]) -> Any:
        row.tables, row.table = _Tables(), given[-1]
        with IRBuilder() as builder:
            loop = T.parallel if outer > 1 and outer * size * inner >= _MIN_PARALLEL else T.serial
            with loop(0, outer) as number:
                readers = [partial(_load, one, number, shape[place], inner) for one in given[:-1]]
                writers = [
                    partial(_store, one, number, along, inner) for one, along in zip(made, kept, strict=True)
                ]
                body(row, size, readers, writers)
            return builder.get()

    dry = [te.placeholder((outer * shape[place] * inner,), dtype) for _ in inputs]
    loops(
        [*(tirx.decl_buffer(one.shape, dtype) for one in dry), tirx.decl_buffer((1,), dtype)],
        [tirx.decl_buffer((outer * along * inner,), dtype) for along in kept],
    )
    table = relax.const(row.tables.array(), dtype)

    def compute(*tensors: te.Tensor) -> Any:
        sizes = [(outer * along * inner,) for along in kept]
        return te.extern(sizes, tensors, loops, dtype=[dtype] * len(kept), name=name)

    made = emit.tensor_expression(compute, *flat, table)
    parts = [made] if len(kept) == 1 else [emit(relax.TupleGetItem(made, i)) for i in range(len(kept))]
    return [
        emit(relax.op.reshape(part, (*shape[:place], along, *shape[place + 1 :])))
        for part, along in zip(parts, kept, strict=True)
    ]


def _load(buffer: Any, number: Any, along: int, inner: int, place: Any, lane: Any) -> Any:
    return tirx.BufferLoad(buffer, [(number * along + place) * inner + lane])


def _store(buffer: Any, number: Any, along: int, inner: int, place: Any, lane: Any, value: Any) -> None:
    T.buffer_store(buffer, value, [(number * along + place) * inner + lane])


RULES: Rules = (
    Decomposition("aten.fft_fftfreq.default", _frequencies),
    Decomposition("aten.fft_rfftfreq.default", _frequencies_of_real),
    Rule("bessemer.fourier.default", _fourier),
    Rule("bessemer.fourier_of_real.default", _fourier_of_real),
    Rule("bessemer.fourier_to_real.default", _fourier_to_real),
    ComplexDecomposition(f"aten._fft_c2c.default{OF_COMPLEX}", _of_complex),
    ComplexDecomposition(f"aten._fft_c2r.default{OF_COMPLEX}", _to_real),
    ComplexDecomposition(f"aten._fft_r2c.default{OF_COMPLEX}", _of_real),
)
