"""Functions of the mathematics library as arithmetic, so that loops which call them are vectorized.

LLVM makes one call per element of what TVM leaves to it. Here each function is a polynomial, or a quotient of
two, over a reduced argument. Overflow, underflow, infinities and NaN come out as from the library; a denormal
number may come out as another one or as zero.

Greatest errors in units in the last place, as ``tests/stages/test_vector_math.py`` checks them:

======== ======= =======
function float32 float64
======== ======= =======
acos     4       4
acosh    4       4
asin     4       4
asinh    4       4
atan     3       3
atan2    4       4
atanh    4       4
cos      3       3
cosh     3       3
erf      5       3
exp      2       2
exp2     2       2
fmod     0       libm
log      2       2
log10    2       3
log1p    4       4
log2     2       3
pow      1       libm
sigmoid  3       3
sin      3       3
sinh     4       4
tan      4       4
tanh     2       2
======== ======= =======

A power with a small integer exponent, or half of one, is a product or a root. Angles are reduced for up to
2 ** 30 quarter turns in float32, 2 ** 20 in float64. Narrower formats are computed in float32.

Sources: S. Moshier, "Methods and Programs for Mathematical Functions", 1989 (Cephes: the reductions, erf
and tanh of float64); FreeBSD's msun (log); Eigen, ``MathFunctionsImpl.h`` (erf of float32); Chebyshev fits
(exp, tanh).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, PrimType, TensorLoad

from worker.schedules import nest
from worker.schedules import vector_powers as powers
from worker.schedules import vector_trigonometry as trigonometry
from worker.schedules.blocks import is_branch
from worker.schedules.guards import guards
from worker.schedules.vector_functions import erf, exp, log, sigmoid, tanh
from worker.schedules.vector_numbers import FLOAT32, FORMATS, Expression

_NARROW = ("float16", "bfloat16")


Rule = Callable[..., Expression | None]
Rules = dict[str, Rule]

RULES: Rules = {
    "tirx.acos": trigonometry.acos,
    "tirx.acosh": powers.acosh,
    "tirx.asin": trigonometry.asin,
    "tirx.asinh": powers.asinh,
    "tirx.atan": trigonometry.atan,
    "tirx.atan2": trigonometry.atan2,
    "tirx.atanh": powers.atanh,
    "tirx.cos": trigonometry.cos,
    "tirx.cosh": powers.cosh,
    "tirx.erf": erf,
    "tirx.exp": exp,
    "tirx.exp2": powers.exp2,
    "tirx.fmod": powers.fmod,
    "tirx.log": log,
    "tirx.log10": powers.log10,
    "tirx.log1p": powers.log1p,
    "prim.log2": powers.log2,
    "tirx.pow": powers.power,
    "tirx.sigmoid": sigmoid,
    "tirx.sin": trigonometry.sin,
    "tirx.sinh": powers.sinh,
    "tirx.tan": trigonometry.tan,
    "tirx.tanh": tanh,
}
"""What replaces a call, by the operator's name; None leaves the call."""

_IN_BRANCHES = {name: rule for name, rule in RULES.items() if name != "tirx.fmod"}
"""Inside a branch terms stay in the expression, which must not be long."""


