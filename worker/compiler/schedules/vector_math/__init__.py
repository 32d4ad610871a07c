"""Replace calls of mathematical functions by arithmetic, so that loops that call them are vectorized.

LLVM calls the mathematics library once per element. Here each function is a polynomial, or a quotient of two,
of a reduced argument, whose common terms are vectors in registers::

    for lane in vectorized(8):          for lane in vectorized(8):
        y[lane] = exp(x[lane])              n[lane] = round(x[lane] * log2(e))
                                            r[lane] = x[lane] - n[lane] * log(2)
                                            y[lane] = polynomial(r[lane]) * 2 ** n[lane]

Overflow, infinities and NaN come out as from the library. A denormal number may come out as another one or
as zero; a denormal exponential or ``sigmoid`` comes out as zero. ``tanh(-x)`` may differ from ``-tanh(x)`` by
the errors below.

Greatest errors in units in the last place, which ``tests/stages/test_vector_math.py`` checks:

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
tanh     3       3
======== ======= =======

A power with a small integer exponent, or half of one, is a product or a root. Angles are reduced for up to
2 ** 30 quarter turns in float32, 2 ** 20 in float64. Narrower formats are computed in float32.

Sources: S. Moshier, "Methods and Programs for Mathematical Functions", 1989 (Cephes: the reductions, erf of
float64); FreeBSD's msun (log); Eigen, ``MathFunctionsImpl.h`` (erf of float32); SLEEF (the form of tanh); Arm
Optimized Routines, ``exp.c`` (the rounding of exp); Chebyshev fits (exp).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, PrimType, TensorLoad
from tvm.sym import Analyzer

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import is_branch
from worker.compiler.schedules.conditions import analyzer_of, guards, is_in_bounds
from worker.compiler.schedules.vector_math import powers, trigonometry
from worker.compiler.schedules.vector_math.exponentials import erf, exp, log, sigmoid, tanh
from worker.compiler.schedules.vector_math.numbers import FLOAT32, FORMATS, Expression

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
"""The replacement of a call, by the operator's name; a rule that returns None leaves the call."""


def with_vector_math(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with ``RULES`` applied to every call in what it stores.

    Common terms are stored in registers before the store. A choice that guards its branches becomes a
    statement that stores in a register. Variables inside an expression are no alternative: TVM's passes
    inline them again, in exponential time.
    """
    if not _needs_terms(function.body):
        return function
    analyzer = analyzer_of(function.body)
    plain = _Terms(tirx.IntImm("int32", 0), 1, analyzer)

    def loop(loop: tirx.For, mutator: Any) -> tirx.Stmt:
        return (
            _in_vectors(loop, analyzer)
            if loop.kind == tirx.ForKind.VECTORIZED
            else mutator.default_mutate(loop)
        )

    mapped = tvm_ffi.structural_mutate(
        function.body,
        ((tirx.For, loop), (tirx.BufferStore, lambda store, _: plain.declared(plain.of(store)))),
    )
    return function.with_body(mapped)


def _in_vectors(loop: tirx.For, analyzer: Analyzer) -> tirx.Stmt:
    """A vectorized loop after the declaration of its registers, which have the loop's lanes."""
    terms = _Terms(loop.loop_var - loop.min, int(loop.extent), analyzer)
    body = tvm_ffi.structural_map(loop.body, (tirx.BufferStore, terms.of))
    return terms.declared(tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body))


