"""Builds a shared library from a module whose functions are scheduled.

Emits ``model.so``::

    the virtual machine's instructions, lowered from Relax: allocate, call, free
    the objects of the TensorIR functions
    the objects of kernel libraries that Relax calls
    the parameters, and a C interface that runs the same functions without the virtual machine
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.relax import transform

from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import BuiltFunctions, FunctionSplit
from bessemer.contract.triple import platform_of
from worker.compiler.codegen.argument_checks import check_inputs_once
from worker.compiler.codegen.compile_functions import Compiler
from worker.compiler.codegen.compile_module import compile_in_shares
from worker.compiler.codegen.imports import packed_names
from worker.compiler.codegen.link import LinkError
from worker.compiler.codegen.lowering import PIPELINE
from worker.compiler.codegen.standalone.emit import (
    EntryTensors,
    Interface,
    PlannedEntry,
    State,
    complete_parameters,
    insert_parameters,
    write_objects,
)
from worker.compiler.codegen.standalone.parameters import Parameters, take_parameters
from worker.compiler.codegen.standalone.plan import CallPlan, NotPlannableError, plan_calls
from worker.compiler.codegen.standalone.systems import link_library
from worker.compiler.kernels.kernel import Kernel
from worker.compiler.kernels.registry import (
    kernels_among,
    libraries_of,
    objects_of,
    place_beside,
)
from worker.compiler.layout.memory.share_storage import share_storage
from worker.compiler.platforms import has_runtime
from worker.errors import failure_of


@tvm.transform.module_pass(opt_level=0, name="RestrictShapeFunctions")
def restrict_shape_functions(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Mark functions of one buffer as free of aliases.

    Functions that compute dynamic sizes lack the attribute. One such function makes LLVM keep the sums of all
    other functions of the module in memory, which makes them nearly three times slower (TVM 0.27).
    """
    restricted = module.clone()
    for variable, function in module.functions_items():
        if isinstance(function, tirx.PrimFunc) and len(function.params) == 1:
            restricted.update_func(variable, function.with_attr("tirx.noalias", True))
    return restricted


LOWERING: tuple[tvm.transform.Pass, ...] = (
    transform.ToNonDataflow(),
    transform.RemovePurityChecking(),
    transform.CallTIRRewrite(),
    share_storage,
    transform.StaticPlanBlockMemory(),
    transform.LowerAllocTensor(),
    transform.KillAfterLastUse(),
    transform.LowerRuntimeBuiltin(),
    transform.ComputePrimValue(),
    transform.VMShapeLower(),
    restrict_shape_functions,
    transform.AttachGlobalSymbol(),
)
"""Lowers Relax to the virtual machine's instructions: memory planned once, then plain calls."""


@dataclass(frozen=True)
class Exposed:
    """The functions that C can call, by name, and the initial values of their states, by name."""

    entries: Mapping[str, EntryTensors] = field(default_factory=dict)
    initial: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Linked:
    """The parts of a linked library.

    Attributes:
        executable: the virtual machine's instructions.
        module: the functions as compiled, with the lowered Relax functions.
        plain: the same functions without schedules.
        splits: the functions that were split because they took too long to compile.
        built_functions: how many functions were compiled.
        plan: the calls of the first entry point; None if C cannot call the library.
        no_c_interface: why C cannot call it.
        objects: what the library is linked from, without the virtual machine's instructions.
    """

    executable: relax.VMExecutable
    module: tvm.IRModule
    plain: tvm.IRModule
    splits: tuple[FunctionSplit, ...]
    built_functions: BuiltFunctions
    plan: CallPlan | None
    no_c_interface: str | None
    objects: tuple[Path, ...]


def build_library(
    module: tvm.IRModule, target: tvm.target.Target, library: Path, objects: Path
) -> relax.VMExecutable:
    """Compile a module in this process without a time limit; see ``build_in_shares``."""
    return build_in_shares(module, module, library, Compiler(target, objects)).executable


def build_in_shares(
    module: tvm.IRModule,
    plain: tvm.IRModule,
    library: Path,
    compiler: Compiler,
    exposed: Exposed = Exposed(),
) -> Linked:
    """Compile a module, each function within its share of time, and link it with ``ld.lld``.

    Args:
        module: the module; every function is scheduled.
        plain: the same functions without schedules, from which the parts of a slow function are made.
        library: the file to write.
        compiler: how to compile.
        exposed: the functions that C can call.

    Raises:
        JobError: ``build-failed``: lowering, code generation or linking failed; ``function-too-slow``: a
            function that cannot be split took too long.
    """
    compiler.objects.mkdir(parents=True, exist_ok=True)
    try:
        compiled = compile_in_shares(module, plain, lower, compiler)
        machine, parameters = take_parameters(_without(compiled.lowered, tirx.PrimFunc))
        executable = relax.build(
            machine.with_attr("external_mods", compiled.kernels), compiler.target, relax_pipeline=None
        )
    except Exception as error:
        raise failure_of(ErrorCode.BUILD_FAILED, error) from error
    called = sorted(packed_names(compiled.lowered))
    interface, reason = _interface(machine, exposed, parameters, called)
    objects = _link(executable, library, compiler, _kernels_of(module), interface, parameters)
    plan = interface.entries[0].plan if interface.entries else None
    return Linked(
        executable=executable,
        module=compiled.lowered,
        plain=compiled.plain,
        splits=compiled.splits,
        built_functions=compiled.built_functions,
        plan=plan,
        no_c_interface=reason,
        objects=objects,
    )


