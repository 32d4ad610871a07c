"""Hypothesis strategies for random models of a few operators.

A graph is a list of nodes that read earlier values. Values that no node reads are the outputs. Operators are
smooth, so a correct library agrees with torch up to rounding. torch's meta device infers the shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import nn

Shape = tuple[int, ...]
Draw = Callable[[st.SearchStrategy[Any]], Any]
Body = Callable[..., torch.Tensor]

FEWEST_NODES, MOST_NODES = 5, 30
_MOST_ELEMENTS = 4096
_LONGEST = 24
_HIGHEST_RANK = 4
_SIZES = st.sampled_from((1, 2, 3, 4, 7, 8, 16))

_UNARY: Mapping[str, Body] = MappingProxyType(
    {
        "celu": lambda x: F.celu(x, 0.7),
        "cos": torch.cos,
        "elu": F.elu,
        "erf": torch.erf,
        "exp": lambda x: torch.exp(-x.abs()),
        "gelu": F.gelu,
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
        "hardswish": F.hardswish,
        "leaky_relu": F.leaky_relu,
        "log": lambda x: torch.log(1 + x.abs()),
        "logsigmoid": F.logsigmoid,
        "mish": F.mish,
        "relu": F.relu,
        "sigmoid": torch.sigmoid,
        "silu": F.silu,
        "sin": torch.sin,
        "softplus": F.softplus,
        "sqrt": lambda x: torch.sqrt(1 + x * x),
        "tanh": torch.tanh,
    }
)
_BINARY: Mapping[str, Body] = MappingProxyType(
    {
        "add": torch.add,
        "divide": lambda x, y: x / (1 + y.abs()),
        "gate": lambda x, y: torch.sigmoid(x) * torch.tanh(y),
        "maximum": torch.maximum,
        "multiply": torch.mul,
        "subtract": torch.sub,
        "where": lambda x, y: torch.where(x > 0.5, x, y.tanh()),
    }
)
_OVER_ONE_AXIS: Mapping[str, Body] = MappingProxyType(
    {
        "amax": torch.amax,
        "cumsum": torch.cumsum,
        "flip": lambda x, axis: x.flip(axis),
        "last": lambda x, axis: x.select(axis, -1),
        "mean": torch.mean,
        "mean_kept": lambda x, axis: x.mean(axis, keepdim=True),
        "reversed_last": lambda x, axis: x.flip(axis).select(axis, 0),
        "roll": lambda x, axis: x.roll(1, axis),
        "second_half": lambda x, axis: x.chunk(2, axis)[-1],
        "softmax": torch.softmax,
        "sum": torch.sum,
        "swapped_halves": lambda x, axis: torch.cat(x.chunk(2, axis)[::-1], axis),
        "twice": lambda x, axis: torch.cat([x, x.tanh()], axis),
        "unsqueeze": torch.unsqueeze,
        "without_first": lambda x, axis: x.narrow(axis, 1, x.shape[axis] - 1),
        "every_other": lambda x, axis: x.index_select(axis, torch.arange(0, x.shape[axis], 2)),
    }
)
_PLAIN: Mapping[str, Body] = MappingProxyType(
    {
        "flatten": lambda x: x.flatten(1),
        "pad": lambda x: F.pad(x, (1, 2)),
        "square_sum": lambda x: (x * x).sum(-1, keepdim=True),
    }
)
_RECURRENT = MappingProxyType({"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN})


@dataclass(frozen=True)
class Node:
    """One operator: the indices of the values it reads, and its constants."""

    operator: str
    reads: tuple[int, ...]
    constants: tuple[int, ...] = ()


@dataclass(frozen=True)
class Graph:
    """A model: value 0 is the input, value ``i + 1`` is the result of node ``i``."""

    shape: Shape
    nodes: tuple[Node, ...]


class GraphModel(nn.Module):
    """A graph as a module, with weights from torch's generator."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.layers = nn.ModuleDict()
        for index, node in enumerate(graph.nodes):
            layer = _layer(node)
            if layer is not None:
                self.layers[str(index)] = layer

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = [x]
        for index, node in enumerate(self.graph.nodes):
            values.append(_computed(node, self._layer_of(index), [values[read] for read in node.reads]))
        used = {read for node in self.graph.nodes for read in node.reads}
        return tuple(value for index, value in enumerate(values) if index not in used)

    def _layer_of(self, index: int) -> nn.Module | None:
        return dict(self.layers.items()).get(str(index))


@st.composite
def graphs(draw: Draw) -> Graph:
    """Draw graphs of ``FEWEST_NODES`` to ``MOST_NODES`` nodes with one float32 input of rank 2 to 4."""
    shape = tuple(draw(st.lists(_SIZES, min_size=2, max_size=_HIGHEST_RANK)))
    count = draw(st.integers(FEWEST_NODES, MOST_NODES))
    nodes: list[Node] = []
    values = [torch.empty(shape, device="meta")]
    while len(nodes) < count:
        node = draw(st.sampled_from(_KINDS))(draw, values)
        value = _shaped(node, values) if node is not None else None
        if node is None or value is None:
            node = Node(draw(st.sampled_from(sorted(_UNARY))), (len(values) - 1,))
            value = values[-1]
        nodes.append(node)
        values.append(value)
    return Graph(shape, tuple(nodes))


