"""Subgraphs that only change torch's modes, and assertions of the graph about itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm import relax, tirx

from worker.compiler.translation.emitter import Emitter
from worker.compiler.translation.errors import UntranslatableError
from worker.compiler.translation.rule import Rules, rules_of

if TYPE_CHECKING:
    from torch.fx import Node


def _with_modes(emit: Emitter, *arguments: Any) -> Any:
    """Inline the subgraph. Gradients and automatic casts are already settled in an exported graph."""
    place = next(index for index, one in enumerate(arguments) if hasattr(one, "graph"))
    return emit.inlined(arguments[place], list(arguments[place + 1 :]))


def _smaller(emit: Emitter, one: Any, other: Any) -> Any:
    """The smaller of two sizes."""
    return tirx.min(*map(_size, (one, other)))


def _larger(emit: Emitter, one: Any, other: Any) -> Any:
    return tirx.max(*map(_size, (one, other)))


def _not(emit: Emitter, condition: Any) -> Any:
    """The opposite of a condition on sizes, which assertions read."""
    return tirx.Not(condition) if isinstance(condition, tirx.Expr) else not condition


def _offset(emit: Emitter, _: relax.Expr) -> int:
    """Where a slice begins in its memory: torch asserts that this is not negative if it depends on data."""
    if not all(map(_is_asserted, emit.node.users)):
        raise UntranslatableError("computing with the offset of a view in its memory")
    return 0


def _is_asserted(condition: Node) -> bool:
    return all(str(user.target).startswith("aten._assert_scalar.") for user in condition.users)


def _size(size: Any) -> Any:
    return tirx.IntImm("int64", size) if isinstance(size, int) else size


def _nothing(emit: Emitter, *arguments: Any) -> None:
    return None


RULES: Rules = rules_of(
    {
        "wrap_with_set_grad_enabled": _with_modes,
        "wrap_with_autocast": _with_modes,
        "aten._assert_tensor_metadata.default": _nothing,
        "aten._assert_scalar.default": _nothing,
        "aten.sym_constrain_range_for_size.default": _nothing,
        "aten.sym_constrain_range.default": _nothing,
        "aten.sym_storage_offset.default": _offset,
        "sym_max": _larger,
        "sym_not": _not,
        "sym_min": _smaller,
    }
)
