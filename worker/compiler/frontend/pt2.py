"""Loads an exported program from a file of ``torch.export.save``."""

import json
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, TensorArgument
from torch.export.pt2_archive._package import PT2ArchiveReader, _load_exported_programs
from torch.utils import _pytree as pytree

from bessemer.contract.model import ModelFormat
from bessemer.contract.problem import ErrorCode
from worker.compiler.frontend.constants import Constants, refuse_unknown_constants
from worker.compiler.frontend.container_stand_ins import register_containers
from worker.compiler.frontend.dynamic_export import export_graph
from worker.compiler.frontend.dynamic_shapes import same_dynamic_shapes, symbolic_axes
from worker.compiler.frontend.file_format import MODEL_ENTRY
from worker.compiler.frontend.loaded_model import (
    FORWARD,
    Argument,
    DynamicExport,
    Export,
    LoadedModel,
    choose_method,
    count_elements,
    load_failed,
    refuse_empty,
    tensor_spec,
)
from worker.compiler.frontend.outputs import TorchDynamicShapes, export_flat, returns_tensors_only
from worker.compiler.frontend.unsupported_tensors import refuse_unsupported_input, refuse_unsupported_tensors
from worker.compiler.frontend.zip_archive import read_entry
from worker.compiler.torch_costs import linear_torch
from worker.compiler.values import MethodName
from worker.errors import JobError

LEGACY_ENTRY = "serialized_exported_program.json"
SAVED_NAME = "model"
MAX_MODEL_BYTES = 256 << 20


def load(path: Path, constants: Constants, method: MethodName | None = None) -> LoadedModel:
    """Load an exported program, whose file fixes the arguments that are not tensors.

    Raises:
        JobError: ``model-load-failed``, with both schema versions if they differ; ``inputs-mismatch`` if the
            file has other values than ``constants``; ``method-missing`` if it has no such program.
    """
    try:
        programs = _read_with_containers(path)
    except Exception as error:
        raise load_failed(error, _version_hint(path)) from error
    name = choose_method(tuple(sorted(programs)), method)
    _check_constants(programs[name], constants)
    others = tuple(sorted(set(programs) - {name}))
    return replace(describe(programs[name]), method=name, other_methods=others)


def _check_constants(program: ExportedProgram, constants: Constants) -> None:
    specs = program.graph_signature.input_specs
    fixed = {spec.arg.name: spec.arg.value for spec in specs if isinstance(spec.arg, ConstantArgument)}
    refuse_unknown_constants(constants, fixed)
    for name, value in constants.items():
        if value != fixed[name]:
            detail = (
                f"the file fixes the argument '{name}' at {fixed[name]!r}: export the model with {value!r}"
            )
            raise JobError(ErrorCode.INPUTS_MISMATCH, detail)


def describe(program: ExportedProgram) -> LoadedModel:
    """The loaded model of an exported program.

    Raises:
        JobError: ``model-signature-unsupported`` if an input is neither a tensor nor a constant,
            ``model-tensors-unsupported`` if an input or a parameter is quantized, sparse or 8-bit float.
    """
    refuse_unsupported_tensors((*program.state_dict.items(), *program.constants.items()))
    slots = _slots(program)
    arguments = tuple(slot for slot in slots if isinstance(slot, Argument))
    flat = _flat_module(program)
    eager = flat if len(arguments) == len(slots) else _WithConstants(flat, slots)
    is_dynamic = any(argument.symbolic_axes for argument in arguments)
    plain = eager is flat and _is_flat(program) and returns_tensors_only(program)
    return LoadedModel(
        format=ModelFormat.PT2,
        eager=eager,
        export=_exporter(program, eager, plain and not is_dynamic),
        export_dynamic=_dynamic_exporter(program, eager, plain) if is_dynamic else None,
        arguments=arguments,
        examples=_examples(program, slots),
        parameters=count_elements([*program.state_dict.values(), *program.constants.values()]),
        returns=program.call_spec.out_spec,
    )


@dataclass(frozen=True)
class _Constant:
    value: object


class _WithConstants(torch.nn.Module):
    """Calls a flat module with its tensors and constants in order."""

    def __init__(self, module: torch.nn.Module, slots: list[Argument | _Constant]) -> None:
        super().__init__()
        self.module = module
        self._slots = slots

    def forward(self, *tensors: torch.Tensor) -> object:
        """Run the module."""
        given = iter(tensors)
        return self.module(
            *(slot.value if isinstance(slot, _Constant) else next(given) for slot in self._slots)
        )


def _flat_module(program: ExportedProgram) -> torch.fx.GraphModule:
    """The program's module without guards on its inputs and without pytree handling.

    Both would add to the measured time of the eager baseline.
    """
    with linear_torch():
        module = program.module(check_guards=False)
    module._forward_pre_hooks.clear()
    module._forward_pre_hooks_with_kwargs.clear()
    module.graph.set_codegen(torch.fx.graph.CodeGen())
    module.recompile()
    return module


def _read_with_containers(path: Path) -> dict[str, ExportedProgram]:
    try:
        return _read(path)
    except Exception:
        texts = (read_entry(path, entry, MAX_MODEL_BYTES) or b"" for entry in _model_entries(path))
        registered = [register_containers(text) for text in texts]
        if not any(registered):
            raise
        return _read(path)


