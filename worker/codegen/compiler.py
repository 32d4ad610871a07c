"""Compiling the TensorIR functions of a module to objects, each within its share of time."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import inf
from pathlib import Path
from typing import Protocol

import tvm
from tvm import tirx
from tvm_ffi import structural_equal

from worker.candidates.compiling import compile_function
from worker.candidates.requests import CompileBatch, CompileFunction, CompileOutcome, Compiling
from worker.codegen.objects import write_object
from worker.errors import JobError


class CompileMany(Protocol):
    """Compiles a batch of functions and tells how far it is, as ``Candidates.compile_many`` does."""

    def __call__(self, batch: CompileBatch, told: Callable[[Compiling], None]) -> tuple[CompileOutcome, ...]:
        """One outcome per function, in their order."""
        ...


def compile_here(batch: CompileBatch, told: Callable[[Compiling], None]) -> tuple[CompileOutcome, ...]:
    """Compile a batch in this process, where a function may take any time."""
    outcomes = []
    for index, function in enumerate(batch.functions):
        told(Compiling(index, (function.name,)))
        outcomes.append(CompileOutcome(compile_function(function)))
    return tuple(outcomes)


def _unlimited() -> float:
    return inf


def _not_told(_done: int, _total: int, _detail: str) -> None:
    pass


@dataclass(frozen=True)
class Compiler:
    """Compiles functions for a target.

    Attributes:
        target: for which processor.
        objects: a folder for the objects; made if missing.
        compile_many: where the compilers run.
        with_sources: leave LLVM IR and assembly beside the objects.
        left_seconds: what the job has left of its time.
        advance: told how many functions of how many are done, and which is being compiled.
    """

    target: tvm.target.Target
    objects: Path
    compile_many: CompileMany = compile_here
    with_sources: bool = False
    left_seconds: Callable[[], float] = _unlimited
    advance: Callable[[int, int, str], None] = _not_told


class Objects:
    """The compiled functions of one module, by name. A function that has changed is compiled again."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._numbers = count()
        self._compiled: dict[str, tuple[tirx.PrimFunc, Path]] = {}

    def missing(self, module: tvm.IRModule) -> dict[str, tirx.PrimFunc]:
        """The TensorIR functions of a module that are not compiled."""
        functions = {
            str(variable.name_hint): function
            for variable, function in module.functions_items()
            if isinstance(function, tirx.PrimFunc)
        }
        return {name: function for name, function in functions.items() if not self._has(name, function)}

    def compile(self, functions: Mapping[str, tirx.PrimFunc], shares: Mapping[str, float]) -> tuple[str, ...]:
        """Compile functions, each within its share in seconds of processor time.

        Returns:
            The names of those that took longer.

        Raises:
            JobError: ``build-failed``: a function cannot be compiled.
        """
        paths = {name: self._compiler.objects / f"kernel{next(self._numbers):04}.o" for name in functions}
        orders = tuple(
            self._order(name, function, paths[name], shares[name]) for name, function in functions.items()
        )
        batch = CompileBatch(orders, workers=len(os.sched_getaffinity(0)))
        before = len(self._compiled)

        def told(news: Compiling) -> None:
            running = news.running[0] if news.running else ""
            self._compiler.advance(before + news.done, before + len(orders), running)

        outcomes = self._compiler.compile_many(batch, told)
        for order, outcome in zip(orders, outcomes, strict=True):
            self._take(order.name, functions[order.name], paths[order.name], outcome)
        return tuple(order.name for order in orders if order.name not in self._compiled)

    def modules(self, module: tvm.IRModule) -> list[tvm.runtime.Module]:
        """The objects of a module's functions, to be linked."""
        named = {str(variable.name_hint) for variable in module.functions}
        return [
            tvm.runtime.load_static_library(str(path), [name])
            for name, (_, path) in self._compiled.items()
            if name in named
        ]

    def _has(self, name: str, function: tirx.PrimFunc) -> bool:
        return name in self._compiled and structural_equal(self._compiled[name][0], function)

    def _take(self, name: str, function: tirx.PrimFunc, path: Path, outcome: CompileOutcome) -> None:
        if outcome.failure is not None:
            code, detail = outcome.failure
            raise JobError(code, f"function {name}: {detail}")
        outdated = self._compiled.pop(name, None)
        if outdated is not None:
            _forget(outdated[1])
        if outcome.is_late:
            _forget(path)
        else:
            self._compiled[name] = (function, path)

    def _order(self, name: str, function: tirx.PrimFunc, path: Path, seconds: float) -> CompileFunction:
        module, compiler = tvm.IRModule({name: function}), self._compiler
        call = partial(write_object, module, compiler.target, path, compiler.with_sources)
        return CompileFunction(name, pickle.dumps(call), seconds)


def _forget(path: Path) -> None:
    """Remove an object and what was left beside it."""
    for file in path.parent.glob(f"{path.stem}.*"):
        file.unlink()
