"""Build loop nests as TensorIR statements; the families that write their own loops use these functions.

A loop's body is a function of its index, so nested loops are nested calls::

    nest.parallel(rows, lambda row: nest.vectorized(8, lambda lane: nest.store(y, x[row, lane], row, lane)))

gives::

    for row in T.parallel(rows):
        for lane in T.vectorized(8):
            y[row, lane] = x[row, lane]

A loop of one iteration disappears. Index arithmetic keeps the dtype of its operands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil, prod
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, te, tirx
from tvm.ir import TensorLoad

from worker.compiler.schedules.annotations import OPAQUE, PATTERN, SCHEDULED

Index = Any
Size = Any
"""An integer, or an expression of a size that is known only at run time."""
Sizes = tuple[int, ...]
Body = Callable[[Index], tirx.Stmt]
Expression = Any
Kind = tuple[tuple[int, ...], str]
"""The shape and the dtype of a tensor."""

INDEX = "int64"
"""The dtype of the loops of functions that legalization writes."""


def serial(extent: Size, body: Body, dtype: str = "int64") -> tirx.Stmt:
    """A plain loop."""
    return _loop(extent, body, dtype, tirx.ForKind.SERIAL)


def parallel(extent: Size, body: Body, dtype: str = "int64") -> tirx.Stmt:
    """A loop whose iterations threads divide into contiguous parts."""
    return _loop(extent, body, dtype, tirx.ForKind.PARALLEL)


def tasks(extent: Size, body: Body, dtype: str = "int64", *, parallel: bool) -> tirx.Stmt:
    """A loop whose iterations threads divide, if they are worth it."""
    return _loop(extent, body, dtype, tirx.ForKind.PARALLEL if parallel else tirx.ForKind.SERIAL)


def together(body: tirx.Stmt) -> tirx.Stmt:
    """A statement that every thread runs. It divides loops of ``divided`` only, and must contain one."""
    return _pragma("parallel_launch_point", body)


def divided(extent: Size, body: Body, dtype: str = "int64") -> tirx.Stmt:
    """A loop in ``together`` whose iterations threads divide into contiguous parts. All wait for the last."""
    variable = tirx.Var("i", dtype)
    extent = constant(extent, dtype) if isinstance(extent, int) else extent
    loop = tirx.For(variable, constant(0, dtype), extent, tirx.ForKind.PARALLEL, body(variable))
    return _pragma("parallel_barrier_when_finish", loop)


def unrolled(extent: int, body: Body, dtype: str = "int64") -> tirx.Stmt:
    """An unrolled loop, so that buffers that it indexes can live in registers."""
    return _loop(extent, body, dtype, tirx.ForKind.UNROLLED)


def vectorized(extent: int, body: Body, dtype: str = "int64") -> tirx.Stmt:
    """A loop whose iterations are the lanes of one vector."""
    return _loop(extent, body, dtype, tirx.ForKind.VECTORIZED)


def sequence(*statements: tirx.Stmt) -> tirx.Stmt:
    """Statements one after another."""
    return tirx.SeqStmt(list(statements)) if len(statements) > 1 else statements[0]


def registers(shape: Sequence[int], dtype: str, name: str) -> Any:
    """A small buffer that LLVM keeps in registers if only constants and vector lanes index it."""
    return tirx.decl_buffer(tuple(shape), dtype, name, scope="local")


def workspace(shape: Sequence[Size], dtype: str, name: str) -> Any:
    """A buffer in memory, one for each iteration of the loops around it."""
    return tirx.decl_buffer(tuple(shape), dtype, name)


def declare(buffer: Any) -> tirx.Stmt:
    """The allocation of a buffer, for the rest of the enclosing sequence."""
    return tirx.AllocBuffer(buffer)


def named(value: Any, name: str, body: Body) -> tirx.Stmt:
    """A statement that reads a value from a register.

    Inlined into every index, a division by a dynamic size would be simplified and compiled many times, and
    computed in inner loops. Binding it to a variable does not help: TVM's code generator substitutes
    variables, which took ten times as long as LLVM for a product of dynamic rows.
    """
    register = registers((1,), dtype_of(value), name)
    zero = constant(0, dtype_of(value))
    return sequence(declare(register), store(register, value, zero), body(register[zero]))


def all_named(values: Sequence[tuple[Any, str]], body: Callable[..., tirx.Stmt]) -> tirx.Stmt:
    """A statement that reads several values, each given with its name, from registers."""
    if not values:
        return body()
    (value, name), *others = values
    return named(value, name, lambda first: all_named(others, partial(body, first)))


def store(buffer: Any, value: Any, *indices: Index) -> tirx.Stmt:
    """``buffer[indices] = value``."""
    return tirx.BufferStore(buffer, value, list(indices))


NEAR = 3
"""A prefetch into every cache."""
FAR = 2
"""A prefetch into the second-level cache."""


def prefetch(buffer: Any, *indices: Index, into: int = NEAR) -> tirx.Stmt:
    """Ask for the cache line of an element that is read soon. The element may lie outside the buffer."""
    is_write, locality, is_data = (tirx.IntImm("int32", number) for number in (0, into, 1))
    address = tirx.address_of(buffer[indices])
    return tirx.Evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch", address, is_write, locality, is_data))


def constant(value: int, dtype: str) -> Any:
    """A constant of a dtype."""
    return (
        tirx.IntImm(dtype, value) if dtype.startswith(("int", "uint")) else tirx.FloatImm(dtype, float(value))
    )


def dtype_of(expression: Any) -> str:
    """The dtype of a scalar expression."""
    return str(expression.ty.dtype)


def bits_of(dtype: Any) -> int:
    """Bits of an element of a dtype, given as TVM's or by name."""
    return int(tvm.DataType(str(dtype)).bits)


