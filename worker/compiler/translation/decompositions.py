"""torch's decompositions to core operators, as translation uses them."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from bessemer.contract.problem import ErrorCode
from worker.compiler.extensions import cached_book
from worker.compiler.source_locations import place_of
from worker.compiler.torch_costs import RECURRENT, linear_torch
from worker.compiler.translation.call_decompositions import Table, decomposed_by_call, split_table
from worker.compiler.translation.complex_parts import has_rule, in_parts
from worker.compiler.translation.errors import UntranslatableError
from worker.compiler.translation.names import is_complex, operator_name
from worker.compiler.translation.registry import rule_book
from worker.compiler.translation.rule import OF_COMPLEX
from worker.errors import JobError, failure_of, short_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch.export import ExportedProgram
    from torch.fx import Node

    from bessemer.contract.problem import SourcePlace

KEPT_WHOLE = (
    torch.ops.aten.linear.default,
    torch.ops.aten.matmul.default,
    torch.ops.aten.scaled_dot_product_attention.default,
    torch.ops.aten.upsample_bicubic2d.vec,
    *RECURRENT,
)
"""Operators that are not decomposed. The reshapes of a decomposed product hide what could be fused with it;
a decomposed cubic resize looks up every pixel sixteen times, and a decomposed recurrent layer has every step
written out."""


def decomposed(program: ExportedProgram) -> ExportedProgram:
    """The program in core operators on real tensors.

    A program with a complex operator that has no rule keeps its complex operators.

    Raises:
        JobError: ``translate-failed``: torch cannot decompose it, as happens where dynamic sizes are related.
    """
    try:
        with linear_torch():
            return _decomposed(program)
    except UntranslatableError as error:
        raise untranslatable(error, _first_place(program, error.operator)) from error
    except Exception as error:
        raise failure_of(
            ErrorCode.TRANSLATE_FAILED, error, f"torch cannot decompose it: {short_message(error)}"
        ) from error


def _decomposed(program: ExportedProgram) -> ExportedProgram:
    if not any(map(is_complex, calls_of(program))):
        return decomposed_by_call(program, tables().parts) or program.run_decompositions(tables().whole)
    core, rules = program.run_decompositions(_table_for_complex()), rule_book().of_complex
    if not all(has_rule(node, rules) for node in calls_of(core)):
        return core
    return in_parts(core, rules).run_decompositions(tables().whole)


def untranslatable(error: UntranslatableError, place: SourcePlace | None) -> JobError:
    """The failure of a rule that does not know an operator's arguments."""
    where = error.operator if place is None else str(place)
    detail = f"{where} cannot be translated: {error.reason}"
    return JobError(ErrorCode.TRANSLATE_FAILED, detail, () if place is None else (place,))


def calls_of(program: ExportedProgram) -> Iterator[Node]:
    """The calls of a program, including those of its branches and loops."""
    for graph_module in program.graph_module.modules():
        if isinstance(graph_module, torch.fx.GraphModule):
            yield from (node for node in graph_module.graph.nodes if node.op == "call_function")


class Tables(NamedTuple):
    """The decompositions, as torch takes them and in the parts that tracing needs."""

    whole: dict[Any, Any]
    parts: Table


@cached_book
def tables() -> Tables:
    """torch's default decompositions without ``KEPT_WHOLE`` and what extensions translate; the rules' own.

    Cached: torch would make the table for every program, which takes longer than decomposing a small model.
    """
    table = dict(torch.export.default_decompositions())
    for operator in KEPT_WHOLE:
        table.pop(operator, None)
    for operator in [each for each in table if str(each) in rule_book().whole]:
        del table[operator]
    for name, rule in rule_book().decompositions.items():
        table[_overload(name)] = _named(name, rule.compute)
    return Tables(table, split_table(table))


@cached_book
def _table_for_complex() -> dict[Any, Any]:
    """The table, with operators on complex numbers kept whole where these have a rule of their own."""
    table = dict(tables().whole)
    for name in rule_book().of_complex:
        operator = _overload(name.removesuffix(OF_COMPLEX))
        if operator in table:
            table[operator] = _on_real(table[operator])
    return table


def _on_real(compute: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition that leaves calls with complex arguments alone."""

    @wraps(compute)
    def decompose(*arguments: Any, **named: Any) -> Any:
        leaves = pytree.tree_leaves((arguments, named))
        if any(isinstance(leaf, torch.Tensor) and leaf.is_complex() for leaf in leaves):
            return NotImplemented
        return compute(*arguments, **named)

    return decompose


def _named(name: str, compute: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition whose errors name its operator."""

    @wraps(compute)
    def decompose(*arguments: Any, **named: Any) -> Any:
        try:
            return compute(*arguments, **named)
        except UntranslatableError as error:
            error.operator = error.operator or name
            raise

    return decompose


def _overload(name: str) -> torch._ops.OpOverload:
    operator: Any = torch.ops
    for part in name.split("."):
        operator = getattr(operator, part)
    return operator


def _first_place(program: ExportedProgram, operator: str | None) -> SourcePlace | None:
    """The place of a program's first call of an operator; None where it is a part of others."""
    calls = (node for node in calls_of(program) if operator_name(node) == operator)
    return next(map(place_of, calls), None)
