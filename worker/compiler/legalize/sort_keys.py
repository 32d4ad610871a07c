"""Integer keys for sorts.

TVM's runtime compares floats with ``<``, which is no order where one is NaN: whole rows come out unsorted. It
has no code for integers of less than 32 bits.
"""

from __future__ import annotations

from tvm import relax, te

from worker.compiler.translation.comparison_keys import BITS_OF_INFINITY, WIDE, key_of


def sort_keys(bb: relax.BlockBuilder, data: relax.Expr) -> relax.Expr | None:
    """A tensor of keys, int32 or int64; None where the elements themselves are as good."""
    dtype = str(data.ty.dtype)
    if dtype not in WIDE and dtype not in BITS_OF_INFINITY:
        return None
    return bb.emit(bb.call_te(_keys, data, primfunc_name_hint="sort_keys"))


def _keys(data: te.Tensor) -> te.Tensor:
    wide = WIDE.get(str(data.dtype), str(data.dtype))
    return te.compute(data.shape, lambda *place: key_of(data[place].astype(wide), wide), name="keys")