def is_nan(value: Any) -> Any:
    """Whether a float is NaN; TVM's ``isnan`` does not know bfloat16."""
    return tirx.isnan(value.astype("float32") if dtype_of(value) == "bfloat16" else value)


def substitute(node: Any, values: Mapping[Any, Any]) -> Any:
    """An expression or a statement with variables or buffers replaced."""
    return tvm_ffi.structural_map(node, (tirx.Var, lambda variable: values.get(variable, variable)))


def replace_loads(node: Any, buffer: Any, value: Callable[[Sequence[Any]], Any]) -> Any:
    """An expression with every load of ``buffer`` replaced by ``value(indices)``."""

    def replaced(load: Any) -> Any:
        return value(load.indices) if load.source.same_as(buffer) else load

    return tvm_ffi.structural_map(node, (TensorLoad, replaced))


def always(expression: Any) -> Callable[[Sequence[Any]], Any]:
    """Replaces every load by the same expression, for ``replace_loads``."""
    return lambda _indices: expression


def loads_of(node: Any) -> tuple[Any, ...]:
    """The loads in an expression or a statement, in order."""
    loads: list[Any] = []
    tvm_ffi.structural_walk(node, (TensorLoad, lambda load: loads.append(load)))
    return tuple(loads)


def with_loops(function: tirx.PrimFunc, loops: tirx.Stmt, buffers: Sequence[Any] = ()) -> tirx.PrimFunc:
    """The function with these loops, in a root block that allocates buffers, as TVM's passes expect."""
    root = s_tir.SBlock([], [], [], "root", loops, alloc_buffers=list(buffers))
    return function.with_body(s_tir.SBlockRealize([], tirx.IntImm("bool", 1), root))


def signature(inputs: Mapping[str, Kind], results: Mapping[str, Kind]) -> tirx.PrimFunc:
    """A function of named tensors, marked as scheduled, for ``with_loops`` to fill."""
    given = [te.placeholder(shape, dtype, name) for name, (shape, dtype) in inputs.items()]
    made = [te.compute(shape, _zeros(dtype), name) for name, (shape, dtype) in results.items()]
    function = te.create_prim_func([*given, *made]).without_attr("global_symbol")
    return function.with_attr(SCHEDULED, True).with_attr(PATTERN, OPAQUE).with_attr("tirx.noalias", True)


