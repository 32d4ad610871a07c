"""The second level of translation: every operator as a tensor expression, composed into TensorIR at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm
from tvm import relax

from worker.compiler.translation.naming import NamingBuilder

Express = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]
"""What a call of an operator is in tensor expressions: it makes a TensorIR function, and a call of that."""

_EXPRESS = "FLegalize"
_DATA_DEPENDENT = "FDataDependent"


class ExpressionBuilder(NamingBuilder):
    """Emits a tensor expression wherever it is given a call of an operator that has one.

    Other operators stay: those that sort, and those whose shapes only the data tell. They become calls of
    TensorIR or of the runtime later, when operators do.
    """

    def __init__(self, expressions: Mapping[str, Express]) -> None:
        """Start with no function.

        Args:
            expressions: for operators whose expression is to be another than TVM's, by their names.
        """
        super().__init__()
        self._expressions = expressions

    def emit(self, expr: Any, name_hint: str = "") -> relax.Var:
        """Bind an expression to a new variable."""
        plain = self._unnested(expr)
        express = self._expression_of(plain)
        if express is None:
            return super().emit(plain, name_hint)
        call = self.normalize(plain)
        expressed = express(self, call) if _has_known_shapes(call) else call
        return super().emit(call if expressed is None else self._unnested(expressed), name_hint)

    def _unnested(self, expr: Any) -> Any:
        """A call whose operands are variables and constants: what it is made of is emitted first."""
        if not isinstance(expr, relax.Call):
            return expr
        arguments = [self._operand(argument) for argument in expr.args]
        return relax.Call(expr.op, arguments, expr.attrs, expr.ty_args, expr.span)

    def _operand(self, argument: Any) -> Any:
        if isinstance(argument, relax.Call):
            return self.emit(argument)
        if isinstance(argument, relax.Tuple):
            return relax.Tuple([self._operand(field) for field in argument.fields])
        return argument

    def _expression_of(self, expr: Any) -> Express | None:
        if not isinstance(expr, relax.Call) or not isinstance(expr.op, tvm.ir.Op):
            return None
        ours = self._expressions.get(str(expr.op.name))
        return ours if ours is not None else expr.op.get_attr(_EXPRESS)


def _has_known_shapes(call: relax.Call) -> bool:
    """Whether the sizes of all operands and of the result are told by the types."""
    if call.op.get_attr(_DATA_DEPENDENT):
        return False
    return all(map(_is_known, (call.ty, *(argument.ty for argument in call.args))))


def _is_known(kind: Any) -> bool:
    if isinstance(kind, relax.TupleType):
        return all(map(_is_known, kind.fields))
    return not isinstance(kind, relax.TensorType) or isinstance(kind.shape, relax.ShapeExpr)
