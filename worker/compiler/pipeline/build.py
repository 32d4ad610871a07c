"""Build: generates machine code for the target and links it to a shared library."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import tvm

from bessemer.bundle.manifest import STATIC_LIBRARY
from bessemer.contract.code import listed_name
from bessemer.contract.problem import ErrorCode, SourcePlace
from bessemer.contract.report import Estimate
from bessemer.contract.stage import Stage
from worker.compiler.codegen.call_origins import origins_of
from worker.compiler.codegen.compile_functions import Compiler
from worker.compiler.codegen.compile_module import FunctionTooSlowError
from worker.compiler.codegen.cuda.library import build_gpu_library
from worker.compiler.codegen.estimate import estimate_run, flops_of_functions
from worker.compiler.codegen.executable import Linked, build_in_shares
from worker.compiler.codegen.exposed import exposed_by
from worker.compiler.codegen.imports import imported_functions, packed_names
from worker.compiler.codegen.link import LinkError, archive_objects
from worker.compiler.codegen.memory import memory_of_run
from worker.compiler.codegen.standalone.emit import PARAMETERS_OBJECT
from worker.compiler.codegen.standalone.runner import write_runner
from worker.compiler.kernels.functions import function_book, require_functions
from worker.compiler.kernels.registry import kernel_book
from worker.compiler.layout.own_memory import own_memory
from worker.compiler.platforms import library_name, program_name
from worker.compiler.values import Built, Captured, StageContext, Tuned
from worker.errors import JobError, failure_of
from worker.protocol.objects import NoObjects
from worker.snapshots.code_listing import Source, ptx_sources, sources_of, write_code
from worker.snapshots.machine_code import join_sources


def build(tuned: Tuned, context: StageContext) -> Built:
    """Lower the module, generate code and link it with ``ld.lld``.

    A function that exceeds its share of the job's time is split into parts.

    Before: every function is scheduled. After: ``context.output`` holds a shared library for the target with
    the code, the virtual machine's instructions and the bound parameters.

    Raises:
        JobError: ``build-failed``: lowering, code generation or linking failed. ``function-too-slow``: a
            function that cannot be split took too long. ``library-function-missing``: the module calls a
            function that neither the runtime nor an extension has. ``gpu-unsupported``: C cannot call a
            library for a GPU.
    """
    if tuned.captured.upload.target.gpu is not None:
        return _build_for_gpu(tuned, context)
    target = tuned.captured.upload.target.llvm
    library = context.output / library_name(tuned.captured.upload.target.resolved.triple)
    objects, with_sources = context.scratch / "objects", tuned.captured.upload.request.inspect.assembly
    compiler = Compiler(
        target=target,
        objects=objects,
        compile_many=context.candidates.compile_many,
        cache=NoObjects() if with_sources else context.objects,
        keeps_objects=tuned.captured.upload.request.static_library,
        with_sources=with_sources,
        left_seconds=context.left_seconds,
        advance=partial(context.observer.progress, Stage.BUILD),
    )
    try:
        linked = build_in_shares(
            tuned.module, tuned.optimized.module, library, compiler, exposed_by(tuned.captured)
        )
    except FunctionTooSlowError as error:
        raise JobError(error.code, error.detail, _places(tuned, error.whole)) from error
    if with_sources:
        join_sources(objects, context.output)
    _write_code(tuned, context, sources_of(objects, _kernel_names(linked.module)))
    if tuned.captured.upload.request.static_library:
        _write_archive(library.parent / STATIC_LIBRARY, linked)
    program = _write_program(library, linked, compiler)
    (objects / PARAMETERS_OBJECT).unlink()  # the library has them too
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
            split.model_copy(update={"places": _places(tuned, split.name)}) for split in linked.splits
        ),
        built_functions=linked.built_functions,
        program=program,
        estimate=_estimate(linked, tuned),
        memory=None if linked.plan is None else memory_of_run(linked.plan),
        no_program=linked.no_c_interface or "",
    )


def _build_for_gpu(tuned: Tuned, context: StageContext) -> Built:
    target, objects = tuned.captured.upload.target, context.scratch / "objects"
    library = context.output / library_name(target.resolved.triple)
    _refuse_runtime_calls(tuned)
    try:
        linked = build_gpu_library(
            tuned.module, tuned.optimized.module, target, library, objects, exposed_by(tuned.captured)
        )
    except JobError as error:
        raise _placed(error, tuned) from error
    program = library.parent / program_name(target.resolved.triple)
    write_runner(library, target.resolved.triple, objects, program)
    (objects / PARAMETERS_OBJECT).unlink()  # the library has them too
    sources: Iterable[Source] = ()
    if tuned.captured.upload.request.inspect.assembly:
        sources = ptx_sources(linked.binary.ptx.read_text("utf-8", "replace"), linked.kernels)
    _write_code(tuned, context, sources)
    return Built(
        tuned=tuned,
        library=library,
        imports=frozenset(),
        module=tuned.optimized.module,
        program=program,
        gpu_functions=linked.functions,
        gpu_kernels=linked.binary.usage,
    )


def _write_code(tuned: Tuned, context: StageContext, sources: Iterable[Source]) -> None:
    """Write what each function computes, and its code, if the request asks to inspect them."""
    kept = tuned.captured.upload.request.inspect
    if kept.ir or kept.assembly:
        origins = origins_of(tuned.optimized.module, tuned.optimized.nodes)
        write_code(context.output, origins.calls, origins.operators, _kernel_names(tuned.module), sources)


def _kernel_names(module: tvm.IRModule) -> tuple[str, ...]:
    return tuple(
        str(variable.name_hint)
        for variable, function in module.functions_items()
        if isinstance(function, tvm.tirx.PrimFunc)
    )


def _refuse_runtime_calls(tuned: Tuned) -> None:
    """Refuse functions that call TVM's runtime, such as sorting: it runs on the processor."""
    calls = {
        str(variable.name_hint): packed_names(tvm.IRModule({variable: function}))
        for variable, function in tuned.module.functions_items()
        if isinstance(function, tvm.tirx.PrimFunc)
    }
    needed = sorted(name for name, names in calls.items() if names)
    if needed:
        detail = (
            f"{', '.join(map(repr, needed))}: TVM's runtime does this, on the processor, and not on a GPU"
        )
        raise JobError(ErrorCode.GPU_UNSUPPORTED, detail, _places(tuned, *needed))