@linear_torch()
def _read(path: Path) -> dict[str, ExportedProgram]:
    """The programs by name; a file of ``torch.export.save`` has one, ``forward``."""
    with path.open("rb") as file:
        if _is_legacy(path):
            return {FORWARD: torch.export.load(file)}
        programs = _read_programs(file)
    return {FORWARD if name == SAVED_NAME else name: program for name, program in programs.items()}


def _read_programs(file: BinaryIO) -> dict[str, ExportedProgram]:
    """As ``load_pt2``, but without loading the libraries of AOTInductor that an archive may also have."""
    with PT2ArchiveReader(file) as archive:
        return _load_exported_programs(archive, archive.get_file_names(), None)


def _model_entries(path: Path) -> list[str]:
    if _is_legacy(path):
        return [LEGACY_ENTRY]
    names = (name.partition("/")[2] for name in zipfile.ZipFile(path).namelist())
    return [name for name in names if MODEL_ENTRY.fullmatch(name)]


def _is_legacy(path: Path) -> bool:
    return read_entry(path, LEGACY_ENTRY, 1) is not None


def _exporter(program: ExportedProgram, eager: torch.nn.Module, plain: bool) -> Export:
    """Returns the program itself if it is flat and fixed and no size is to be dynamic, else exports again."""

    def export(
        inputs: tuple[torch.Tensor, ...], dynamic_shapes: TorchDynamicShapes | None
    ) -> ExportedProgram:
        if dynamic_shapes is None and plain:
            return program
        if isinstance(eager, torch.fx.GraphModule):
            return export_graph(eager, inputs, dynamic_shapes)
        return export_flat(eager, inputs, dynamic_shapes)

    return export


def _dynamic_exporter(program: ExportedProgram, eager: torch.nn.Module, plain: bool) -> DynamicExport:
    """Returns the program itself if it is flat, else exports again with the same sizes dynamic."""
    if plain:
        return lambda inputs: program
    placeholders = _placeholders(program)
    values = [
        placeholders[spec.arg.name].meta["val"]
        for spec in program.graph_signature.input_specs
        if spec.kind == InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument)
    ]
    return lambda inputs: export_flat(eager, inputs, same_dynamic_shapes(values, program))


def _is_flat(program: ExportedProgram) -> bool:
    """Whether the program takes its tensors as positional arguments, not in containers or by keyword."""
    structure = program.call_spec.in_spec
    positions = list(range(structure.num_leaves))
    arguments, named = pytree.tree_unflatten(positions, structure)
    return list(arguments) == positions and not named


def _slots(program: ExportedProgram) -> list[Argument | _Constant]:
    placeholders = _placeholders(program)
    user_inputs = [
        spec.arg for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT
    ]
    return [_slot(argument, placeholders[argument.name], program) for argument in user_inputs]


def _placeholders(program: ExportedProgram) -> dict[str, torch.fx.Node]:
    return {node.name: node for node in program.graph.nodes if node.op == "placeholder"}


def _slot(argument: object, placeholder: torch.fx.Node, program: ExportedProgram) -> Argument | _Constant:
    if isinstance(argument, ConstantArgument):
        return _Constant(argument.value)
    value = placeholder.meta.get("val")
    if not isinstance(argument, TensorArgument) or not isinstance(value, torch.Tensor):
        detail = f"input '{placeholder.name}' is a {type(value).__name__}; only tensors are supported"
        raise JobError(ErrorCode.MODEL_SIGNATURE_UNSUPPORTED, detail)
    refuse_unsupported_input(argument.name, value)
    spec = tensor_spec(argument.name, _with_hints(value))
    refuse_empty([spec])
    symbolic = symbolic_axes(value, program)
    return Argument(argument.name, spec, frozenset(axis.axis for axis in symbolic), symbolic_axes=symbolic)


def _with_hints(value: torch.Tensor) -> torch.Tensor:
    sizes = [size if isinstance(size, int) else size.node.hint or 2 for size in value.shape]
    return torch.empty(sizes, dtype=value.dtype, device="meta")


def _examples(program: ExportedProgram, slots: list[Argument | _Constant]) -> tuple[torch.Tensor, ...] | None:
    if program.example_inputs is None:
        return None
    leaves = zip(pytree.tree_leaves(program.example_inputs), slots, strict=True)
    tensors = [leaf for leaf, slot in leaves if isinstance(slot, Argument)]
    if not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        return None
    return tuple(tensor.detach() for tensor in tensors)


def _version_hint(path: Path) -> str:
    from torch._export.serde.schema import SCHEMA_VERSION

    supported = ".".join(map(str, SCHEMA_VERSION))
    found, writer = _versions(path)
    if found == supported:
        return ""
    here = f"this worker {supported} (torch {torch.__version__})"
    return f"the file has export schema {found} (torch {writer}), {here}: "


def _versions(path: Path) -> tuple[str, str]:
    """The schema version of the file, and the torch version that wrote it."""
    if _is_legacy(path):
        return (read_entry(path, "version", 20) or b"").decode("utf-8", "replace"), "2.7 or older"
    try:
        model = json.loads(read_entry(path, _model_entries(path)[0], MAX_MODEL_BYTES) or b"")
        version = model["schema_version"]
        return f"{version['major']}.{version['minor']}", str(model.get("torch_version", "unknown"))[:20]
    except (ValueError, IndexError, KeyError, TypeError, RecursionError):
        return "unknown", "unknown"
