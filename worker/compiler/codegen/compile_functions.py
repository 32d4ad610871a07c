"""Compiles a module's TensorIR functions to object files, each function within its share of time.

Emits ``objects/kernels0000.o, kernels0001.o, …``::

    for each group of up to eight functions: one object, compiled in a process of its own
    for each function of a group that was late or failed: an object of its own
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import inf
from pathlib import Path
from typing import NamedTuple, Protocol

import tvm
from tvm import tirx
from tvm_ffi import structural_equal

from worker.candidates.pool import compile_group
from worker.candidates.requests import CompileBatch, CompileFunctions, CompileOutcome, CompileProgress
from worker.compiler.codegen.lowering import PIPELINE
from worker.compiler.codegen.time_limits import group_seconds, group_size
from worker.errors import JobError
from worker.snapshots.machine_code import write_sources


class CompileMany(Protocol):
    """Compiles a batch of functions and reports its progress, as ``CandidateClient.compile_many`` does."""

    def __call__(
        self, batch: CompileBatch, on_progress: Callable[[CompileProgress], None]
    ) -> tuple[CompileOutcome, ...]:
        """Return one outcome per group, in order."""
        ...


def compile_here(
    batch: CompileBatch, on_progress: Callable[[CompileProgress], None]
) -> tuple[CompileOutcome, ...]:
    """Compile a batch in this process, without a time limit."""
    outcomes: list[CompileOutcome] = []
    for group in batch.groups:
        on_progress(CompileProgress(len(outcomes), group.names))
        outcomes.append(compile_group(group))
    return tuple(outcomes)


def _unlimited() -> float:
    return inf


def _ignore_progress(_done: int, _total: int, _detail: str) -> None:
    pass


@dataclass(frozen=True)
class Compiler:
    """How to compile functions for a target.

    Attributes:
        target: the processor.
        objects: the folder for objects; created if missing.
        compile_many: runs the compilers.
        keeps_objects: the objects are used after the library is linked, so they are complete.
        with_sources: also write LLVM IR and assembly beside the objects.
        left_seconds: returns the time that the job has left.
        advance: receives the number of compiled functions, their total, and the current one.
    """

    target: tvm.target.Target
    objects: Path
    compile_many: CompileMany = compile_here
    keeps_objects: bool = False
    with_sources: bool = False
    left_seconds: Callable[[], float] = _unlimited
    advance: Callable[[int, int, str], None] = _ignore_progress


class Objects:
    """The compiled functions of one module. A changed function is compiled again.

    Functions are compiled in groups, since making an object takes longer than compiling a small function. A
    group that is late or fails is compiled again function by function.
    """

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._numbers = count()
        self._compiled: dict[str, _CompiledFunction] = {}
        self._alone: set[str] = set()

    def missing(self, module: tvm.IRModule) -> dict[str, tirx.PrimFunc]:
        """The TensorIR functions of a module that are new or have changed."""
        functions = {
            str(variable.name_hint): function
            for variable, function in module.functions_items()
            if isinstance(function, tirx.PrimFunc)
        }
        outdated = {
            compiled.path
            for name, compiled in self._compiled.items()
            if name not in functions or not _is_same(compiled.function, functions[name])
        }
        for path in outdated:
            _remove(path)
        self._compiled = {
            name: compiled for name, compiled in self._compiled.items() if compiled.path not in outdated
        }
        return {name: function for name, function in functions.items() if name not in self._compiled}

    def compile(self, functions: Mapping[str, tirx.PrimFunc], shares: Mapping[str, float]) -> tuple[str, ...]:
        """Compile functions, each within its share in seconds of processor time, the largest first.

        Returns:
            The names of late functions. Functions of a late group are left uncompiled instead.

        Raises:
            JobError: ``build-failed``: a function cannot be compiled.
        """
        groups = self._grouped(tuple(functions))
        paths = [self._compiler.objects / f"kernels{next(self._numbers):04}.o" for _ in groups]
        orders = tuple(
            self._order(
                {name: functions[name] for name in names},
                path,
                group_seconds(tuple(shares[name] for name in names)),
            )
            for names, path in zip(groups, paths, strict=True)
        )
        largest_first = sorted(range(len(orders)), key=lambda index: -len(orders[index].payload))
        batch = CompileBatch(
            tuple(orders[index] for index in largest_first), workers=len(os.sched_getaffinity(0))
        )
        ended = self._compiler.compile_many(batch, self._reporter(len(functions)))
        outcomes = dict(zip(largest_first, ended, strict=True))
        late: list[str] = []
        for index, (names, path) in enumerate(zip(groups, paths, strict=True)):
            outcome = outcomes[index]
            if outcome == CompileOutcome():
                self._compiled |= {name: _CompiledFunction(functions[name], path) for name in names}
            else:
                late += self._not_compiled(names, path, outcome)
        return tuple(late)

    def modules(self) -> list[tvm.runtime.Module]:
        """The objects, to be linked."""
        names: dict[Path, list[str]] = {}
        for name, compiled in self._compiled.items():
            names.setdefault(compiled.path, []).append(name)
        return [tvm.runtime.load_static_library(str(path), named) for path, named in names.items()]

    def _grouped(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        size = group_size(len(names))
        together = [name for name in names if name not in self._alone]
        alone = [(name,) for name in names if name in self._alone]
        return [*alone, *(tuple(together[i : i + size]) for i in range(0, len(together), size))]

    def _order(self, functions: dict[str, tirx.PrimFunc], path: Path, seconds: float) -> CompileFunctions:
        module, compiler = tvm.IRModule(functions), self._compiler
        call = partial(write_object, module, compiler.target, path, compiler.with_sources)
        return CompileFunctions(tuple(functions), pickle.dumps(call), seconds)

    def _reporter(self, count: int) -> Callable[[CompileProgress], None]:
        before = len(self._compiled)

        def report(progress: CompileProgress) -> None:
            self._compiler.advance(before + progress.done, before + count, next(iter(progress.running), ""))

        return report

    def _not_compiled(self, names: tuple[str, ...], path: Path, outcome: CompileOutcome) -> tuple[str, ...]:
        """The name of a late function; none for a group, whose functions are compiled again one by one."""
        _remove(path)
        if len(names) > 1:
            self._alone.update(names)
            return ()
        if outcome.failure is not None:
            code, detail = outcome.failure
            raise JobError(code, f"function {names[0]}: {detail}")
        return names


class _CompiledFunction(NamedTuple):
    function: tirx.PrimFunc
    path: Path


def _is_same(function: tirx.PrimFunc, other: tirx.PrimFunc) -> bool:
    return bool(function.same_as(other)) or structural_equal(function, other)


def _remove(path: Path) -> None:
    """Remove an object and the files beside it."""
    for file in path.parent.glob(f"{path.stem}.*"):
        file.unlink()


_CONFIG = {"tirx.enable_buffer_level_predication": False}
"""By default, TVM masks loads and stores of the borders of tiles where vectors are scalable (SVE, RVV), and
fails in some functions (TVM 0.27)."""


def generate_code(module: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
    """Generate code for scheduled functions, for a library and for a search's candidates alike."""
    with tvm.transform.PassContext(opt_level=3, config=_CONFIG):
        return tirx.build(module, target=target, pipeline=PIPELINE)


def write_object(
    module: tvm.IRModule, target: tvm.target.Target, path: Path, with_sources: bool = False
) -> None:
    """Generate an object file for scheduled functions.

    Args:
        module: the functions.
        target: the processor.
        path: the object to write.
        with_sources: also write LLVM IR and assembly beside it.
    """
    code = generate_code(module, target)
    code.write_to_file(str(path))
    if with_sources:
        write_sources(code, path)
