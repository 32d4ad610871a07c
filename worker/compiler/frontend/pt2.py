"""Loads an exported program from a file of ``torch.export.save``."""

import io
import json
import pickle
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch._export.utils import _get_shape_env_from_gm
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.export.pt2_archive._package import PT2ArchiveReader, _load_exported_programs
from torch.export.pt2_archive.constants import SAMPLE_INPUTS_DIR, SAMPLE_INPUTS_FILENAME_FORMAT
from torch.utils import _pytree as pytree
from torch.utils._pytree import TreeSpec

import worker.compiler.quantized_operators  # noqa: F401 - defines operators of files
from bessemer.contract.model import ModelFormat
from bessemer.contract.problem import ErrorCode
from bessemer.contract.structure import (
    ArgumentStructure,
    CallStructure,
    ConstantLeaf,
    Structure,
    TensorLeaf,
)
from worker.compiler.frontend.constants import Constants, refuse_unknown_constants
from worker.compiler.frontend.container_stand_ins import read_samples, register_containers, sample_leaves
from worker.compiler.frontend.custom_operators import refuse_unknown_operators
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
from worker.compiler.frontend.outputs import (
    TorchDynamicShapes,
    describe_outputs,
    export_flat,
    input_names,
    returns_tensors_only,
)
from worker.compiler.frontend.structures import Wrapper, as_constant, leaf_paths, structure_of
from worker.compiler.frontend.unsupported_tensors import refuse_unsupported_input, refuse_unsupported_tensors
from worker.compiler.frontend.zip_archive import read_entry
from worker.compiler.torch_costs import linear_torch
from worker.compiler.values import WHOLE, Selection
from worker.errors import JobError

LEGACY_ENTRY = "serialized_exported_program.json"
SAVED_NAME = "model"
MAX_MODEL_BYTES = 256 << 20


def load(path: Path, selection: Selection = WHOLE) -> LoadedModel:
    """Load an exported program, whose file fixes the arguments that are not tensors.

    Raises:
        JobError: ``model-load-failed``, with both schema versions if they differ;
            ``model-operator-unavailable`` if the worker does not know a custom operator; ``inputs-mismatch``
            if the file has other values than ``constants``; ``method-missing`` if it has no such program.
    """
    try:
        programs = _read_with_containers(path)
    except Exception as error:
        raise load_failed(error, _version_hint(path)) from error
    name = choose_method(tuple(sorted(programs)), selection.method)
    program, samples = programs[name]
    _check_constants(program, selection.constants)
    others = tuple(sorted(set(programs) - {name}))
    return replace(describe(program, samples), method=name, other_methods=others)


def _check_constants(program: ExportedProgram, constants: Constants) -> None:
    fixed = {
        leaf.name: leaf.spec.value for leaf in _leaves(program) if isinstance(leaf.spec, ConstantArgument)
    }
    refuse_unknown_constants(constants, fixed)
    for name, value in constants.items():
        if value != fixed[name]:
            detail = (
                f"the file fixes the argument '{name}' at {fixed[name]!r}: export the model with {value!r}"
            )
            raise JobError(ErrorCode.INPUTS_MISMATCH, detail)


def describe(program: ExportedProgram, samples: object = None) -> LoadedModel:
    """The loaded model of an exported program.

    Args:
        program: the program.
        samples: the sample inputs, if the program itself could not be loaded with them.

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
        call=CallStructure(arguments=_call_arguments(program), returns=_returns(program)),
        examples=_examples(program, samples, slots),
        parameters=count_elements([*program.state_dict.values(), *program.constants.values()]),
        returns=program.call_spec.out_spec,
    )


@dataclass(frozen=True)
class _Constant:
    value: object


@dataclass(frozen=True)
class _Leaf:
    """A leaf of the program's arguments: its name in requests, and the program's input."""

    name: str
    spec: Any

    @property
    def structure(self) -> Structure:
        """The leaf in the structure of the arguments."""
        if isinstance(self.spec, ConstantArgument):
            return as_constant(self.spec.value) or ConstantLeaf(constant=str(self.spec.value))
        return TensorLeaf(tensor=self.name)


def _leaves(program: ExportedProgram) -> list[_Leaf]:
    """The leaves of the arguments in order. A tensor that is an argument itself has the program's name."""
    specs = [spec.arg for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT]
    paths = [(name, *path) for name, child in _arguments(program) for path in leaf_paths(child)]
    own = [
        (spec.name,) if len(path) == 1 and isinstance(spec, TensorArgument) else path
        for path, spec in zip(paths, specs, strict=True)
    ]
    return [_Leaf(name, spec) for name, spec in zip(input_names(own), specs, strict=True)]


def _arguments(program: ExportedProgram) -> list[tuple[str, TreeSpec]]:
    """The name and the structure of each argument: those by position, then those by keyword."""
    positional, named = program.call_spec.in_spec.children()
    signature = program.module_call_graph[0].signature
    known = (signature.forward_arg_names or [])[: positional.num_children] if signature else []
    unknown = [f"input_{index}" for index in range(len(known), positional.num_children)]
    names = (*known, *unknown, *named.context)
    return list(zip(names, (*positional.children(), *named.children()), strict=True))


