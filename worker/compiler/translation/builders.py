"""The builders that translation emits with: one for Relax operators, one for tensor expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import tvm
from tvm import relax

if TYPE_CHECKING:
    from torch.fx import Node

Express = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]
"""Expresses a call of an operator as a TensorIR function and a call of that function."""

_EXPRESS = "FLegalize"
_DATA_DEPENDENT = "FDataDependent"


class NamingBuilder(relax.BlockBuilder):
    """Names variables after the node that is being translated, and remembers each variable's node."""

    def __init__(self) -> None:
        super().__init__()
        self.node: Node | None = None
        self.nodes: dict[str, Node] = {}

    def emit(self, expr: relax.Expr, name_hint: str = "") -> relax.Var:
        """Bind an expression to a new variable."""
        variable = super().emit(expr, name_hint or (self.node.name if self.node else ""))
        if self.node is not None:
            self.nodes[str(variable.name)] = self.node
        return variable


class ExpressionBuilder(NamingBuilder):
    """Emits each call of an operator as a tensor expression, composed into TensorIR at once.

    Two kinds of operators stay calls of operators: those that sort, and those whose result has a shape that
    depends on data. They become calls of TensorIR or of the runtime when operators are legalized.
    """

    def __init__(self, expressions: Mapping[str, Express]) -> None:
        """Create a builder without functions.

        Args:
            expressions: by operator name; they replace TVM's own.
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
        """A call whose operands are variables and constants. Nested calls are emitted first."""
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
        replacement = self._expressions.get(str(expr.op.name))
        return replacement if replacement is not None else expr.op.get_attr(_EXPRESS)


def _has_known_shapes(call: relax.Call) -> bool:
    """Whether the types give the shapes of all operands and of the result."""
    if call.op.get_attr(_DATA_DEPENDENT):
        return False
    return all(map(_is_known, (call.ty, *(argument.ty for argument in call.args))))


def _is_known(kind: Any) -> bool:
    if isinstance(kind, relax.TupleType):
        return all(map(_is_known, kind.fields))
    return not isinstance(kind, relax.TensorType) or isinstance(kind.shape, relax.ShapeExpr)
