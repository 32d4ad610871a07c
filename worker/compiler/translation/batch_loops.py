"""Algorithms as TensorIR loops, for operators that no single reduction expresses.

The number of loops does not depend on the sizes of the matrices. The items of a batch run in parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from operator import mul
from typing import Any

from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from worker.compiler.translation.emitter import Emitter, fixed, shape_of


class View:
    """One item of a buffer whose first axis is the batch: a matrix, a vector or a scalar."""

    def __init__(self, buffer: tirx.Buffer, place: Any) -> None:
        self._buffer = buffer
        self._place = place
        self.sizes = tuple(int(size) for size in buffer.shape[1:])
        self.dtype = str(buffer.dtype)

    def __getitem__(self, at: Any) -> Any:
        """Read an element."""
        return tirx.BufferLoad(self._buffer, self._at(at))

    def __setitem__(self, at: Any, value: Any) -> None:
        """Write an element, cast to the buffer's dtype."""
        number = isinstance(value, int | float)
        T.buffer_store(
            self._buffer, tirx.const(value, self.dtype) if number else value.astype(self.dtype), self._at(at)
        )

    def _at(self, at: Any) -> list[Any]:
        return [self._place, *(at if isinstance(at, tuple) else (at,))]


class Local:
    """A local variable in the body of a loop."""

    def __init__(self, value: Any, dtype: str) -> None:
        self._part = View(T.alloc_buffer((1,), dtype, scope="local"), 0)
        self.set(value)

    @property
    def value(self) -> Any:
        """The current value."""
        return self._part[()]

    def set(self, value: Any) -> None:
        """Assign a value."""
        self._part[()] = value


@dataclass(frozen=True)
class Result:
    """Shape (without the batch) and dtype of one result."""

    sizes: tuple[int, ...]
    dtype: str


@contextmanager
def when(condition: Any) -> Iterator[None]:
    """Run the statements of the ``with`` block under a condition."""
    with T.If(condition), T.Then():
        yield


def copy(source: View, target: View) -> None:
    """Copy all elements of a matrix."""
    rows, columns = source.sizes
    with T.serial(0, rows) as i, T.serial(0, columns) as j:
        target[i, j] = source[i, j]


def set_identity(target: View) -> None:
    """Write the identity matrix."""
    rows, columns = target.sizes
    with T.serial(0, rows) as i, T.serial(0, columns) as j:
        target[i, j] = tirx.Select(i == j, tirx.const(1, target.dtype), tirx.const(0, target.dtype))


def swap(left: tuple[View, Any], right: tuple[View, Any]) -> None:
    """Exchange two elements, each given as a view and an index."""
    (first, here), (second, there) = left, right
    kept = Local(first[here], first.dtype)
    first[here] = second[there]
    second[there] = kept.value


def partial_named(body: Callable[..., None], **known: Any) -> Callable[..., None]:
    """``functools.partial`` that keeps the name, which becomes the TensorIR function's."""
    bound = partial(body, **known)
    bound.__name__ = body.__name__  # type: ignore[attr-defined]
    return bound


def map_batch(
    emit: Emitter,
    body: Callable[..., None],
    inputs: Sequence[relax.Expr],
    results: Sequence[Result],
    rank: int = 2,
) -> list[relax.Expr]:
    """Run a loop body on each item of a batch, in parallel.

    Args:
        emit: binds the results.
        body: writes the loops; takes a view of each input, then of each result.
        inputs: tensors with the same leading batch axes, of any number.
        results: shape and dtype of each result.
        rank: the number of axes of the first input that are not batch axes.
    """
    batch = shape_of(inputs[0])[: len(shape_of(inputs[0])) - rank]
    count = reduce(mul, batch, 1)
    flat = [emit(relax.op.reshape(one, (count, *shape_of(one)[len(batch) :]))) for one in inputs]

    def loops(given: Sequence[Any], made: Sequence[Any]) -> Any:
        with IRBuilder() as builder:
            with T.parallel(0, count) as place:
                body(*(View(buffer, place) for buffer in (*given, *made)))
            return builder.get()

    def compute(*tensors: te.Tensor) -> Any:
        shapes = [(count, *result.sizes) for result in results]
        return te.extern(
            shapes, tensors, loops, dtype=[one.dtype for one in results], name=body.__name__.strip("_")
        )

    made = emit.tensor_expression(compute, *flat)
    parts = [made] if len(results) == 1 else [emit(relax.TupleGetItem(made, i)) for i in range(len(results))]
    return [
        emit(relax.op.reshape(part, (*batch, *result.sizes)))
        for part, result in zip(parts, results, strict=True)
    ]


def matrix_sizes(matrix: relax.Expr) -> tuple[int, int]:
    """The number of rows and of columns, which must be fixed."""
    rows, columns = fixed(shape_of(matrix)[-2:], "matrices")
    return rows, columns


def transposed(emit: Emitter, matrix: relax.Expr) -> relax.Expr:
    """A batch of matrices with rows and columns exchanged."""
    rank = len(shape_of(matrix))
    return emit(relax.op.permute_dims(matrix, [*range(rank - 2), rank - 1, rank - 2]))