def ceil_div(number: Size, by: Size) -> Size:
    """A quotient, rounded up; an expression if either operand is one."""
    return (number + by - 1) // by


def share(chunk: Any, parts: Size, most: int) -> tuple[Any, Any]:
    """A chunk's first part and the number of its parts, which differs by one at most between chunks.

    If the number of parts is dynamic, the last chunk has what is left.

    Args:
        chunk: its index, a number or an expression.
        parts: the number of all parts.
        most: the most parts of a chunk, which decides how many chunks there are.
    """
    if not isinstance(parts, int):
        return chunk * most, smaller(most, parts - chunk * most)
    return portion(chunk, parts, ceil(parts / most))


def portion(chunk: Any, parts: int, chunks: int) -> tuple[Any, Any]:
    """The first part of one of so many chunks and the number of its parts; see ``share``."""
    if parts % chunks == 0:
        return chunk * (parts // chunks), parts // chunks
    first = chunk * parts // chunks
    return first, (chunk + 1) * parts // chunks - first


def smaller(one: Size, other: Size) -> Size:
    """The smaller of two sizes."""
    if isinstance(one, int) and isinstance(other, int):
        return min(one, other)
    return tirx.min(one, other)


def larger(one: Size, other: Size) -> Size:
    """The larger of two sizes."""
    if isinstance(one, int) and isinstance(other, int):
        return max(one, other)
    return tirx.max(one, other)


def clamped(number: Expression, side: int, size: int) -> Expression:
    """The start of a part of length ``side``, moved back so that it ends within ``size``."""
    if size % side == 0:
        return number * side
    return tirx.Min(number * side, constant(size - side, dtype_of(number)))


def either(condition: Any, then: tirx.Stmt, otherwise: tirx.Stmt) -> tirx.Stmt:
    """A branch at run time."""
    return tirx.IfThenElse(condition, then, otherwise)


def split_index(index: Expression, sizes: Sequence[int]) -> tuple[Expression, ...]:
    """The indices of nested loops, from the index of the loop that they are fused to."""
    indices: list[Expression] = []
    for position in reversed(range(len(sizes))):
        indices.insert(0, index if position == 0 else index % sizes[position])
        index = index // sizes[position]
    return tuple(indices)


def rows_of(sizes: Sizes) -> int:
    """The number of rows of an image in blocks: all its dimensions but the last are fused to one."""
    return prod(sizes[:-1])


def split_rows(row: Expression, sizes: Sizes) -> tuple[Expression, ...]:
    """The indices of all dimensions of an image but the last, from its row."""
    return split_index(row, sizes[:-1])


def join_rows(indices: Sequence[Expression], sizes: Sizes) -> Expression:
    """The row of an element of an image; ``indices`` holds one index per dimension."""
    row: Expression = tirx.IntImm("int64", 0)
    for position in range(len(sizes) - 1):
        row = indices[0] if position == 0 else row * sizes[position] + indices[position]
    return row


def importing(code: str, body: tirx.Stmt) -> tirx.Stmt:
    """A statement that calls functions of some LLVM IR."""
    return _pragma("import_llvm", body, tvm.ir.StringImm(code))


def _pragma(name: str, body: tirx.Stmt, value: Any = None) -> tirx.Stmt:
    return tirx.AttrStmt(
        constant(0, "int32"), f"pragma_{name}", constant(1, "int32") if value is None else value, body
    )


def _loop(extent: Size, body: Body, dtype: str, kind: tirx.ForKind) -> tirx.Stmt:
    if isinstance(extent, int):
        if extent == 1:
            return body(tirx.IntImm(dtype, 0))
        extent = tirx.IntImm(dtype, extent)
    variable = tirx.Var("i", dtype)
    return tirx.For(variable, tirx.IntImm(dtype, 0), extent, kind, body(variable))


def _zeros(dtype: str) -> Callable[..., Any]:
    return lambda *_indices: tirx.const(0, dtype)
