"""Algorithms on matrices as loops of TensorIR: those that no single reduction says.

The loops stay few whatever the size of the matrices. The matrices of a batch are computed in parallel.
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

from worker.compiler.translation.emitter import Emitter, shape_of


class Part:
    """One matrix or vector of a buffer, whose first axis is the batch."""

    def __init__(self, buffer: tirx.Buffer, place: Any) -> None:
        self._buffer = buffer
        self._place = place
        self.sizes = tuple(int(size) for size in buffer.shape[1:])
        self.dtype = str(buffer.dtype)

    def __getitem__(self, at: Any) -> Any:
        """An element."""
        return tirx.BufferLoad(self._buffer, self._at(at))

    def __setitem__(self, at: Any, value: Any) -> None:
        """Write an element; a number takes the dtype of the others."""
        number = isinstance(value, int | float)
        T.buffer_store(
            self._buffer, tirx.const(value, self.dtype) if number else value.astype(self.dtype), self._at(at)
        )

    def _at(self, at: Any) -> list[Any]:
        return [self._place, *(at if isinstance(at, tuple) else (at,))]


class Cell:
    """A variable of a loop's body."""

    def __init__(self, value: Any, dtype: str) -> None:
        self._part = Part(T.alloc_buffer((1,), dtype, scope="local"), 0)
        self.set(value)

    @property
    def value(self) -> Any:
        """What it holds."""
        return self._part[()]

    def set(self, value: Any) -> None:
        """Give it another value."""
        self._part[()] = value


@dataclass(frozen=True)
class Result:
    """What is computed for each matrix: its sizes without those of the batch."""

    sizes: tuple[int, ...]
    dtype: str


@contextmanager
def when(condition: Any) -> Iterator[None]:
    """Statements under a condition."""
    with T.If(condition), T.Then():
        yield


def copy(source: Part, target: Part) -> None:
    """All elements of a matrix."""
    rows, columns = source.sizes
    with T.serial(0, rows) as i, T.serial(0, columns) as j:
        target[i, j] = source[i, j]


def set_identity(target: Part) -> None:
    """A matrix of ones on the diagonal."""
    rows, columns = target.sizes
    with T.serial(0, rows) as i, T.serial(0, columns) as j:
        target[i, j] = tirx.Select(i == j, tirx.const(1, target.dtype), tirx.const(0, target.dtype))


def swap(left: tuple[Part, Any], right: tuple[Part, Any]) -> None:
    """Exchange two elements, each a part and where in it."""
    (ours, here), (theirs, there) = left, right
    kept = Cell(ours[here], ours.dtype)
    ours[here] = theirs[there]
    theirs[there] = kept.value


def partial_named(body: Callable[..., None], **known: Any) -> Callable[..., None]:
    """A body some of whose arguments are known; its function is called as the body is."""
    bound = partial(body, **known)
    bound.__name__ = body.__name__  # type: ignore[attr-defined]
    return bound


def each_matrix(
    emit: Emitter,
    body: Callable[..., None],
    inputs: Sequence[relax.Expr],
    results: Sequence[Result],
    rank: int = 2,
) -> list[relax.Expr]:
    """Compute something of each matrix of a batch.

    Args:
        emit: binds it.
        body: writes the loops; takes the parts of the inputs and of the results that belong to one place.
        inputs: tensors of the same batch, which may be of any rank.
        results: what is computed.
        rank: axes of the first input that are no batch.
    """
    batch = shape_of(inputs[0])[: len(shape_of(inputs[0])) - rank]
    count = reduce(mul, batch, 1)
    flat = [emit(relax.op.reshape(one, (count, *shape_of(one)[len(batch) :]))) for one in inputs]

    def loops(given: Sequence[Any], made: Sequence[Any]) -> Any:
        with IRBuilder() as builder:
            with T.parallel(0, count) as place:
                body(*(Part(buffer, place) for buffer in (*given, *made)))
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
