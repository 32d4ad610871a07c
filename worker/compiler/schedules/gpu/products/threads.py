"""Loops bound to blocks and threads of a GPU, and the PTX instructions that products use.

Instructions are calls of TVM's table of PTX. Their registers are elements of ``local`` buffers whose
indices are constants once loops are unrolled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

from tvm import tirx
from tvm.script import tirx as T

from worker.compiler.schedules import nest

WARP = 32
INT = "int32"
"""The dtype of thread indices and of indices into shared memory."""

SHARED = "shared.dyn"

_ALIGNMENT = 1024
"""Where descriptors expect tiles to begin."""

Registers = Sequence[Any]


def bound(tag: str, extent: Any, body: Callable[[Any], tirx.Stmt]) -> tirx.Stmt:
    """A loop whose iterations are blocks (``blockIdx.x``) or threads (``threadIdx.x``)."""
    variable = tirx.Var(tag.replace(".", "_"), INT)
    size = number(extent) if isinstance(extent, int) else extent
    thread = tirx.IterVar(None, tirx.Var(tag, INT), tirx.IterVar.ThreadIndex, tag)
    return tirx.For(
        variable, number(0), size, tirx.ForKind.THREAD_BINDING, body(variable), thread_binding=thread
    )


def serial(extent: Any, body: Callable[[Any], tirx.Stmt]) -> tirx.Stmt:
    """A plain loop of 32-bit indices."""
    return nest.serial(extent, body, INT)


def unrolled(extent: int, body: Callable[[Any], tirx.Stmt]) -> tirx.Stmt:
    """An unrolled loop of 32-bit indices."""
    return nest.unrolled(extent, body, INT)


def unrolled_by_compiler(extent: int, body: Callable[[Any], tirx.Stmt]) -> tirx.Stmt:
    """A loop that the CUDA compiler unrolls (``#pragma unroll``), where copies would make TVM slow."""
    loop = nest.unrolled(extent, body, INT)
    return tirx.AttrStmt(number(0), "pragma_unroll_explicit", number(0), loop)


def repeated(extent: int, body: Callable[[int], tirx.Stmt]) -> tirx.Stmt:
    """Copies of a statement, one per number."""
    return nest.sequence(*(body(position) for position in range(extent)))


def number(value: int) -> Any:
    """A 32-bit integer."""
    return tirx.IntImm(INT, value)


def unsigned(value: int, dtype: str = "uint32") -> Any:
    """An unsigned integer."""
    return tirx.const(value, dtype)


def shared(size: int, dtype: str) -> Any:
    """Shared memory of ``size`` bytes: one buffer, since TVM does not see what instructions read and write.

    ``view`` gives it other dtypes. Its own one must be among those that are used: TVM would change it,
    but not its size.
    """
    return tirx.decl_buffer(
        (ceil(size / _bytes(dtype)),), dtype, "shared", scope=SHARED, data_alignment=_ALIGNMENT
    )


def view(memory: Any, dtype: str, name: str) -> Any:
    """All of shared memory as elements of a dtype."""
    size = int(memory.shape[0]) * _bytes(str(memory.dtype))
    return tirx.decl_buffer((size // _bytes(dtype),), dtype, name, scope=SHARED)


def declare_view(part: Any, memory: Any) -> tirx.Stmt:
    """The declaration of a view of shared memory."""
    return tirx.DeclBuffer(part, data=memory.data)


def _parts_of(condition: Any) -> list[Any]:
    """The conditions that ``and`` joins: CUDA would branch at each ``&&``."""
    if isinstance(condition, tirx.And):
        return [*_parts_of(condition.a), *_parts_of(condition.b)]
    return [condition]


def all_of(conditions: list[Any]) -> Any:
    """Whether all conditions hold."""
    joined = conditions[0]
    for condition in conditions[1:]:
        joined = tirx.And(joined, condition)
    return joined


def when(condition: Any, statement: tirx.Stmt) -> tirx.Stmt:
    """A statement that runs if a condition holds."""
    return tirx.IfThenElse(condition, statement, None)


def when_all(conditions: list[Any], statement: tirx.Stmt) -> tirx.Stmt:
    """A statement that runs if all conditions hold; there may be no conditions."""
    return when(all_of(conditions), statement) if conditions else statement


def cleared(registers: Any) -> tirx.Stmt:
    """Zeros in all registers."""
    zero = tirx.const(0, str(registers.dtype))
    return unrolled(int(registers.shape[0]), lambda index: nest.store(registers, zero, index))


def barrier() -> tirx.Stmt:
    """All threads of the block wait for each other."""
    return tirx.Evaluate(tirx.call_intrin("int32", "tirx.tvm_storage_sync", SHARED))


def instruct(name: str, *operands: Any) -> tirx.Stmt:
    """A PTX instruction, such as ``cp.async.commit_group``."""
    return tirx.Evaluate(T.ptx[name](*operands))


_SETTLE = """
__forceinline__ __device__ void settle(float& value) {
  asm volatile("" : "+f"(value) :: "memory");
}
"""


def settle(register: Any) -> tirx.Stmt:
    """Keep the compiler from reading a register before the instructions so far are done with it."""
    return tirx.Evaluate(T.cuda.func_call("settle", register, source_code=_SETTLE))


_ROUND = """
__forceinline__ __device__ float round_to_tf32(float value) {
  unsigned rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(value));
  return __uint_as_float(rounded);
}
"""


def round_to_tf32(value: Any) -> Any:
    """The nearest number with 10 bits of mantissa."""
    return T.cuda.func_call("round_to_tf32", value, source_code=_ROUND, return_type="float32")


_ROUND_IN_PLACE = """
__forceinline__ __device__ void round_in_place_{count}(float *first) {{
  {vector} vector = *({vector} *)first;
  float *values = (float *)&vector;
  #pragma unroll
  for (int i = 0; i < {count}; ++i) {{
    unsigned rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(values[i]));
    values[i] = __uint_as_float(rounded);
  }}
  *({vector} *)first = vector;
}}
"""
_VECTORS = {1: "float", 2: "float2", 4: "float4"}
_WORD = """
__forceinline__ __device__ unsigned word_at(const float *place) {
  return __float_as_uint(*place);
}
"""


def round_in_place(first: Any, count: int) -> tirx.Stmt:
    """``round_to_tf32`` of elements in memory, unseen by TVM, which would add barriers."""
    source = _ROUND_IN_PLACE.format(count=count, vector=_VECTORS[count])
    address = tirx.address_of(first)
    return tirx.Evaluate(T.cuda.func_call(f"round_in_place_{count}", address, source_code=source))


def word_at(place: Any) -> Any:
    """The 32 bits of an element, unseen by TVM, which would add barriers."""
    return T.cuda.func_call("word_at", tirx.address_of(place), source_code=_WORD, return_type="uint32")


def copy_async(target: Any, source: Any, size: int, is_inside: Any) -> tirx.Stmt:
    """Copy ``size`` bytes from global to shared memory without registers; zeros if the source is outside."""
    cache = "cg" if size == 16 else "ca"
    read: Any = tirx.IntImm("uint32", size)
    for condition in _parts_of(is_inside):
        read = tirx.Select(condition, read, tirx.IntImm("uint32", 0))
    return instruct(
        f"cp.async.{cache}.shared.global", tirx.address_of(target), tirx.address_of(source), size, read
    )


def commit_copies() -> tirx.Stmt:
    """The copies so far become a group to wait for."""
    return instruct("cp.async.commit_group")


def wait_for_copies(pending: int) -> tirx.Stmt:
    """Wait until at most ``pending`` groups of this thread's copies are under way."""
    return instruct("cp.async.wait_group", pending)


def load_matrices(registers: Registers, row: Any, transposed: bool) -> tirx.Stmt:
    """Load four matrices of 8 rows of 16 bytes. Lane ``l`` gives row ``l % 8`` of matrix ``l // 8``."""
    trans = ".trans" if transposed else ""
    return instruct(f"ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16", *registers, tirx.address_of(row))


def multiply_halves(name: str, sums: Registers, left: Registers, right: Registers) -> tirx.Stmt:
    """``multiply`` for GPUs whose instruction takes half the depth."""
    return nest.sequence(multiply(name, sums, left[:2], right[:1]), multiply(name, sums, left[2:], right[1:]))


def multiply(name: str, sums: Registers, left: Registers, right: Registers) -> tirx.Stmt:
    """Add the product of two fragments to sums, by a tensor core."""
    return instruct(f"mma.sync.aligned.{name}", *sums, *left, *right, *sums)


def _bytes(dtype: str) -> int:
    return nest.bits_of(dtype) // 8
