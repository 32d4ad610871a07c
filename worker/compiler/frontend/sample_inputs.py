"""Random inputs for models without sample inputs, and the memory that inputs need."""

from __future__ import annotations

import math
import resource
from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from bessemer.contract.problem import ErrorCode
from bessemer.contract.tensor import TensorSpec
from worker.compiler.packed_recurrence import PACKED_LAYERS
from worker.errors import JobError

UNKNOWN_LIMIT = 2
"""The upper limit of random integers that are not known to index a table."""

# Operators that only move or copy the elements of their first argument.
MOVES = {
    "view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "expand", "transpose", "permute", "t", "slice",
    "select", "flatten", "unflatten", "clone", "contiguous", "to", "_to_copy", "alias", "detach", "type_as",
    "split", "chunk", "unbind", "cat", "stack", "lift_fresh_copy",
}  # fmt: skip
# Reads and writes by index: the position of the table, of the axis (None: the first), and of the indices.
LOOKUPS: dict[str, tuple[int, int | None, int]] = {
    "embedding": (0, None, 1),
    "embedding_bag": (0, None, 1),
    "index_select": (0, 1, 2),
    "gather": (0, 1, 2),
    "index": (0, None, 1),
    "index_put": (0, None, 1),
    **dict.fromkeys(("index_add", "index_copy", "index_fill"), (0, 1, 2)),
    **dict.fromkeys(("scatter", "scatter_add", "scatter_reduce"), (0, 1, 2)),
}