def _shaped(node: Node, values: list[torch.Tensor]) -> torch.Tensor | None:
    """A node's result on the meta device; None if torch rejects it or it is too large."""
    layer = _layer(node)
    try:
        value = _computed(node, layer.to("meta") if layer else None, [values[read] for read in node.reads])
    except (RuntimeError, IndexError, ValueError):
        return None
    small = 0 < prod(value.shape) <= _MOST_ELEMENTS and 1 <= value.ndim <= _HIGHEST_RANK
    return value if small else None


def _computed(node: Node, layer: nn.Module | None, reads: list[torch.Tensor]) -> torch.Tensor:
    if layer is not None:
        result = layer(*reads)
        return result[0] if node.operator in _RECURRENT else result
    return _bodies()[node.operator](*reads, *node.constants)


def _bodies() -> Mapping[str, Body]:
    return {
        **_UNARY,
        **_BINARY,
        **_OVER_ONE_AXIS,
        **_PLAIN,
        "cat": lambda x, y, axis: torch.cat([x, y], axis),
        "matmul": lambda x, y: x @ y.transpose(-1, -2),
        "permute": lambda x, *order: x.permute(order),
        "slice": lambda x, axis, start, end, step: x[(slice(None),) * axis + (slice(start, end, step),)],
        "stack": lambda x, y, axis: torch.stack([x, y], axis),
        "steps": _steps,
        "view": lambda x, *shape: x.reshape(shape),
    }


def _steps(x: torch.Tensor, axis: int) -> torch.Tensor:
    """An unrolled recurrence."""
    state, states = x.select(axis, 0), []
    for index in range(x.shape[axis]):
        state = torch.tanh(state * 0.5 + x.select(axis, index))
        states.append(state)
    return torch.stack(states, axis)


def _layer(node: Node) -> nn.Module | None:
    if node.operator in _RECURRENT:
        features, hidden = node.constants
        return _RECURRENT[node.operator](features, hidden, batch_first=True)
    if node.operator == "linear":
        return nn.Linear(*node.constants)
    if node.operator == "layer_norm":
        return nn.LayerNorm(node.constants)
    if node.operator == "convolution":
        channels, filters = node.constants
        return nn.Conv2d(channels, filters, 3, padding=1)
    return None


def _unary(draw: Draw, values: list[torch.Tensor]) -> Node:
    return Node(draw(st.sampled_from(sorted(_UNARY))), (_read(draw, values),))


def _binary(draw: Draw, values: list[torch.Tensor]) -> Node:
    return Node(
        draw(st.sampled_from(sorted({*_BINARY, "matmul"}))), (_read(draw, values), _read(draw, values))
    )


def _over_one_axis(draw: Draw, values: list[torch.Tensor]) -> Node:
    read = _read(draw, values)
    return Node(draw(st.sampled_from(sorted(_OVER_ONE_AXIS))), (read,), (_axis(draw, values[read]),))


def _plain(draw: Draw, values: list[torch.Tensor]) -> Node:
    return Node(draw(st.sampled_from(sorted(_PLAIN))), (_read(draw, values),))


def _join(draw: Draw, values: list[torch.Tensor]) -> Node:
    first, second = _read(draw, values), _read(draw, values)
    return Node(draw(st.sampled_from(("cat", "stack"))), (first, second), (_axis(draw, values[first]),))


def _slice(draw: Draw, values: list[torch.Tensor]) -> Node:
    read = _read(draw, values)
    axis = _axis(draw, values[read])
    size = values[read].shape[axis]
    start = draw(st.integers(0, size - 1))
    return Node("slice", (read,), (axis, start, draw(st.integers(start + 1, size)), draw(st.integers(1, 2))))


def _permute(draw: Draw, values: list[torch.Tensor]) -> Node:
    read = _read(draw, values)
    return Node("permute", (read,), tuple(draw(st.permutations(range(values[read].ndim)))))


def _view(draw: Draw, values: list[torch.Tensor]) -> Node:
    read = _read(draw, values)
    first, *others = values[read].shape
    divisor = draw(st.sampled_from([size for size in (1, 2, 3, 4, 7, 8) if first % size == 0]))
    return Node("view", (read,), (divisor, -1, *others))


def _steps_node(draw: Draw, values: list[torch.Tensor]) -> Node | None:
    read = _read(draw, values)
    axis = _axis(draw, values[read])
    return Node("steps", (read,), (axis,)) if values[read].shape[axis] <= _LONGEST else None


def _weighted(draw: Draw, values: list[torch.Tensor]) -> Node | None:
    read = _read(draw, values)
    shape = values[read].shape
    kind = draw(st.sampled_from(("linear", "layer_norm", "convolution", *_RECURRENT)))
    width = draw(_SIZES)
    if kind == "layer_norm":
        return Node(kind, (read,), (shape[-1],)) if shape[-1] > 2 else None
    if kind == "convolution":
        return Node(kind, (read,), (shape[1], width)) if len(shape) == 4 else None
    if kind in _RECURRENT and not (len(shape) == 3 and shape[1] <= _LONGEST):
        return None
    return Node(kind, (read,), (shape[-1], width))


_KINDS = (_unary, _binary, _over_one_axis, _plain, _join, _slice, _permute, _view, _steps_node, _weighted)


def _read(draw: Draw, values: list[torch.Tensor]) -> int:
    """Draw a value to read, mostly a recent one, to get long chains."""
    back = draw(st.sampled_from((1, 1, 1, 2, 3, len(values))))
    return max(0, len(values) - back)


def _axis(draw: Draw, value: torch.Tensor) -> int:
    return int(draw(st.integers(0, value.ndim - 1)))
