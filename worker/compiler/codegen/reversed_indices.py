"""Rewrites quotients and remainders of indices that count down.

    x[(9 - i) // 5, (9 - i) % 5]   →   x[1 - i // 5, 4 - i % 5]

TVM 0.27 loses the start of an index that counts down as it flattens buffers: it reads the remainder above as
``-(i % 5)`` modulo 5. ``(x + bias).flatten(1).flip(1)`` has such indices.
"""

from __future__ import annotations

from collections.abc import Iterator

import tvm
import tvm_ffi
from tvm import tirx


@tvm.transform.module_pass(opt_level=0, name="CountUp")
def count_up(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Divide what counts up instead. The new expressions equal the old ones for all integers."""
    changed = module.clone()
    for variable, function in module.functions_items():
        if isinstance(function, tirx.PrimFunc):
            body = tvm_ffi.structural_map(function.body, ((tirx.FloorDiv, tirx.FloorMod), _counting_up))
            if not body.same_as(function.body):
                changed.update_func(variable, function.with_body(body))
    return changed


def _counting_up(quotient: tirx.FloorDiv | tirx.FloorMod) -> tvm.ir.Expr:
    """The same number, without terms that are multiples of the divisor, if what is left goes one way."""
    size = int(quotient.b) if isinstance(quotient.b, tirx.IntImm) else 0
    terms = list(_terms(quotient.a, 1)) if size > 0 else []
    start = sum(int(term) * factor for term, factor in terms if isinstance(term, tirx.IntImm))
    counters = [(term, factor) for term, factor in terms if not isinstance(term, tirx.IntImm)]
    parts = [(term, factor) for term, factor in counters if factor % size]
    if all(factor > 0 for _, factor in counters) or len({factor > 0 for _, factor in parts}) > 1:
        return quotient
    zero = tirx.IntImm(str(quotient.b.ty.dtype), 0)
    blocks, rest = divmod(start, size)
    whole = sum((term * (factor // size) for term, factor in counters if not factor % size), zero + blocks)
    is_division = isinstance(quotient, tirx.FloorDiv)
    if all(factor > 0 for _, factor in parts):
        count = sum((term * factor for term, factor in parts), zero + rest)
        return whole + tirx.floordiv(count, size) if is_division else tirx.floormod(count, size)
    count = sum((term * -factor for term, factor in parts), zero + (size - 1 - rest))
    return whole - tirx.floordiv(count, size) if is_division else size - 1 - tirx.floormod(count, size)


def _terms(value: tvm.ir.Expr, factor: int) -> Iterator[tuple[tvm.ir.Expr, int]]:
    """The terms of a sum, each with its factor."""
    match value:
        case tirx.Add():
            yield from _terms(value.a, factor)
            yield from _terms(value.b, factor)
        case tirx.Sub():
            yield from _terms(value.a, factor)
            yield from _terms(value.b, -factor)
        case tirx.Mul(b=tirx.IntImm()):
            yield from _terms(value.a, factor * int(value.b))
        case _:
            yield value, factor