def with_vector_math(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with ``RULES`` applied to every call in what it stores.

    Common terms go to registers before the store: TVM's passes would write variables out again, which takes
    exponential time. Only in branches that may guard what they read do terms stay inside the expression.
    """
    found: list[bool] = []
    tvm_ffi.structural_walk(function.body, (Call, lambda call: found.append(_rule(call) is not None)))
    if not any(found):
        return function
    plain = _Terms(tirx.IntImm("int32", 0), 1)
    mapped = tvm_ffi.structural_mutate(
        function.body,
        ((tirx.For, _in_loop), (tirx.BufferStore, lambda store, _: plain.declared(plain.of(store)))),
    )
    return function.with_body(mapped)


def _in_loop(loop: tirx.For, mutator: Any) -> tirx.Stmt:
    """A vectorized loop has registers with its lanes."""
    if loop.kind != tirx.ForKind.VECTORIZED:
        return mutator.default_mutate(loop)
    terms = _Terms(loop.loop_var - loop.min, int(loop.extent))
    body = tvm_ffi.structural_map(loop.body, (tirx.BufferStore, terms.of))
    return terms.declared(tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body))


class _Terms:
    """The registers for the common terms of stores in one place."""

    def __init__(self, lane: Expression, lanes: int) -> None:
        self._lane, self._lanes = lane, lanes
        self._registers: list[Any] = []

    def declared(self, statement: tirx.Stmt) -> tirx.Stmt:
        """The statement after the declaration of all registers since the last one."""
        registers, self._registers = self._registers, []
        return nest.sequence(*map(nest.declare, registers), statement)

    def of(self, store: tirx.BufferStore) -> tirx.Stmt:
        """A store whose calls are replaced, after the terms that they need."""
        terms: list[tirx.Stmt] = []

        def call(call: Call, mutator: Any) -> Expression:
            if is_branch(call):
                return tvm_ffi.structural_map(call, (Call, _within_branch))
            plain = mutator.default_mutate(call)
            return self._flat(_rewritten(plain), terms) if _rule(plain) is not None else plain

        def branch(select: tirx.Select, mutator: Any) -> Expression:
            if guards(select, self._is_term):
                return tvm_ffi.structural_map(select, (Call, _within_branch))
            return mutator.default_mutate(select)

        rules = ((Call, call), (tirx.Select, branch), (tirx.Let, self._bound(terms)))
        value = tvm_ffi.structural_mutate(store.value, rules)
        return nest.sequence(*terms, tirx.BufferStore(store.buffer, value, store.indices))

    def _is_term(self, load: TensorLoad) -> bool:
        return any(load.source.same_as(register) for register in self._registers)

    def _flat(self, expression: Expression, terms: list[tirx.Stmt]) -> Expression:
        """An expression without ``Let``, except in branches that guard what these read."""

        def call(call: Call, mutator: Any) -> Expression:
            return call if is_branch(call) else mutator.default_mutate(call)

        def branch(select: tirx.Select, mutator: Any) -> Expression:
            return select if guards(select, self._is_term) else mutator.default_mutate(select)

        rules = ((Call, call), (tirx.Select, branch), (tirx.Let, self._bound(terms)))
        return tvm_ffi.structural_mutate(expression, rules)

    def _bound(self, terms: list[tirx.Stmt]) -> Callable[[tirx.Let, Any], Expression]:
        """What a ``Let`` binds joins the terms."""

        def bound(let: tirx.Let, mutator: Any) -> Expression:
            register = nest.registers((self._lanes,), nest.dtype_of(let.var), "term")
            self._registers.append(register)
            terms.append(nest.store(register, mutator.mutate(let.value), self._lane))
            return mutator.mutate(nest.substitute(let.body, {let.var: register[self._lane]}))

        return bound


def _rule(call: Call, rules: Rules = RULES) -> Rule | None:
    known = nest.dtype_of(call) in (*FORMATS, *_NARROW) if isinstance(call.ty, PrimType) else False
    return rules.get(str(getattr(call.op, "name", ""))) if known else None


def _within_branch(call: Call) -> Expression:
    return _rewritten(call, _IN_BRANCHES)


def _rewritten(call: Call, rules: Rules = RULES) -> Expression:
    rule = _rule(call, rules)
    if rule is None:
        return call
    dtype = nest.dtype_of(call)
    if dtype in _NARROW:
        wide = rule(*(tirx.Cast(FLOAT32.dtype, argument) for argument in call.args))
        return call if wide is None else tirx.Cast(dtype, wide)
    replaced = rule(*call.args)
    return call if replaced is None else replaced
