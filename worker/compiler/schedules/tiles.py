"""Intel's tile registers (AMX): how a process gets them, and what their instructions compute.

A tile register holds 16 rows of 64 bytes. ``multiply_add`` adds the product of 16 x 32 and 32 x 16 numbers in
bfloat16 to 16 x 16 sums in float32, which takes 16 cycles: sixteen times as many multiply-adds per cycle as
AVX-512 makes in float32. The right factor holds two steps of the depth in each lane of 32 bits.

Linux gives a process the registers when it first asks (``arch_prctl``, 5.16 and newer), and may refuse:
``requested`` asks, and code needs another way.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18; Linux,
Documentation/arch/x86/xstate.rst.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

ROWS = 16
"""Rows of a left factor, and columns of a right one."""
STEPS = 32
"""The depth of a product of two tiles."""
LINE_BYTES = 64
"""Bytes of a row of a tile."""

_SHAPE = "\\01" + "\\00" * 15 + "\\40\\00" * 8 + "\\00" * 16 + "\\10" * 8 + "\\00" * 8
"""The 64 bytes that ``ldtilecfg`` reads: palette 1, eight tiles of 64 bytes by 16 rows."""

CODE = f"""
@bessemer_tile_shape = private unnamed_addr constant [64 x i8] c"{_SHAPE}", align 64

define linkonce_odr hidden i32 @bessemer_request_tiles() #0 {{
  %refused = call i64 asm sideeffect "syscall", "={{rax}},0,{{rdi}},{{rsi}},~{{rcx}},~{{r11}},~{{memory}}"(
      i64 158, i64 4131, i64 18)
  %granted = icmp eq i64 %refused, 0
  %answer = zext i1 %granted to i32
  ret i32 %answer
}}

define linkonce_odr hidden i32 @bessemer_begin_tiles() #0 {{
  call void @llvm.x86.ldtilecfg(ptr @bessemer_tile_shape)
  ret i32 0
}}

declare void @llvm.x86.ldtilecfg(ptr)

attributes #0 = {{ alwaysinline nounwind }}
"""
"""The LLVM IR that a function needs: 158 is ``arch_prctl``, 4131 ``ARCH_REQ_XCOMP_PERM``, 18 the tiles."""


def requested() -> Any:
    """Whether the process has the tile registers; asks for them."""
    return tirx.call_extern("int32", "bessemer_request_tiles") != 0


def begin() -> tirx.Stmt:
    """Set the shape of this thread's tiles; until ``end``, the kernel saves them with the thread."""
    return tirx.Evaluate(tirx.call_extern("int32", "bessemer_begin_tiles"))


def end() -> tirx.Stmt:
    """Release this thread's tiles."""
    return _call("tilerelease")


def clear(tile: int) -> tirx.Stmt:
    """Zero a tile."""
    return _call("tilezero", _number(tile))


def load(tile: int, buffer: Any, *first: Any, stride_bytes: int = LINE_BYTES) -> tirx.Stmt:
    """Load a tile from the element at ``first`` on, one row every ``stride_bytes``."""
    return _call("tileloadd64", _number(tile), *_place(buffer, first, stride_bytes))


def keep(tile: int, buffer: Any, *first: Any, stride_bytes: int = LINE_BYTES) -> tirx.Stmt:
    """Store a tile from the element at ``first`` on, one row every ``stride_bytes``."""
    return _call("tilestored64", _number(tile), *_place(buffer, first, stride_bytes))


def multiply_add(sums: int, left: int, right: int) -> tirx.Stmt:
    """Add the product of two tiles to a third."""
    return _call("tdpbf16ps", _number(sums), _number(left), _number(right))


def _place(buffer: Any, first: tuple[Any, ...], stride_bytes: int) -> tuple[Any, Any]:
    return tirx.address_of(buffer[first]), tirx.IntImm("int64", stride_bytes)


def _number(tile: int) -> Any:
    return tirx.IntImm("int8", tile)


def _call(name: str, *arguments: Any) -> tirx.Stmt:
    return tirx.Evaluate(tirx.call_llvm_intrin("void", f"llvm.x86.{name}", *arguments))
