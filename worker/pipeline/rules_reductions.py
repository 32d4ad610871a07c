"""Translation rules for reductions that TVM's importer lacks, or writes as sorts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tvm import relax

if TYPE_CHECKING:
    from torch.fx import Node

Converter = Callable[[Any, "Node"], relax.Var]


def _reduce(operator: Callable[..., relax.Expr]) -> Converter:
    """``amax``, ``amin``, ``prod.dim_int``: over some axes, all where none is given."""

    def rule(importer: Any, node: Node) -> relax.Var:
        data, *rest = importer.retrieve_args(node)
        axes = rest[0] if rest else node.kwargs.get("dim")
        keeps = rest[1] if len(rest) > 1 else node.kwargs.get("keepdim", False)
        reduced = operator(data, axis=None if axes == [] else axes, keepdims=keeps)
        return importer.emit(reduced)

    return rule


def _extreme(value: Callable[..., relax.Expr], place: Callable[..., relax.Expr]) -> Converter:
    """``max.dim`` and ``min.dim``: the extreme, and where it stands."""

    def rule(importer: Any, node: Node) -> relax.Var:
        data, axis, *rest = importer.retrieve_args(node)
        keeps = rest[0] if rest else node.kwargs.get("keepdim", False)
        values = importer.emit(value(data, axis=axis, keepdims=keeps))
        places = importer.emit(place(data, axis=axis, keepdims=keeps))
        return importer.emit(relax.Tuple([values, places]))

    return rule


def _elu(importer: Any, node: Node) -> relax.Var:
    """``elu`` with its scales, which make it ``selu`` and ``celu``."""
    data, *rest = importer.retrieve_args(node)
    given = dict(zip(("alpha", "scale", "input_scale"), rest, strict=False)) | dict(node.kwargs)
    alpha, scale, input_scale = (
        relax.const(float(given.get(name, 1.0)), data.ty.dtype) for name in ("alpha", "scale", "input_scale")
    )
    zero, one = relax.const(0.0, data.ty.dtype), relax.const(1.0, data.ty.dtype)
    curve = relax.op.multiply(
        alpha, relax.op.subtract(relax.op.exp(relax.op.multiply(data, input_scale)), one)
    )
    unscaled = relax.op.where(relax.op.greater(data, zero), data, curve)
    return importer.emit(relax.op.multiply(scale, unscaled))


REDUCTIONS: dict[str, Converter] = {
    "amax.default": _reduce(relax.op.max),
    "amin.default": _reduce(relax.op.min),
    "elu.default": _elu,
    "max.dim": _extreme(relax.op.max, relax.op.argmax),
    "min.dim": _extreme(relax.op.min, relax.op.argmin),
    "prod.dim_int": _reduce(relax.op.prod),
}
"""By the operators' names as the importer writes them."""
