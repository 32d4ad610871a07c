"""Compiles a module's TensorIR functions to object files, each function within its share of time.

Emits ``objects/kernels0000.o, kernels0001.o, …``::

    for each group of up to eight functions: one object, from a cache or compiled in a process of its own
    for each function of a group that was late or failed: an object of its own
"""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import inf
from pathlib import Path
from typing import NamedTuple

import tvm
from tvm import tirx
from tvm_ffi import structural_equal

from bessemer.contract.base import Digest
from bessemer.contract.report import BuiltFunctions
from worker.candidates.pool import compile_group
from worker.candidates.requests import CompileBatch, CompileFunctions, CompileOutcome, CompileProgress
from worker.compiler.codegen.function_text import key_of, text_of, write_object_of
from worker.compiler.codegen.time_limits import group_seconds, group_size
from worker.errors import JobError
from worker.protocol.objects import CachedObjects, NoObjects

CompileMany = Callable[[CompileBatch, Callable[[CompileProgress], None]], tuple[CompileOutcome, ...]]
"""Compiles a batch of functions and reports its progress, as ``CandidateClient.compile_many`` does; returns
one outcome per group, in order."""


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
        cache: has objects of functions that were compiled before.
        keeps_objects: the objects are used after the library is linked, so they are complete.
        with_sources: also write LLVM IR and assembly beside the objects; the cache has none.
        left_seconds: returns the time that the job has left.
        advance: receives the number of compiled functions, their total, and the current one.
    """

    target: tvm.target.Target
    objects: Path
    compile_many: CompileMany = compile_here
    cache: CachedObjects = field(default_factory=NoObjects)
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
        self._cached: set[Path] = set()
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
        groups = [self._group(names, functions) for names in self._grouped(tuple(functions))]
        left = self._without_cached(groups, functions)
        largest_first = sorted(left, key=lambda group: -len(group.text))
        batch = CompileBatch(
            tuple(self._order(group, shares) for group in largest_first),
            workers=len(os.sched_getaffinity(0)),
        )
        report = self._reporter(sum(len(group.names) for group in left))
        ended = self._compiler.compile_many(batch, report) if left else ()
        outcomes = {group.key: outcome for group, outcome in zip(largest_first, ended, strict=True)}
        late: list[str] = []
        for group in left:
            outcome = outcomes[group.key]
            if outcome == CompileOutcome():
                self._keep(group, functions)
                self._compiler.cache.offer(group.key, group.text)
            else:
                late += self._not_compiled(group, outcome)
        return tuple(late)

    def counts(self) -> BuiltFunctions:
        """How many functions were compiled, and how many the cache had."""
        cached = sum(compiled.path in self._cached for compiled in self._compiled.values())
        return BuiltFunctions(compiled=len(self._compiled) - cached, cached=cached)

    def modules(self) -> list[tvm.runtime.Module]:
        """The objects, to be linked, in the order of their numbers."""
        names: dict[Path, list[str]] = {}
        for name, compiled in self._compiled.items():
            names.setdefault(compiled.path, []).append(name)
        return [tvm.runtime.load_static_library(str(path), names[path]) for path in sorted(names)]

    def _grouped(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        size = group_size(len(names))
        together = [name for name in names if name not in self._alone]
        alone = [(name,) for name in names if name in self._alone]
        return [*alone, *(tuple(together[i : i + size]) for i in range(0, len(together), size))]

    def _group(self, names: tuple[str, ...], functions: Mapping[str, tirx.PrimFunc]) -> _Group:
        text = text_of({name: functions[name] for name in names}, self._compiler.target)
        path = self._compiler.objects / f"kernels{next(self._numbers):04}.o"
        return _Group(names, text, key_of(text), path)

    def _without_cached(
        self, groups: Sequence[_Group], functions: Mapping[str, tirx.PrimFunc]
    ) -> list[_Group]:
        """The groups that the cache lacks; the objects of the others are copied."""
        before = len(self._compiled)
        found = self._compiler.cache.find([group.key for group in groups])
        for group in groups:
            if group.key in found:
                shutil.copyfile(found[group.key], group.path)
                self._cached.add(group.path)
                self._keep(group, functions)
        if found:
            self._compiler.advance(len(self._compiled), before + len(functions), "")
        return [group for group in groups if group.key not in found]

    def _keep(self, group: _Group, functions: Mapping[str, tirx.PrimFunc]) -> None:
        self._compiled |= {name: _CompiledFunction(functions[name], group.path) for name in group.names}

    def _order(self, group: _Group, shares: Mapping[str, float]) -> CompileFunctions:
        call = partial(write_object_of, group.text, group.path, self._compiler.with_sources)
        seconds = group_seconds(tuple(shares[name] for name in group.names))
        return CompileFunctions(group.names, pickle.dumps(call), seconds)

    def _reporter(self, count: int) -> Callable[[CompileProgress], None]:
        before = len(self._compiled)

        def report(progress: CompileProgress) -> None:
            self._compiler.advance(before + progress.done, before + count, next(iter(progress.running), ""))

        return report

    def _not_compiled(self, group: _Group, outcome: CompileOutcome) -> tuple[str, ...]:
        """The name of a late function; none for a group, whose functions are compiled again one by one."""
        names = group.names
        _remove(group.path)
        if len(names) > 1:
            self._alone.update(names)
            return ()
        if outcome.failure is not None:
            code, detail = outcome.failure
            raise JobError(code, f"function {names[0]}: {detail}")
        return names


class _Group(NamedTuple):
    """Functions of one object: their text, its key in the cache, and the object's path."""

    names: tuple[str, ...]
    text: bytes
    key: Digest
    path: Path


class _CompiledFunction(NamedTuple):
    function: tirx.PrimFunc
    path: Path


def _is_same(function: tirx.PrimFunc, other: tirx.PrimFunc) -> bool:
    return bool(function.same_as(other)) or structural_equal(function, other)


def _remove(path: Path) -> None:
    """Remove an object and the files beside it."""
    for file in path.parent.glob(f"{path.stem}.*"):
        file.unlink()
