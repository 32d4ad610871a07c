"""Instructions that multiply narrow numbers in groups and add the products to wider sums.

| instruction | feature | operands, sums | sums by products each |
|---|---|---|---|
| `smmla`, `ummla`, `usmmla` | i8mm | bytes, int32 | 2 x 2 by 8 |
| `sdot`, `udot` | dotprod | bytes, int32 | 1 x 4 by 4 |
| `bfmmla` | bf16 | bfloat16, float32 | 2 x 2 by 4 |
| `vpdpbusd` | avx512vnni | unsigned by signed bytes, int32 | 1 x 16 by 4 |

An instruction takes a vector of ``rows`` groups of the left operand and one of ``columns`` groups of the
right one; where ``rows`` is 1, the group is repeated. Sums of bytes wrap around, like those of multiply-adds.
`bfmmla` rounds sums to odd and takes subnormal numbers for zeros in every rounding mode: a sum is off by
less than a unit in the last place of float32, where other instructions are off by half of one.

Source: Arm Architecture Reference Manual for A-profile architecture, DDI 0487; Intel 64 and IA-32
Architectures Software Developer's Manual, volume 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx


@dataclass(frozen=True)
class DotInstruction:
    """Adds ``group`` products to each of ``rows`` by ``columns`` sums.

    Attributes:
        feature: LLVM's name of the feature that has it.
        left: the dtype of the left operand.
        right: the dtype of the right operand.
        sums: the dtype of the sums.
        rows: rows of the left operand.
        columns: columns of the right operand.
        group: products of a sum.
        intrinsic: LLVM's name.
    """

    feature: str
    left: str
    right: str
    sums: str
    rows: int
    columns: int
    group: int
    intrinsic: str

    @property
    def lanes(self) -> int:
        """The sums."""
        return self.rows * self.columns

    @property
    def imported(self) -> str | None:
        """The LLVM IR that a function needs to use the instruction."""
        return _BFMMLA if self.intrinsic == _BFMMLA_NAME else None

    def add(self, sums: Any, left: Any, right: Any) -> Any:
        """The sums with the products of two vectors added."""
        dtype = f"{self.sums}x{self.lanes}"
        if self.imported is not None:
            return tirx.call_pure_extern(dtype, self.intrinsic, sums, left, right)
        return tirx.call_llvm_pure_intrin(dtype, self.intrinsic, sums, left, right)


_BFMMLA_NAME = "bessemer_bfmmla"
_BFMMLA = f"""
define linkonce_odr hidden <4 x float> @{_BFMMLA_NAME}(<4 x float> %c, <8 x i16> %l, <8 x i16> %r) #0 {{
  %a = bitcast <8 x i16> %l to <8 x bfloat>
  %b = bitcast <8 x i16> %r to <8 x bfloat>
  %d = call <4 x float> @llvm.aarch64.neon.bfmmla(<4 x float> %c, <8 x bfloat> %a, <8 x bfloat> %b)
  ret <4 x float> %d
}}

declare <4 x float> @llvm.aarch64.neon.bfmmla(<4 x float>, <8 x bfloat>, <8 x bfloat>)

attributes #0 = {{ alwaysinline nounwind willreturn memory(none) }}
"""

_MATRIX = ("int32", 2, 2, 8)
_DOT = ("int32", 1, 4, 4)
_NEON = "llvm.aarch64.neon"
DOT_INSTRUCTIONS = (
    DotInstruction("i8mm", "int8", "int8", *_MATRIX, f"{_NEON}.smmla.v4i32.v16i8"),
    DotInstruction("i8mm", "uint8", "uint8", *_MATRIX, f"{_NEON}.ummla.v4i32.v16i8"),
    DotInstruction("i8mm", "uint8", "int8", *_MATRIX, f"{_NEON}.usmmla.v4i32.v16i8"),
    DotInstruction("dotprod", "int8", "int8", *_DOT, f"{_NEON}.sdot.v4i32.v16i8"),
    DotInstruction("dotprod", "uint8", "uint8", *_DOT, f"{_NEON}.udot.v4i32.v16i8"),
    DotInstruction("bf16", "bfloat16", "bfloat16", "float32", 2, 2, 4, _BFMMLA_NAME),
    DotInstruction("avx512vnni", "uint8", "int8", "int32", 1, 16, 4, "llvm.x86.avx512.vpdpbusd.512"),
)
"""The best of several that fit comes first."""

DOT_FEATURES = frozenset(instruction.feature for instruction in DOT_INSTRUCTIONS)


def held_dtype(dtype: str) -> str:
    """The dtype of operands in registers: TVM (0.27) would turn bfloat16 into float32 there."""
    return "uint16" if dtype == "bfloat16" else dtype


def find_dot(features: frozenset[str], left: str, right: str, sums: str) -> DotInstruction | None:
    """The instruction for a product of these dtypes; None if the processor has none."""
    return next(
        (
            one
            for one in DOT_INSTRUCTIONS
            if one.feature in features and (one.left, one.right, one.sums) == (left, right, sums)
        ),
        None,
    )
