"""Sees which step of a model settles a size that is to stay open, while ``torch.export`` runs the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.export import ExportedProgram

from bessemer.contract.problem import ErrorCode, SourcePlace
from worker.compiler.frontend.model_errors import node_place
from worker.compiler.frontend.outputs import TorchDynamicShapes, export_flat
from worker.errors import JobError, failure_of, short_message


@dataclass(frozen=True)
class _Open:
    """An input's size: the symbol that it began as, and the smallest and the largest that it could be."""

    tensor: int
    axis: int
    size: torch.SymInt
    symbol: Any
    bounds: tuple[Any, Any]


class SizeTracker:
    """Told of a model's steps, it keeps the first one after which an input's size was less open than before.

    An object of its own: ``torch.export`` puts the attributes of modules back as they were.
    """

    def __init__(self) -> None:
        self._open: tuple[_Open, ...] = ()
        self._settled: tuple[_Open, SourcePlace] | None = None

    def begin(self, inputs: Sequence[object]) -> None:
        """Start with the model's inputs."""
        self._settled = None
        self._open = tuple(
            _Open(index, axis, size, size.node.expr, _bounds(size, size.node.expr))
            for index, tensor in enumerate(inputs)
            if isinstance(tensor, torch.Tensor)
            for axis, size in enumerate(tensor.shape)
            if isinstance(size, torch.SymInt)
        )

    def after(self, place: Callable[[], SourcePlace]) -> None:
        """A step was taken, successfully or not."""
        if self._settled is None:
            settled = next((entry for entry in self._open if _is_settled(entry)), None)
            self._settled = None if settled is None else (settled, place())

    def refusal(self, error: Exception, dynamic_shapes: TorchDynamicShapes) -> JobError:
        """``dynamic-shapes-unsupported``: which dimension cannot stay open, and where that was settled."""
        if isinstance(error, JobError):
            return error
        if self._settled is None:
            return failure_of(ErrorCode.DYNAMIC_SHAPES_UNSUPPORTED, error, _torch_reason(error))
        entry, place = self._settled
        name = dynamic_shapes[entry.tensor][entry.axis].__name__
        detail = f"'{name}' cannot stay open: {place} {self._became(entry, dynamic_shapes)}"
        return failure_of(ErrorCode.DYNAMIC_SHAPES_UNSUPPORTED, error, detail, (place,))

    def _became(self, entry: _Open, dynamic_shapes: TorchDynamicShapes) -> str:
        expression = entry.size.node.expr
        if expression.is_number:
            return f"fixes it at {expression}: the model, or the trace of it, has the number there"
        if expression == entry.symbol:
            low, high = _bounds(entry.size, entry.symbol)
            return f"takes {low} to {high} only: narrow its range"
        others = [other for other in self._open if other.symbol in expression.free_symbols]
        names = {dynamic_shapes[other.tensor][other.axis].__name__ for other in others}
        return f"needs it to follow from {', '.join(sorted(map(repr, names)))}: give both one name"


def export_graph(
    graph_module: fx.GraphModule, inputs: tuple[torch.Tensor, ...], dynamic_shapes: TorchDynamicShapes | None
) -> ExportedProgram:
    """Export a graph module for inputs of these shapes and dtypes.

    Raises:
        JobError: ``dynamic-shapes-unsupported`` where a size cannot stay open; the detail says which.
        Exception: where none is to, whatever ``torch.export.export`` raises.
    """
    if dynamic_shapes is None:
        return export_flat(graph_module, inputs)
    try:
        return export_flat(graph_module, inputs, dynamic_shapes)
    except Exception as error:
        raise _watched(graph_module, inputs, dynamic_shapes).refusal(error, dynamic_shapes) from error


def _watched(
    graph_module: fx.GraphModule, inputs: tuple[torch.Tensor, ...], dynamic_shapes: TorchDynamicShapes
) -> SizeTracker:
    """What a watch sees where the same export fails once more, node by node."""
    watch = SizeTracker()
    try:
        export_flat(_ByNode(graph_module, watch), inputs, dynamic_shapes)
    except Exception:
        return watch
    return watch


class _ByNode(nn.Module):
    def __init__(self, graph_module: fx.GraphModule, watch: SizeTracker) -> None:
        super().__init__()
        self._graph_module = graph_module
        self._watch = watch

    def forward(self, *inputs: torch.Tensor) -> object:
        self._watch.begin(inputs)
        return _Watching(self._graph_module, self._watch).run(*inputs)


class _Watching(fx.Interpreter):
    def __init__(self, graph_module: fx.GraphModule, watch: SizeTracker) -> None:
        super().__init__(graph_module)
        self._watch = watch

    def run_node(self, n: fx.Node) -> object:
        try:
            return super().run_node(n)
        finally:
            self._watch.after(lambda: node_place(n))


def _is_settled(entry: _Open) -> bool:
    expression = entry.size.node.expr
    return expression != entry.symbol or _bounds(entry.size, entry.symbol) != entry.bounds


def _bounds(size: torch.SymInt, symbol: Any) -> tuple[Any, Any]:
    limits = size.node.shape_env.var_to_range.get(symbol)
    return (None, None) if limits is None else (limits.lower, limits.upper)


def _torch_reason(error: Exception) -> str:
    """What torch says of the constraints; its whole message where it says something else."""
    listed = [line.removeprefix("  - ") for line in str(error).splitlines() if line.startswith("  - ")]
    return " ".join(listed)[:600] or short_message(error)