def _interface(
    machine: tvm.IRModule, exposed: Exposed, parameters: Parameters, called: Sequence[str]
) -> tuple[Interface, str | None]:
    """What C can call, or why it can call nothing."""
    if not exposed.entries:
        return Interface(), "its parameters are separate"
    if called:
        return Interface(), f"its kernels call {', '.join(called)}"
    try:
        return planned_interface(machine, exposed, parameters), None
    except NotPlannableError as error:
        return Interface(), str(error)


def planned_interface(
    machine: tvm.IRModule,
    exposed: Exposed,
    parameters: Parameters,
    workspaces: Mapping[str, tuple[int, ...]] = {},
) -> Interface:
    """What C can call.

    Args:
        machine: the lowered Relax functions, their constants taken out.
        exposed: the functions that C can call.
        parameters: the constants; initial states are added.
        workspaces: see ``plan_calls``.

    Raises:
        NotPlannableError: a function does more than call kernels on tensors of fixed sizes.
    """
    entries = tuple(
        PlannedEntry(tensors, plan_calls(machine[function], workspaces))
        for function, tensors in exposed.entries.items()
    )
    specs = {spec.name: spec for entry in entries for spec in entry.tensors.states}
    states = tuple(
        State(spec, parameters.index_of(tvm.runtime.tensor(value)) if value.any() else None)
        for spec, value in ((spec, exposed.initial[name]) for name, spec in specs.items())
    )
    return Interface(entries, states)


def compile_module(module: tvm.IRModule, target: tvm.target.Target) -> relax.VMExecutable:
    """Lower a module and generate code in memory, on this thread only.

    Raises:
        JobError: ``build-failed``.
    """
    try:
        with tvm.transform.PassContext(opt_level=3):
            return relax.build(lower(module, target), target, relax_pipeline=None, tir_pipeline=PIPELINE)
    except Exception as error:
        raise failure_of(ErrorCode.BUILD_FAILED, error) from error


def lower(module: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """Lower a module's Relax functions; kernels stay as they are."""
    with target, tvm.transform.PassContext(opt_level=3):
        lowered: tvm.IRModule = tvm.transform.Sequential(LOWERING)(check_inputs_once(module))
    return lowered


def _without(module: tvm.IRModule, kind: type) -> tvm.IRModule:
    kept = {name: function for name, function in module.functions.items() if not isinstance(function, kind)}
    return tvm.IRModule(kept, attrs=module.attrs)


class _Linker:
    """``fcompile`` of ``export_library``: links the objects.

    For a module without kernels, such as a model that returns its input, TVM passes an empty C file, which
    is skipped, and asks for the triple.
    """

    object_format = "o"

    def __init__(self, triple: str, kernels: tuple[Kernel, ...], own: tuple[Path, ...], folder: Path) -> None:
        self._triple = triple
        self._kernels = kernels
        self._own = own
        self._folder = folder

    def get_target_triple(self) -> str:
        """The triple of the object that holds the instructions."""
        return self._triple

    def __call__(self, output: str, objects: list[str], options: object = None) -> None:
        compiled = [Path(path) for path in objects if path.endswith(".o")]
        kernels = objects_of(self._kernels, platform_of(self._triple))
        libraries = [library.path for library in libraries_of(self._kernels)]
        link_library(Path(output), [*compiled, *self._own, *kernels], self._triple, self._folder, libraries)


def _kernels_of(module: tvm.IRModule) -> tuple[Kernel, ...]:
    """The kernels of libraries that a module's Relax functions call."""
    names: set[str] = set()

    def visit(expression: relax.Expr) -> None:
        if isinstance(expression, relax.ExternFunc):
            names.add(str(expression.global_symbol))

    for function in module.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return kernels_among(names) if names else ()


def _link(
    executable: relax.VMExecutable,
    library: Path,
    compiler: Compiler,
    kernels: tuple[Kernel, ...],
    interface: Interface,
    parameters: Parameters,
) -> tuple[Path, ...]:
    """Link the library; where TVM has no runtime, without the virtual machine's instructions.

    Returns:
        The objects without these instructions.
    """
    place_beside(library.parent, libraries_of(kernels))
    triple = str(compiler.target.attrs["mtriple"])
    try:
        own = write_objects(interface, parameters, triple, compiler.objects)
        compiled = tuple(sorted(compiler.objects.glob("kernels*.o")))
        link = _Linker(triple, kernels, own.linked, compiler.objects)
        if has_runtime(triple):
            executable.export_library(str(library), fcompile=link, workspace_dir=str(compiler.objects))
        else:
            link(str(library), list(map(str, compiled)))
        insert_parameters(library, own, parameters)
        if compiler.keeps_objects:
            complete_parameters(own, parameters)
        return (*compiled, *own.objects, *objects_of(kernels, platform_of(triple)))
    except LinkError as error:
        raise failure_of(ErrorCode.BUILD_FAILED, error, f"the linker refused: {error}") from error
    except Exception as error:
        raise failure_of(ErrorCode.BUILD_FAILED, error) from error
