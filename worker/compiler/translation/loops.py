"""Loops as functions of Relax that call themselves.

    first(x) = step(x)
    once(x)  = let y = first(x) in if test(y) then first(y) else y       two steps
    ...      = the same of the one before                                4, 8, ... steps
    loop(x)  = if test(x) then loop(last(x)) else x

The virtual machine has no other loop, and every call that has not returned keeps its tensors. So a function
that calls itself takes 256 steps at a time: 100,000 steps nest 400 calls. Each step runs the test once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, tirx
from tvm.ir import GlobalVar

from worker.compiler.translation.symbolic_shapes import substituted, variables_in

_DOUBLINGS = 8

Values = Sequence[relax.Expr]


class LoopWriter:
    """Writes the functions of one loop.

    Args:
        builder: gets the functions.
        test: takes all values, and returns a boolean tensor in a tuple.
        step: takes all values, and returns a tuple of new ones of the first ``carried``.
        types: the types of all values.
        carried: how many values the steps change.
    """

    def __init__(
        self,
        builder: relax.BlockBuilder,
        test: GlobalVar,
        step: GlobalVar,
        types: Sequence[relax.TensorType | relax.ShapeType],
        carried: int,
    ) -> None:
        self._builder = builder
        self._test, self._step = test, step
        self._types, self._carried = types, carried

    def write(self) -> GlobalVar:
        """Write the loop, which returns a tuple of the carried values."""
        steps = self._step
        for _ in range(_DOUBLINGS):
            steps = self._function("loop_steps", self._twice(steps))
        loop = self._function("loop", self._tuple)
        whole = self._function("loop_whole", lambda values: self._while(values, steps, loop))
        symbol = {"global_symbol": str(loop.name_hint)}
        copy = relax.utils.copy_with_new_vars(self._builder.get()[whole])
        self._builder.update_func(loop, copy.with_attrs(symbol))
        return loop

    def _twice(self, steps: GlobalVar) -> Callable[[Values], relax.Expr]:
        def body(values: Values) -> relax.Expr:
            after = self._after(steps, values)
            return self._if_it_holds(after, relax.Call(steps, after))

        return body

    def _while(self, values: Values, steps: GlobalVar, loop: GlobalVar) -> relax.Expr:
        again = self._function("loop_again", lambda inner: relax.Call(loop, self._after(steps, inner)))
        return self._if_it_holds(values, relax.Call(again, values))

    def _after(self, function: GlobalVar, values: Values) -> list[relax.Expr]:
        """All values after a call."""
        result = self._builder.emit(relax.Call(function, values))
        changed = [self._builder.emit(relax.TupleGetItem(result, place)) for place in range(self._carried)]
        return [*changed, *values[self._carried :]]

    def _if_it_holds(self, values: Values, then: relax.Expr) -> relax.Expr:
        tested = self._builder.emit(relax.Call(self._test, values))
        holds = self._builder.emit(relax.TupleGetItem(tested, 0))
        return relax.If(holds, then, self._tuple(values))

    def _tuple(self, values: Values) -> relax.Tuple:
        return relax.Tuple(list(values[: self._carried]))

    def _function(self, name: str, body: Callable[[Values], relax.Expr]) -> GlobalVar:
        parameters = [relax.Var(f"value{place}", kind) for place, kind in enumerate(self._own_types())]
        unique = f"{name}_{len(self._builder.get().functions)}"  # which becomes the symbol, too
        with self._builder.function(unique, parameters):
            return self._builder.emit_func_output(self._builder.emit(body(parameters)))

    def _own_types(self) -> list[relax.TensorType | relax.ShapeType]:
        """The types of all values, with variables of their own: no two functions share one."""
        symbols = variables_in(size for kind in self._types for size in _sizes(kind))
        own = {symbol: tirx.Var(symbol.name, symbol.ty) for symbol in symbols}
        return [
            relax.ShapeType([own[size] for size in _sizes(kind)])
            if isinstance(kind, relax.ShapeType)
            else relax.TensorType([substituted(size, own) for size in _sizes(kind)], kind.dtype)
            for kind in self._types
        ]


def _sizes(kind: relax.TensorType | relax.ShapeType) -> Sequence[Any]:
    return kind.values if isinstance(kind, relax.ShapeType) else kind.shape