@dataclass(frozen=True)
class Offsets:
    """An input that holds the beginnings of bags among ``length`` indices, and their end if ``has_end``."""

    length: int
    has_end: bool

    def draw(self, spec: TensorSpec, _generator: torch.Generator) -> torch.Tensor:
        """Bags of about the same size."""
        bags = max(spec.shape[0] - self.has_end, 1)
        return (torch.arange(spec.shape[0]) * self.length // bags).to(getattr(torch, spec.dtype.value))


@dataclass(frozen=True)
class Lengths:
    """An input that holds the lengths of sequences of up to ``steps`` steps."""

    steps: int

    def draw(self, spec: TensorSpec, generator: torch.Generator) -> torch.Tensor:
        """The longest first, as torch takes sequences that nothing sorts."""
        lengths = torch.randint(1, self.steps + 1, spec.shape, generator=generator)
        lengths[:1] = self.steps
        return lengths.sort(descending=True)[0].to(getattr(torch, spec.dtype.value))


Limits = dict[str, int | Offsets | Lengths]
"""What the numbers of inputs must keep to, by name: an exclusive upper limit, or the form of offsets or
lengths."""


def random_inputs(specs: tuple[TensorSpec, ...], limits: Limits, seed: int) -> tuple[torch.Tensor, ...]:
    """Seeded random inputs: floats and complex numbers from N(0, 1), integers from 0 up to their limit, and
    random booleans.

    Args:
        specs: the inputs.
        limits: limits of integer inputs; the default is ``UNKNOWN_LIMIT``. Floats with a limit are uniform
            from 0.
        seed: seed of the one generator that draws all inputs, in order.
    """
    generator = torch.Generator().manual_seed(seed)
    return tuple(_draw(spec, limits.get(spec.name), generator) for spec in specs)


def _draw(
    spec: TensorSpec, limit: int | Offsets | Lengths | None, generator: torch.Generator
) -> torch.Tensor:
    if isinstance(limit, Offsets | Lengths):
        return limit.draw(spec, generator)
    dtype = getattr(torch, spec.dtype.value)
    if spec.dtype.is_complex:
        return torch.randn(spec.shape, generator=generator, dtype=dtype)
    if spec.dtype.is_float and limit is not None:
        return (torch.rand(spec.shape, generator=generator) * limit).to(dtype)
    if spec.dtype.is_float:
        return torch.randn(spec.shape, generator=generator, dtype=torch.float32).to(dtype)
    if dtype == torch.bool:
        return torch.randint(2, spec.shape, generator=generator, dtype=torch.int64).bool()
    highest = min(UNKNOWN_LIMIT if limit is None else limit, torch.iinfo(dtype).max)
    return torch.randint(highest, spec.shape, generator=generator, dtype=torch.int64).to(dtype)


def index_limits(program: ExportedProgram, specs: tuple[TensorSpec, ...]) -> Limits:
    """The size of the smallest table that each integer input indexes, and the inputs that are offsets or
    lengths.

    Inputs are followed through operators that only move their elements.
    """
    user_inputs = [
        spec.arg.name for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT
    ]
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    found = {
        spec.name: _limits(placeholders[name])
        for name, spec in zip(user_inputs, specs, strict=True)
        if not (spec.dtype.is_float or spec.dtype.is_complex)
    }
    return {name: min(sizes) for name, sizes in found.items() if sizes} | {
        spec.name: form
        for name, spec in zip(user_inputs, specs, strict=True)
        if (form := _offsets(placeholders[name]) or _lengths(placeholders[name])) is not None
    }


def _offsets(given: torch.fx.Node) -> Offsets | None:
    for user in given.users:
        if _name(user) == "embedding_bag" and user.args[2] is given:
            length, has_end = user.args[1].meta["val"].shape[0], len(user.args) > 7 and bool(user.args[7])
            return Offsets(length, has_end) if isinstance(length, int) else None
    return None


def _lengths(given: torch.fx.Node) -> Lengths | None:
    layers = [
        user
        for node in _moved(given, (*MOVES, "clamp", "sort"))
        for user in node.users
        if user.target in PACKED_LAYERS.values() and user.args[-1] is node
    ]
    sizes = [_least(layer.args[0].meta["val"].shape[1 if layer.args[8] else 0]) for layer in layers]
    return Lengths(min(sizes)) if sizes else None


def _least(size: int | torch.SymInt) -> int:
    """The size, or the smallest one that it may be."""
    return size if isinstance(size, int) else int(size.node.shape_env.bound_sympy(size.node.expr).lower)


def _limits(start: torch.fx.Node) -> list[int]:
    return [size for node in _moved(start, MOVES) for user in node.users for size in _looked_up(user, node)]


def _moved(start: torch.fx.Node, operators: Collection[str]) -> list[torch.fx.Node]:
    """An input, and what operators that only move its elements make of it."""
    reached = [start]
    for node in reached:
        for user in node.users:
            if user not in reached and _name(user) in (*operators, "getitem"):
                reached.append(user)
    return reached


def _looked_up(user: torch.fx.Node, indices: torch.fx.Node) -> list[int]:
    if _name(user) not in LOOKUPS:
        return []
    table_at, axis_at, indices_at = LOOKUPS[_name(user)]
    shape = user.args[table_at].meta["val"].shape
    given = user.args[indices_at]
    if isinstance(given, list | tuple):
        axes = [axis for axis, index in enumerate(given) if index is indices]
    else:
        axes = [0 if axis_at is None else int(user.args[axis_at])] if given is indices else []
    return [shape[axis] for axis in axes if isinstance(shape[axis], int)]


def _name(node: torch.fx.Node) -> str:
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.name.removeprefix("aten::").removesuffix("_")
    return getattr(node.target, "__name__", "")


COPIES = 3
"""Copies of each input at one time: the drawn tensor, the model's tensor, and the library's array."""

_MEBIBYTE = 1 << 20


def data_limit_bytes() -> int | None:
    """The memory limit of this process, or None."""
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return None if limit == resource.RLIM_INFINITY else limit


def refuse_oversized(specs: tuple[TensorSpec, ...], limit_bytes: int | None) -> None:
    """Refuse inputs that do not fit into memory.

    Raises:
        JobError: ``limit-memory`` with the estimate and the largest input.
    """
    needed_bytes = COPIES * sum(map(input_bytes, specs))
    if limit_bytes is None or needed_bytes <= limit_bytes:
        return
    largest = max(specs, key=input_bytes)
    raise JobError(
        ErrorCode.LIMIT_MEMORY,
        f"the inputs alone need {needed_bytes // _MEBIBYTE} MiB ({COPIES} copies) of "
        f"{limit_bytes // _MEBIBYTE} MiB; the largest is {largest}",
    )


def input_bytes(spec: TensorSpec) -> int:
    """The size of a tensor in bytes."""
    return math.prod(spec.shape) * spec.dtype.size_bytes