def _call_arguments(program: ExportedProgram) -> tuple[ArgumentStructure, ...]:
    leaves = iter([leaf.structure for leaf in _leaves(program)])
    positional = program.call_spec.in_spec.child(0).num_children
    return tuple(
        ArgumentStructure(name=name, structure=structure_of(child, leaves), keyword_only=index >= positional)
        for index, (name, child) in enumerate(_arguments(program))
    )


class _WithConstants(Wrapper):
    """Calls a flat module with its tensors and constants in order."""

    def __init__(self, module: torch.nn.Module, slots: list[Argument | _Constant]) -> None:
        super().__init__(module)
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


Programs = dict[str, tuple[ExportedProgram, object]]
"""Programs by name, with the sample inputs that torch cannot load."""


def _read_with_containers(path: Path) -> Programs:
    try:
        return _read(path)
    except Exception:
        texts = [read_entry(path, entry, MAX_MODEL_BYTES) or b"" for entry in _model_entries(path)]
        refuse_unknown_operators(texts)
        registered = [register_containers(text) for text in texts]
        if not any(registered):
            raise
        return _read(path)


@linear_torch()
def _read(path: Path) -> Programs:
    """The programs by name; a file of ``torch.export.save`` has one, ``forward``."""
    with path.open("rb") as file:
        is_legacy = _is_legacy(path)
        programs: Programs = {FORWARD: (torch.export.load(file), None)} if is_legacy else _read_programs(file)
    for program, _ in programs.values():
        _forget_ranges_of_expressions(program)
    return programs


def _forget_ranges_of_expressions(program: ExportedProgram) -> None:
    """Keep only the ranges of symbols: with one of ``4*h``, torch 2.13 cannot decompose a loaded program."""
    shapes = _get_shape_env_from_gm(program.graph_module)
    if shapes is not None:
        for expression in [size for size in shapes.var_to_range if not size.is_symbol]:
            del shapes.var_to_range[expression]


def _read_programs(file: BinaryIO) -> Programs:
    """As ``load_pt2``, but without loading the libraries of AOTInductor that an archive may also have."""
    with _ArchiveReader(file) as archive:
        programs = _load_exported_programs(archive, archive.get_file_names(), None)
        return {
            FORWARD if name == SAVED_NAME else name: (
                program,
                archive.samples.get(SAMPLE_INPUTS_FILENAME_FORMAT.format(name)),
            )
            for name, program in programs.items()
        }


class _ArchiveReader(PT2ArchiveReader):
    """Hides sample inputs from torch if it cannot load their classes, and keeps them as ``samples``."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self.samples: dict[str, object] = {}

    def read_bytes(self, name: str) -> bytes:
        data: bytes = super().read_bytes(name)
        if not data or not name.startswith(SAMPLE_INPUTS_DIR):
            return data
        try:
            torch.load(io.BytesIO(data), weights_only=True)
        except pickle.UnpicklingError:
            self.samples[name] = read_samples(data)
            return b""
        return data


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
    return [_slot(leaf, placeholders[leaf.spec.name], program) for leaf in _leaves(program)]


def _returns(program: ExportedProgram) -> Structure | None:
    """The structure of the result; None if it has leaves that are neither tensors nor constants."""
    arguments = [
        spec.arg for spec in program.graph_signature.output_specs if spec.kind == OutputKind.USER_OUTPUT
    ]
    structure = program.call_spec.out_spec
    if not all(isinstance(argument, TensorArgument | ConstantArgument) for argument in arguments):
        return None
    return describe_outputs(structure, [getattr(argument, "value", argument) for argument in arguments])[1]


def _placeholders(program: ExportedProgram) -> dict[str, torch.fx.Node]:
    return {node.name: node for node in program.graph.nodes if node.op == "placeholder"}


def _slot(leaf: _Leaf, placeholder: torch.fx.Node, program: ExportedProgram) -> Argument | _Constant:
    if isinstance(leaf.spec, ConstantArgument):
        return _Constant(leaf.spec.value)
    value = placeholder.meta.get("val")
    if not isinstance(leaf.spec, TensorArgument) or not isinstance(value, torch.Tensor):
        detail = f"input '{leaf.name}' is a {type(value).__name__}; only tensors are supported"
        raise JobError(ErrorCode.MODEL_SIGNATURE_UNSUPPORTED, detail)
    refuse_unsupported_input(leaf.name, value)
    spec = tensor_spec(leaf.name, _with_hints(value))
    refuse_empty([spec])
    symbolic = symbolic_axes(value, program)
    return Argument(leaf.name, spec, frozenset(axis.axis for axis in symbolic), symbolic_axes=symbolic)


def _with_hints(value: torch.Tensor) -> torch.Tensor:
    sizes = [size if isinstance(size, int) else size.node.hint or 2 for size in value.shape]
    return torch.empty(sizes, dtype=value.dtype, device="meta")


def _examples(
    program: ExportedProgram, samples: object, slots: list[Argument | _Constant]
) -> tuple[torch.Tensor, ...] | None:
    given = samples or program.example_inputs
    if given is None:
        return None
    try:
        leaves = zip(sample_leaves(given, program.call_spec.in_spec), slots, strict=True)
        tensors = [leaf for leaf, slot in leaves if isinstance(slot, Argument)]
    except (AttributeError, LookupError, TypeError, ValueError):
        return None  # values of classes that hide their fields
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
