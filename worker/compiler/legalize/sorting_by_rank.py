"""Sorts for GPUs, as two reductions that every thread can take a part of.

    rank[r, i]   = the number of elements of row r before x[r, i] in order; of equal ones, the earlier
    place[r, p]  = sum over i of (i where rank[r, i] == p)                       one term is not zero

The work is the square of a row's elements, without steps that wait for each other. Rows of more than
``LONGEST_ROW`` elements are refused: they would take seconds.
"""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

LONGEST_ROW = 1 << 16


def places_by_rank(
    bb: relax.BlockBuilder, strips: relax.Expr, kept: int, dtype: str, ascends: bool
) -> relax.Var:
    """The places of the first ``kept`` elements of each row of ``[rows, width]``, in order."""

    def ranks(x: te.Tensor) -> te.Tensor:
        other = te.reduce_axis((0, x.shape[1]), "j")

        def rank(row: Any, here: Any) -> Any:
            one, another = x[row, here], x[row, other]
            precedes = another < one if ascends else another > one
            counts = tirx.any(precedes, tirx.all(another.equal(one), other.var < here))
            return te.sum(tirx.Select(counts, tirx.const(1, "int32"), tirx.const(0, "int32")), axis=other)

        return te.compute(x.shape, rank, "rank")

    def places(rank: te.Tensor) -> te.Tensor:
        place = te.reduce_axis((0, rank.shape[1]), "i")
        zero = tirx.const(0, dtype)

        def at(row: Any, order: Any) -> Any:
            own = rank[row, place].equal(order.astype("int32"))
            return te.sum(tirx.Select(own, place.var.astype(dtype), zero), axis=place)

        return te.compute((rank.shape[0], kept), at, "places")

    ranked = bb.emit(bb.call_te(ranks, strips, primfunc_name_hint="ranks"))
    return bb.emit(bb.call_te(places, ranked, primfunc_name_hint="places"))
