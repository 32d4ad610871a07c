"""From a scheduled module to a shared library: lowering, code generation, linking."""

from __future__ import annotations

from pathlib import Path

import tvm
from tvm import relax, tirx
from tvm.relax import transform

from bessemer.contract.problem import ErrorCode
from worker.argument_checks import PIPELINE, trust_own_tensors
from worker.candidates.link import LinkError, link_shared
from worker.errors import failure_of
from worker.shared_memory import share_storage


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
    module: tvm.IRModule, target: tvm.target.Target, library: Path, objects: Path
) -> relax.VMExecutable:
    """Compile a module, every function of which is scheduled, and link it with ``ld.lld``.

    Args:
        module: what to compile.
        target: for which processor.
        library: the file to write.
        objects: a folder for the objects in between; made if missing.

    Raises:
        JobError: ``build-failed``: lowering, code generation or linking failed.
    """
    executable = compile_module(module, target)
    _link(executable, library, objects, target)
    return executable


def compile_module(module: tvm.IRModule, target: tvm.target.Target) -> relax.VMExecutable:
    """Lower a module and generate code in memory.

    Raises:
        JobError: ``build-failed``.
    """
    try:
        with tvm.transform.PassContext(opt_level=3):
            return relax.build(
                trust_own_tensors(module),
                target,
                relax_pipeline=tvm.transform.Sequential(LOWERING),
                tir_pipeline=PIPELINE,
            )
    except Exception as error:
        raise failure_of(ErrorCode.BUILD_FAILED, error) from error


class _Linker:
    """``fcompile`` of ``export_library``: links the objects.

    A module without kernels (a model that returns its input) comes as an empty C file, which is left out; it
    has no target either, so that ``export_library`` asks for the triple.
    """

    object_format = "o"

    def __init__(self, triple: str) -> None:
        self._triple = triple

    def get_target_triple(self) -> str:
        """The triple to make the instructions' object for."""
        return self._triple

    def __call__(self, output: str, objects: list[str], options: object = None) -> None:
        link_shared(output, [path for path in objects if path.endswith(".o")])


def _link(executable: relax.VMExecutable, library: Path, objects: Path, target: tvm.target.Target) -> None:
    objects.mkdir(parents=True, exist_ok=True)
    linker = _Linker(str(target.attrs["mtriple"]))
    try:
        executable.export_library(str(library), fcompile=linker, workspace_dir=str(objects))
    except LinkError as error:
        raise failure_of(ErrorCode.BUILD_FAILED, error, f"the linker refused: {error}") from error
    except Exception as error:
        raise failure_of(ErrorCode.BUILD_FAILED, error) from error
