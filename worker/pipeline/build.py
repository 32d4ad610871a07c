"""Build: machine code for the target, linked to a shared library."""

from __future__ import annotations

import re
from pathlib import Path

import tvm
import tvm_ffi
from tvm import relax

from bessemer.bundle.manifest import LIBRARY
from bessemer.contract.problem import ErrorCode
from worker.candidates.link import LinkError, link_shared
from worker.errors import failure_of
from worker.pipeline.passes import LOWERING
from worker.pipeline.types import Built, Tuned, Workshop
from worker.targets import tvm_target

_GLOBALS = re.compile(r"^\s*Globals \(#\d+\): \[(?P<names>.*)\]$", re.MULTILINE)
_PACKED_CALLS = frozenset({"tirx.tvm_call_packed", "tirx.tvm_call_cpacked"})


def build(tuned: Tuned, workshop: Workshop) -> Built:
    """Lower the module, generate code and link it with ``ld.lld``.

    Before: every function is scheduled. After: ``workshop.output`` holds a shared library for the target's
    triple, which contains the code, the virtual machine's instructions and the parameters.

    Raises:
        JobError: ``build-failed``: LLVM does not know the target, or lowering, code generation or linking
            failed.
    """
    target = tvm_target(tuned.optimized.captured.upload.target)
    executable = _compile(tuned.module, target)
    library = workshop.output / LIBRARY
    _link(executable, library, workshop.scratch / "objects", target)
    return Built(tuned=tuned, library=library, imports=imported_functions(executable, tuned.module))


def imported_functions(executable: relax.VMExecutable, module: tvm.IRModule) -> frozenset[str]:
    """Names of the runtime's functions that an executable calls: by its instructions and from its kernels.

    Args:
        executable: what was compiled.
        module: what it was compiled from.
    """
    listed = _GLOBALS.search(executable.stats())
    called = set(listed["names"].split(", ")) if listed else set()
    own = {str(variable.name_hint) for variable in module.get_global_vars()}
    return frozenset((called - own) | _packed_names(module))


def _packed_names(module: tvm.IRModule) -> set[str]:
    names: set[str] = set()

    def visit(call: tvm.ir.Call) -> None:
        if isinstance(call.op, tvm.ir.Op) and call.op.name in _PACKED_CALLS:
            names.add(str(call.args[0].value))

    for function in module.functions.values():
        if isinstance(function, tvm.tirx.PrimFunc):
            tvm_ffi.structural_walk(function.body, (tvm.ir.Call, visit))
    return names


def _compile(module: tvm.IRModule, target: tvm.target.Target) -> relax.VMExecutable:
    try:
        with tvm.transform.PassContext(opt_level=3):
            return relax.build(module, target, relax_pipeline=tvm.transform.Sequential(LOWERING))
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