class _Terms:
    """The common terms of the stores in one loop, in registers."""

    def __init__(self, lane: Expression, lanes: int, analyzer: Analyzer) -> None:
        self._lane, self._lanes, self._analyzer = lane, lanes, analyzer
        self._registers: dict[Any, None] = {}

    def declared(self, statement: tirx.Stmt) -> tirx.Stmt:
        """The statement after the declaration of the registers that are new since the last call."""
        registers, self._registers = self._registers, {}
        return nest.sequence(*map(nest.declare, registers), statement)

    def of(self, store: tirx.BufferStore) -> tirx.Stmt:
        """A store with its calls replaced, after the terms that they need."""
        return self._with_terms(
            store.value, lambda value: tirx.BufferStore(store.buffer, value, store.indices)
        )

    def _with_terms(self, expression: Expression, use: Callable[[Expression], tirx.Stmt]) -> tirx.Stmt:
        terms: list[tirx.Stmt] = []
        value = self._flat(expression, terms)
        return nest.sequence(*terms, use(value))

    def _flat(self, expression: Expression, terms: list[tirx.Stmt]) -> Expression:
        """An expression with ``Let`` and calls replaced; adds the statements that it needs to ``terms``."""

        def call(call: Call, mutator: Any) -> Expression:
            if is_branch(call):
                return self._branch(call, call.args, terms, mutator)
            plain = mutator.default_mutate(call)
            replaced = _rewritten(plain)
            return plain if replaced.same_as(plain) else self._flat(replaced, terms)

        def select(select: tirx.Select, mutator: Any) -> Expression:
            if not guards(select, self._is_known):
                return mutator.default_mutate(select)
            parts = (select.condition, select.true_value, select.false_value)
            return self._branch(select, parts, terms, mutator)

        def let(let: tirx.Let, mutator: Any) -> Expression:
            term = self._register(nest.dtype_of(let.var), "term")
            terms.append(nest.store(term, mutator.mutate(let.value), self._lane))
            return mutator.mutate(nest.substitute(let.body, {let.var: term[self._lane]}))

        return tvm_ffi.structural_mutate(expression, ((Call, call), (tirx.Select, select), (tirx.Let, let)))

    def _branch(
        self, expression: Expression, parts: Sequence[Expression], terms: list[tirx.Stmt], mutator: Any
    ) -> Expression:
        """A choice that computes only the branch taken; a statement if a branch needs terms.

        A join is a chain of choices, each in the last branch of the one before.
        """
        if not _needs_terms(expression):
            return expression
        if not any(map(_needs_terms, parts[1:])):
            return mutator.default_mutate(expression)
        result = self._register(nest.dtype_of(expression), "chosen")

        def stored(branch: Expression) -> tirx.Stmt:
            return self._with_terms(branch, lambda value: nest.store(result, value, self._lane))

        choices: list[tuple[list[tirx.Stmt], Expression, tirx.Stmt]] = []
        rest: Sequence[Expression] | Expression = parts
        while isinstance(rest, Sequence):
            condition, then, otherwise = rest
            before: list[tirx.Stmt] = []
            choices.append((before, self._flat(condition, before), stored(then)))
            rest = (
                tuple(otherwise.args) if isinstance(otherwise, Call) and is_branch(otherwise) else otherwise
            )
        statement = stored(rest)
        for before, condition, then in reversed(choices):
            statement = nest.sequence(*before, nest.either(condition, then, statement))
        terms.append(statement)
        return result[self._lane]

    def _register(self, dtype: str, name: str) -> Any:
        register = nest.registers((self._lanes,), dtype, name)
        self._registers[register] = None
        return register

    def _is_known(self, load: TensorLoad) -> bool:
        """Whether a load is valid even if its branch is not taken."""
        return load.source in self._registers or is_in_bounds(load, self._analyzer)


def _needs_terms(node: Any) -> bool:
    """Whether an expression or a statement has a ``Let`` or a call that a rule replaces."""
    found: list[bool] = []
    tvm_ffi.structural_walk(
        node,
        [
            (Call, lambda call: found.append(_rule(call) is not None)),
            (tirx.Let, lambda _: found.append(True)),
        ],
    )
    return any(found)


def _rule(call: Call) -> Rule | None:
    known = nest.dtype_of(call) in (*FORMATS, *_NARROW) if isinstance(call.ty, PrimType) else False
    return RULES.get(str(getattr(call.op, "name", ""))) if known else None


def _rewritten(call: Call) -> Expression:
    rule = _rule(call)
    if rule is None:
        return call
    dtype = nest.dtype_of(call)
    if dtype in _NARROW:
        wide = rule(*(tirx.Cast(FLOAT32.dtype, argument) for argument in call.args))
        return call if wide is None else tirx.Cast(dtype, wide)
    replaced = rule(*call.args)
    return call if replaced is None else replaced
