"""A model's outputs: a flat tuple of tensors, and their names."""

from __future__ import annotations

import inspect
import re
from collections import defaultdict, namedtuple
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import TensorArgument
from torch.utils import _pytree as pytree
from torch.utils._pytree import TreeSpec

from bessemer.contract.problem import ErrorCode
from worker.compiler.torch_costs import linear_torch
from worker.errors import JobError

TorchDynamicShapes = tuple[dict[int, Any], ...]
"""torch's dimensions by axis for each input, as ``torch.export.export`` takes them."""


def flatten_outputs(result: object) -> tuple[torch.Tensor, ...]:
    """The tensors of a model's result, in pytree order. ``None`` is left out.

    Raises:
        JobError: ``model-signature-unsupported`` if a leaf is not a tensor, or the result has no tensor.
    """
    leaves = [leaf for leaf in pytree.tree_leaves(result) if leaf is not None]
    for index, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor):
            detail = f"output {index} is not a tensor but {type(leaf).__name__} {str(leaf)[:80]!r}"
            raise JobError(ErrorCode.MODEL_SIGNATURE_UNSUPPORTED, detail)
    if not leaves:
        raise JobError(ErrorCode.MODEL_SIGNATURE_UNSUPPORTED, "the model returns no tensor")
    return tuple(leaves)


class FlatModule(torch.nn.Module):
    """Calls a module and returns the flat tuple of its tensors."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The tensors of the module's result."""
        return flatten_outputs(self.module(*inputs))


def export_flat(
    module: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    dynamic_shapes: TorchDynamicShapes | None = None,
) -> ExportedProgram:
    """Export a module as a program that returns only tensors. ``None`` among its outputs is left out.

    Args:
        module: takes ``inputs`` as positional arguments.
        inputs: examples.
        dynamic_shapes: dynamic dimensions; None fixes all sizes.

    Raises:
        Exception: any error of ``torch.export.export``.
    """
    program = _export(module, inputs, dynamic_shapes)
    return program if returns_tensors_only(program) else _export(FlatModule(module), inputs, dynamic_shapes)


def returns_tensors_only(program: ExportedProgram) -> bool:
    """Whether every output of the program is a tensor."""
    return all(isinstance(spec.arg, TensorArgument) for spec in program.graph_signature.output_specs)


def _export(
    module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], dynamic_shapes: TorchDynamicShapes | None
) -> ExportedProgram:
    parameters = inspect.signature(module.forward).parameters.values()
    in_one = any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters)
    shapes = (dynamic_shapes,) if in_one and dynamic_shapes is not None else dynamic_shapes
    with linear_torch():
        return torch.export.export(module, inputs, dynamic_shapes=shapes, strict=False)


MAX_LENGTH = 128
UNNAMED = "output"
_UNSAFE = re.compile(r"[^A-Za-z0-9_.]")

LeafPath = tuple[int | str, ...]
"""The path from the result to a leaf: positions in sequences, and the text of keys and fields."""


def output_names(structure: TreeSpec, present: Sequence[bool]) -> tuple[str, ...]:
    """The names of the leaves that are tensors.

    A leaf's name joins the keys and fields on its path with dots. A name that would begin with a position
    begins with ``output_``. If no output has a key or field, the names are ``output``, or ``output_0``,
    ``output_1``, and so on.

    Args:
        structure: the structure of the result.
        present: for each leaf in order, whether it is an output; None is not.
    """
    paths = [path for path, is_output in zip(leaf_paths(structure), present, strict=True) if is_output]
    if all(isinstance(part, int) for path in paths for part in path):
        return counted_names(len(paths))
    return distinct_names(_joined(path, place) for place, path in enumerate(paths))


def counted_names(count: int) -> tuple[str, ...]:
    """``output``, or ``output_0``, ``output_1``, … for several outputs."""
    return (UNNAMED,) if count == 1 else tuple(f"{UNNAMED}_{index}" for index in range(count))


def leaf_paths(structure: TreeSpec) -> Iterator[LeafPath]:
    """The path of every leaf, in pytree order."""
    if structure.is_leaf():
        yield ()
        return
    for key, child in zip(_keys(structure), structure.children(), strict=True):
        yield from ((key, *path) for path in leaf_paths(child))


def distinct_names(names: Iterable[str]) -> tuple[str, ...]:
    """The names, with a number appended to each that is already taken."""
    wanted = tuple(names)
    others, taken, found = frozenset(wanted), set[str](), []
    for name in wanted:
        chosen, number = name, 1
        while chosen in taken or (number > 1 and chosen in others):
            number += 1
            suffix = f"_{number}"
            chosen = name[: MAX_LENGTH - len(suffix)] + suffix
        taken.add(chosen)
        found.append(chosen)
    return tuple(found)


def _joined(path: LeafPath, place: int) -> str:
    """A name that is safe in a URL, a file name, a C++ comment and a command-line argument."""
    name = ".".join(_UNSAFE.sub("_", str(part)[:MAX_LENGTH]) or "_" for part in path)
    if not re.search(r"[A-Za-z0-9]", name):
        name = str(place)
    if not re.match(r"[A-Za-z_]", name):
        name = f"{UNNAMED}_{name.lstrip('.')}"
    return name[:MAX_LENGTH]


def _keys(structure: TreeSpec) -> Sequence[int | str]:
    """The key or field of each child, or its position if it has neither."""
    names, count = _names(structure), structure.num_children
    return [str(name) for name in names] if len(names) == count else range(count)


def _names(structure: TreeSpec) -> Sequence[object]:
    kind, context = structure.type, structure.context
    if kind is namedtuple:
        return context._fields
    if kind is defaultdict:
        return context[1]
    if issubclass(kind, dict):
        return context
    return _fields(context, structure.num_children) or getattr(kind, "__match_args__", ())


def _fields(context: object, count: int) -> Sequence[str]:
    """The fields of a registered class: its context, or the context's first element as for dataclasses."""
    given = context if isinstance(context, list | tuple) else ()
    for names in (given, *given[:1]):
        if isinstance(names, list | tuple) and len(names) == count and all(isinstance(n, str) for n in names):
            return names
    return ()
