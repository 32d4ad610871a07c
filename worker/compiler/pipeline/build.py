"""Build: generates machine code for the target and links it to a shared library."""

from __future__ import annotations

import re
from functools import partial

import tvm
import tvm_ffi
from tvm import relax

from bessemer.bundle.manifest import LIBRARY
from bessemer.contract.problem import ErrorCode, SourcePlace
from bessemer.contract.request import Parameters
from bessemer.contract.stage import Stage
from worker.candidates.library import PARAMETER
from worker.compiler.codegen.compile_functions import Compiler
from worker.compiler.codegen.compile_module import FunctionTooSlowError
from worker.compiler.codegen.executable import EntryTensors, build_in_shares
from worker.compiler.codegen.origin import places_of
from worker.compiler.kernels.functions import function_book, require_functions
from worker.compiler.kernels.registry import kernel_book
from worker.compiler.layout.own_memory import own_memory
from worker.compiler.values import Built, Captured, StageContext, Tuned
from worker.errors import JobError
from worker.snapshots.machine_code import join_sources

_GLOBALS = re.compile(r"^\s*Globals \(#\d+\): \[(?P<names>.*)\]$", re.MULTILINE)
_PACKED_CALLS = frozenset({"tirx.tvm_call_packed", "tirx.tvm_call_cpacked"})


def build(tuned: Tuned, context: StageContext) -> Built:
    """Lower the module, generate code and link it with ``ld.lld``.

    A function that exceeds its share of the job's time is split into parts.

    Before: every function is scheduled. After: ``context.output`` holds a shared library for the target with
    the code, the virtual machine's instructions and the bound parameters.

    Raises:
        JobError: ``build-failed``: lowering, code generation or linking failed. ``function-too-slow``: a
            function that cannot be split took too long. ``library-function-missing``: the module calls a
            function that neither the runtime nor an extension has.
    """
    target = tuned.captured.upload.target.llvm
    library = context.output / LIBRARY
    objects, with_sources = context.scratch / "objects", tuned.captured.upload.request.inspect.assembly
    compiler = Compiler(
        target=target,
        objects=objects,
        compile_many=context.candidates.compile_many,
        with_sources=with_sources,
        left_seconds=context.left_seconds,
        advance=partial(context.observer.progress, Stage.BUILD),
    )
    try:
        linked = build_in_shares(
            tuned.module, tuned.optimized.module, library, compiler, _entries_for_c(tuned)
        )
    except FunctionTooSlowError as error:
        raise JobError(error.code, error.detail, _places(error.whole, tuned)) from error
    if with_sources:
        join_sources(objects, context.output)
    imports = imported_functions(linked.executable, linked.module)
    require_functions(imports - kernel_book().linked)
    return Built(
        tuned=tuned,
        library=library,
        imports=imports,
        functions=tuple(sorted(imports & function_book().keys())),
        own_memory={entry.function: _own_memory(entry, tuned.module) for entry in tuned.captured.entries},
        module=linked.plain,
        splits=tuple(
            split.model_copy(update={"places": _places(split.name, tuned)}) for split in linked.splits
        ),
    )


def _entries_for_c(tuned: Tuned) -> dict[str, EntryTensors]:
    entries = tuned.captured.entries
    separate = tuned.captured.upload.request.parameters is Parameters.SEPARATE
    if separate or any(entry.states for entry in entries):
        return {}
    return {
        entry.function: EntryTensors(entry.name, entry.input_specs, entry.output_specs) for entry in entries
    }


def _own_memory(entry: Captured, module: tvm.IRModule) -> frozenset[str]:
    owned = own_memory(module[entry.function], entry.kept)
    return frozenset(spec.name for spec, is_own in zip(entry.output_specs, owned, strict=False) if is_own)


def _places(function: str, tuned: Tuned) -> tuple[SourcePlace, ...]:
    return places_of(function, tuned.optimized.module, tuned.optimized.nodes)


def imported_functions(executable: relax.VMExecutable, module: tvm.IRModule) -> frozenset[str]:
    """The names of the runtime's functions that an executable's instructions and kernels call.

    Args:
        executable: the compiled module.
        module: the module.

    Raises:
        JobError: ``build-failed``: the executable does not list its calls. Without the list, the bundle could
            lack a runtime library.
    """
    listed = _GLOBALS.search(executable.stats())
    if listed is None:
        raise JobError(ErrorCode.BUILD_FAILED, "the executable does not say which functions it calls")
    called = set(filter(None, listed["names"].split(", ")))
    own = {PARAMETER, *(str(variable.name_hint) for variable in module.get_global_vars())}
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
