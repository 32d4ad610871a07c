"""A Python file to fill in with rules for unsupported operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from worker.compiler.translation.names import operator_name
from worker.compiler.translation.registry import POINT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.fx import Node

MAX_RULES = 3

_HEAD = """\
# my_rules.py: send it with the request, `--extension my_rules.py`, or install it in a package beside the
# worker, whose pyproject.toml says
# [project.entry-points."{group}"]
# my_rules = "my_rules:RULES"
from tvm import relax
from worker.compiler.translation.rule import Rule
"""

_RULE = """
def {name}(emit{arguments}):
    # {schema}
    # Tensors are Relax expressions. Bind each with emit(…) and return the result, such as relax.op.exp(x),
    # or emit.tensor_expression(compute, x), where compute uses tvm.te or tvm.topi.
    raise NotImplementedError
"""


def rule_template(nodes: Sequence[Node]) -> str:
    """A Python file with empty rules for the first few operators of ``nodes``."""
    operators = {operator_name(node): node for node in nodes}
    chosen = dict(list(operators.items())[:MAX_RULES])
    bodies = "".join(_rule(name, node) for name, node in chosen.items())
    entries = "".join(f'    Rule("{name}", {_function_name(name)}),\n' for name in chosen)
    return f"{_HEAD.format(group=POINT.group)}\n{bodies}\n\nRULES = (\n{entries})\n"


def _rule(name: str, node: Node) -> str:
    if not isinstance(node.target, torch._ops.OpOverload):
        return _RULE.format(name=_function_name(name), arguments=", *arguments", schema=name)
    schema = node.target._schema
    positional = [argument.name for argument in schema.arguments if not argument.kwarg_only]
    named = [argument.name for argument in schema.arguments if argument.kwarg_only]
    parts = [*(_argument(one) for one in positional), *(["*", *named] if named else [])]
    arguments = "".join(f", {part}" for part in parts)
    return "\n" + _RULE.format(name=_function_name(name), arguments=arguments, schema=schema)


def _argument(name: str) -> str:
    return "data" if name == "self" else name


def _function_name(operator: str) -> str:
    return operator.removesuffix(".default").removeprefix("aten.").replace(".", "_")
