"""A model's outputs: a flat tuple of tensors, and their names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import TensorArgument
from torch.utils import _pytree as pytree
from torch.utils._pytree import TreeSpec

from bessemer.contract.problem import ErrorCode
from bessemer.contract.structure import Structure, TensorLeaf
from worker.compiler.frontend.structures import (
    LeafPath,
    Wrapper,
    as_constant,
    leaf_paths,
    structure_of,
    wrappers,
)
from worker.compiler.torch_costs import linear_torch
from worker.errors import JobError

TorchDynamicShapes = tuple[dict[int, Any], ...]
"""torch's dimensions by axis for each input, as ``torch.export.export`` takes them."""


def flatten_outputs(result: object) -> tuple[torch.Tensor, ...]:
    """The tensors of a model's result, in pytree order, without None, numbers, booleans and texts.

    Raises:
        JobError: ``model-signature-unsupported`` if a leaf is not a tensor, or the result has no tensor.
    """
    leaves = [leaf for leaf in pytree.tree_leaves(result) if as_constant(leaf) is None]
    for index, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor):
            detail = f"output {index} is not a tensor but {type(leaf).__name__} {str(leaf)[:80]!r}"
            raise JobError(ErrorCode.MODEL_SIGNATURE_UNSUPPORTED, detail)
    if not leaves:
        raise JobError(ErrorCode.MODEL_SIGNATURE_UNSUPPORTED, "the model returns no tensor")
    return tuple(leaves)


class FlatModule(Wrapper):
    """Calls a module and returns the flat tuple of its tensors."""

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The tensors of the module's result."""
        return flatten_outputs(self.module(*inputs))


def export_flat(
    module: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    dynamic_shapes: TorchDynamicShapes | None = None,
) -> ExportedProgram:
    """Export a module as a program that returns only tensors, without the constants among its outputs.

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
        program = torch.export.export(module, inputs, dynamic_shapes=shapes, strict=False)
    _name_as_in_model(program, module)
    return program


def _name_as_in_model(program: ExportedProgram, module: torch.nn.Module) -> None:
    """Remove our wrappers from the names of tensors and the paths of modules."""
    prefix = "module." * sum(1 for _ in wrappers(module))

    def shorter(named: Mapping[str, Any]) -> dict[str, Any]:
        return {name.removeprefix(prefix): value for name, value in named.items()}

    signature = program.graph_signature
    for spec in (*signature.input_specs, *signature.output_specs):
        spec.target = spec.target and spec.target.removeprefix(prefix)
    program._state_dict, program._constants = shorter(program.state_dict), shorter(program.constants)


MAX_LENGTH = 128
UNNAMED = "output"
_UNSAFE = re.compile(r"[^A-Za-z0-9_.]")


def describe_outputs(structure: TreeSpec, leaves: Sequence[object]) -> tuple[tuple[str, ...], Structure]:
    """The names of a result's tensors, and the structure of the result.

    Args:
        structure: the structure of the result.
        leaves: its leaves in pytree order; None, numbers, booleans and texts are constants.
    """
    constants = list(map(as_constant, leaves))
    names = output_names(structure, [constant is None for constant in constants])
    tensors = iter(names)
    described = (constant or TensorLeaf(tensor=next(tensors)) for constant in constants)
    return names, structure_of(structure, described)


def output_names(structure: TreeSpec, present: Sequence[bool]) -> tuple[str, ...]:
    """The names of the leaves that are tensors.

    A leaf's name joins the keys and fields on its path with dots. A name that would begin with a position
    begins with ``output_``. If no output has a key or field, the names are ``output``, or ``output_0``,
    ``output_1``, and so on.

    Args:
        structure: the structure of the result.
        present: for each leaf in order, whether it is a tensor.
    """
    paths = [path for path, is_output in zip(leaf_paths(structure), present, strict=True) if is_output]
    if all(isinstance(part, int) for path in paths for part in path):
        return counted_names(len(paths))
    return distinct_names(_joined(path, place, UNNAMED) for place, path in enumerate(paths))


def input_names(paths: Iterable[LeafPath]) -> tuple[str, ...]:
    """The names of the leaves of arguments, whose paths begin with the arguments' names."""
    return distinct_names(_joined(path, place, "input") for place, path in enumerate(paths))


def counted_names(count: int) -> tuple[str, ...]:
    """``output``, or ``output_0``, ``output_1``, … for several outputs."""
    return (UNNAMED,) if count == 1 else tuple(f"{UNNAMED}_{index}" for index in range(count))


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


def _joined(path: LeafPath, place: int, unnamed: str) -> str:
    """A name that is safe in a URL, a file name, a C++ comment and a command-line argument."""
    name = ".".join(_UNSAFE.sub("_", str(part)[:MAX_LENGTH]) or "_" for part in path)
    if not re.search(r"[A-Za-z0-9]", name):
        name = str(place)
    if not re.match(r"[A-Za-z_]", name):
        name = f"{unnamed}_{name.lstrip('.')}"
    return name[:MAX_LENGTH]
