"""A module, every function of which is scheduled, as a library: lowered, generated in parts, linked."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import ceil
from pathlib import Path

import tvm
from tvm import relax, tirx
from tvm.relax import transform

from bessemer.contract.problem import ErrorCode
from worker.candidates.link import LinkError, link_shared
from worker.codegen.argument_checks import PIPELINE, trust_own_tensors
from worker.errors import failure_of
from worker.kernels.kernel import Kernel
from worker.kernels.linking import architecture_of, kernels_among, libraries_of, objects_of, place_beside
from worker.layout.shared_memory import share_storage
from worker.snapshots.machine_code import write_sources

_MOST_PARTS = 8
_KERNELS_PER_PART = 3
"""Kernels go into several objects; an object of its own for each would take longer than a small kernel."""


@tvm.transform.module_pass(opt_level=0, name="RestrictShapeFunctions")
def restrict_shape_functions(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Say of functions of one buffer that nothing aliases it.

    Those that compute open sizes lack the attribute, and one such function makes LLVM keep the sums of all
    others of the module in memory, which takes them nearly three times as long (TVM 0.27).
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
"""Relax to the virtual machine's instructions: explicit memory, planned once, then plain calls."""


def build_library(
    module: tvm.IRModule,
    target: tvm.target.Target,
    library: Path,
    objects: Path,
    with_sources: bool = False,
) -> relax.VMExecutable:
    """Compile a module, every function of which is scheduled, and link it with ``ld.lld``.

    Args:
        module: what to compile.
        target: for which processor.
        library: the file to write.
        objects: a folder for the objects in between; made if missing.
        with_sources: leave LLVM IR and assembly beside the objects.

    Raises:
        JobError: ``build-failed``: lowering, code generation or linking failed.
    """
    objects.mkdir(parents=True, exist_ok=True)
    try:
        lowered = _lower(module, target)
        kernels = _compile_kernels(_without(lowered, relax.Function), target, objects, with_sources)
        machine = _without(lowered, tirx.PrimFunc).with_attr("external_mods", kernels)
        executable = relax.build(machine, target, relax_pipeline=None)
    except Exception as error:
        raise failure_of(ErrorCode.BUILD_FAILED, error) from error
    _link(executable, library, objects, target, _kernels_of(module))
    return executable


def compile_module(module: tvm.IRModule, target: tvm.target.Target) -> relax.VMExecutable:
    """Lower a module and generate code in memory, in this thread alone.

    Raises:
        JobError: ``build-failed``.
    """
    try:
        with tvm.transform.PassContext(opt_level=3):
            return relax.build(_lower(module, target), target, relax_pipeline=None, tir_pipeline=PIPELINE)
    except Exception as error:
        raise failure_of(ErrorCode.BUILD_FAILED, error) from error


def _lower(module: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    with target, tvm.transform.PassContext(opt_level=3):
        lowered: tvm.IRModule = tvm.transform.Sequential(LOWERING)(trust_own_tensors(module))
    return lowered


def _without(module: tvm.IRModule, kind: type) -> tvm.IRModule:
    kept = {name: function for name, function in module.functions.items() if not isinstance(function, kind)}
    return tvm.IRModule(kept, attrs=module.attrs)


def _compile_kernels(
    kernels: tvm.IRModule, target: tvm.target.Target, objects: Path, with_sources: bool
) -> list[tvm.runtime.Module]:
    """The kernels as objects, several of them at a time: LLVM works outside of Python's lock."""
    functions = list(kernels.functions.items())
    number = min(_MOST_PARTS, ceil(len(functions) / _KERNELS_PER_PART))
    parts = [dict(functions[start::number]) for start in range(number)]
    compile_part = partial(_compile_part, attributes=kernels.attrs, target=target, with_sources=with_sources)
    paths = [objects / f"kernels{index}.o" for index in range(len(parts))]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(compile_part, parts, paths))


def _compile_part(
    part: dict[tvm.ir.GlobalVar, tirx.PrimFunc],
    path: Path,
    *,
    attributes: tvm.ir.DictAttrs,
    target: tvm.target.Target,
    with_sources: bool,
) -> tvm.runtime.Module:
    with tvm.transform.PassContext(opt_level=3):
        compiled = tirx.build(tvm.IRModule(part, attrs=attributes), target=target, pipeline=PIPELINE)
    compiled.write_to_file(str(path))
    if with_sources:
        write_sources(compiled, path)
    return tvm.runtime.load_static_library(str(path), [str(name.name_hint) for name in part])


class _Linker:
    """``fcompile`` of ``export_library``: links the objects.

    A module without kernels (a model that returns its input) comes as an empty C file, which is left out; it
    has no target either, so that ``export_library`` asks for the triple.
    """

    object_format = "o"

    def __init__(self, triple: str, kernels: tuple[Kernel, ...]) -> None:
        self._triple = triple
        self._kernels = kernels

    def get_target_triple(self) -> str:
        """The triple to make the instructions' object for."""
        return self._triple

    def __call__(self, output: str, objects: list[str], options: object = None) -> None:
        own = [path for path in objects if path.endswith(".o")]
        kernels = map(str, objects_of(self._kernels, architecture_of(self._triple)))
        libraries = [str(library.path) for library in libraries_of(self._kernels)]
        link_shared(output, [*own, *kernels], libraries)


def _kernels_of(module: tvm.IRModule) -> tuple[Kernel, ...]:
    """The kernels that a module's functions of Relax call."""
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
    objects: Path,
    target: tvm.target.Target,
    kernels: tuple[Kernel, ...],
) -> None:
    place_beside(library.parent, libraries_of(kernels))
    linker = _Linker(str(target.attrs["mtriple"]), kernels)
    try:
        executable.export_library(str(library), fcompile=linker, workspace_dir=str(objects))
    except LinkError as error:
        raise failure_of(ErrorCode.BUILD_FAILED, error, f"the linker refused: {error}") from error
    except Exception as error:
        raise failure_of(ErrorCode.BUILD_FAILED, error) from error
