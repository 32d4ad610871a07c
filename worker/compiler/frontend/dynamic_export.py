"""Exports graphs with dynamic sizes, and finds the step of a model that specializes one."""

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
class _DynamicSize:
    """A dynamic size of an input: its initial symbol and bounds."""

    tensor: int
    axis: int
    size: torch.SymInt
    symbol: Any
    bounds: tuple[Any, Any]


class SizeTracker:
    """Records the first step of a model after which an input's size is specialized or bounded more tightly.

    This is not part of a module, because ``torch.export`` restores the attributes of modules.
    """

    def __init__(self) -> None:
        self._sizes: tuple[_DynamicSize, ...] = ()
        self._specialized: tuple[_DynamicSize, SourcePlace] | None = None

    def begin(self, inputs: Sequence[object]) -> None:
        """Start a run with the model's inputs."""
        self._specialized = None
        self._sizes = tuple(
            _DynamicSize(index, axis, size, size.node.expr, _bounds(size, size.node.expr))
            for index, tensor in enumerate(inputs)
            if isinstance(tensor, torch.Tensor)
            for axis, size in enumerate(tensor.shape)
            if isinstance(size, torch.SymInt)
        )

    def after(self, place: Callable[[], SourcePlace]) -> None:
        """Check the sizes after a step, whether or not it succeeded."""
        if self._specialized is None:
            specialized = next((entry for entry in self._sizes if _is_specialized(entry)), None)
            self._specialized = None if specialized is None else (specialized, place())

    def refusal(self, error: Exception, dynamic_shapes: TorchDynamicShapes) -> JobError:
        """``dynamic-shapes-unsupported`` with the dimension and the step that specialized it."""
        if isinstance(error, JobError):
            return error
        if self._specialized is None:
            return failure_of(ErrorCode.DYNAMIC_SHAPES_UNSUPPORTED, error, _torch_reason(error))
        entry, place = self._specialized
        name = dynamic_shapes[entry.tensor][entry.axis].__name__
        detail = f"'{name}' cannot stay dynamic: {place} {self._became(entry, dynamic_shapes)}"
        return failure_of(ErrorCode.DYNAMIC_SHAPES_UNSUPPORTED, error, detail, (place,))

    def _became(self, entry: _DynamicSize, dynamic_shapes: TorchDynamicShapes) -> str:
        expression = entry.size.node.expr
        if expression.is_number:
            fixed = f"fixes it at {expression}, a constant in the model or its trace"
            return f"{fixed}: read the size from a shape there"
        if expression == entry.symbol:
            low, high = _bounds(entry.size, entry.symbol)
            return f"accepts only {low} to {high}: narrow its range"
        others = [other for other in self._sizes if other.symbol in expression.free_symbols]
        names = {dynamic_shapes[other.tensor][other.axis].__name__ for other in others}
        return f"makes it depend on {', '.join(sorted(map(repr, names)))}: give both one name"


def export_graph(
    graph_module: fx.GraphModule, inputs: tuple[torch.Tensor, ...], dynamic_shapes: TorchDynamicShapes | None
) -> ExportedProgram:
    """Export a graph module for inputs of these shapes and dtypes.

    Raises:
        JobError: ``dynamic-shapes-unsupported`` if a size cannot stay dynamic; the detail says which.
        Exception: without dynamic sizes, any error of ``torch.export.export``.
    """
    if dynamic_shapes is None:
        return export_flat(graph_module, inputs)
    try:
        return export_flat(graph_module, inputs, dynamic_shapes)
    except Exception as error:
        raise _tracked(graph_module, inputs, dynamic_shapes).refusal(error, dynamic_shapes) from error


def _tracked(
    graph_module: fx.GraphModule, inputs: tuple[torch.Tensor, ...], dynamic_shapes: TorchDynamicShapes
) -> SizeTracker:
    """Repeat a failed export node by node, with a tracker."""
    tracker = SizeTracker()
    try:
        export_flat(_ByNode(graph_module, tracker), inputs, dynamic_shapes)
    except Exception:
        return tracker
    return tracker


class _ByNode(nn.Module):
    def __init__(self, graph_module: fx.GraphModule, tracker: SizeTracker) -> None:
        super().__init__()
        self._graph_module = graph_module
        self._tracker = tracker

    def forward(self, *inputs: torch.Tensor) -> object:
        self._tracker.begin(inputs)
        return _TrackingInterpreter(self._graph_module, self._tracker).run(*inputs)


class _TrackingInterpreter(fx.Interpreter):
    def __init__(self, graph_module: fx.GraphModule, tracker: SizeTracker) -> None:
        super().__init__(graph_module)
        self._tracker = tracker

    def run_node(self, n: fx.Node) -> object:
        try:
            return super().run_node(n)
        finally:
            self._tracker.after(lambda: node_place(n))


def _is_specialized(entry: _DynamicSize) -> bool:
    expression = entry.size.node.expr
    return expression != entry.symbol or _bounds(entry.size, entry.symbol) != entry.bounds


def _bounds(size: torch.SymInt, symbol: Any) -> tuple[Any, Any]:
    limits = size.node.shape_env.var_to_range.get(symbol)
    return (None, None) if limits is None else (limits.lower, limits.upper)


def _torch_reason(error: Exception) -> str:
    """torch's list of violated constraints, or its whole message if it has no list."""
    listed = [line.removeprefix("  - ") for line in str(error).splitlines() if line.startswith("  - ")]
    return " ".join(listed)[:600] or short_message(error)