def _placed(error: JobError, tuned: Tuned) -> JobError:
    """The error with the places of the function that it names."""
    if error.code is not ErrorCode.GPU_UNSUPPORTED or error.places:
        return error
    detail, *_ = error.detail.splitlines()
    words = detail.split()
    names = (str(variable.name_hint) for variable in tuned.module.get_global_vars())
    named = next((name for name in names if name in words), None)
    return JobError(error.code, detail.rstrip(":"), () if named is None else _places(tuned, named))


def _estimate(linked: Linked, tuned: Tuned) -> Estimate | None:
    if linked.plan is None:
        return None
    flops = flops_of_functions(linked.plain)
    return estimate_run(linked.plan, flops, tuned.captured.upload.target.machine)


def _write_archive(path: Path, linked: Linked) -> None:
    """Write the library for static linking, which only C can call."""
    if linked.no_c_interface is not None:
        detail = f"C cannot call the library, so `static_library` is not possible: {linked.no_c_interface}"
        raise JobError(ErrorCode.BUILD_FAILED, detail)
    try:
        archive_objects(path, linked.objects)
    except LinkError as error:
        raise failure_of(ErrorCode.BUILD_FAILED, error, str(error)) from error


def _write_program(library: Path, linked: Linked, compiler: Compiler) -> Path | None:
    """Link the program that runs the library."""
    if linked.no_c_interface is not None:
        return None
    triple = str(compiler.target.attrs["mtriple"])
    program = library.parent / program_name(triple)
    write_runner(library, triple, compiler.objects, program)
    return program


def _own_memory(entry: Captured, module: tvm.IRModule) -> frozenset[str]:
    owned = own_memory(module[entry.function], entry.kept)
    return frozenset(spec.name for spec, is_own in zip(entry.output_specs, owned, strict=False) if is_own)


def _places(tuned: Tuned, *functions: str) -> tuple[SourcePlace, ...]:
    """The places in the user's model that some functions compute."""
    known = origins_of(tuned.optimized.module, tuned.optimized.nodes).places()
    return tuple(dict.fromkeys(place for name in functions for place in known.get(listed_name(name), ())))
