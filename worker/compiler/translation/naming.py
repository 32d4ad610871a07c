"""A builder that remembers where its variables come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import relax

if TYPE_CHECKING:
    from torch.fx import Node


class NamingBuilder(relax.BlockBuilder):
    """Calls variables as torch calls the node that is being translated, and remembers which node that was."""

    def __init__(self) -> None:
        """Start with no function, at no node."""
        super().__init__()
        self.node: Node | None = None
        self.nodes: dict[str, Node] = {}

    def emit(self, expr: relax.Expr, name_hint: str = "") -> relax.Var:
        """Bind an expression to a new variable."""
        variable = super().emit(expr, name_hint or (self.node.name if self.node else ""))
        if self.node is not None:
            self.nodes[str(variable.name)] = self.node
        return variable
