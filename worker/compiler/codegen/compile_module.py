"""Compiles all functions of a module, and splits those that exceed their shares of time.

::

    while functions are not compiled:
        compile each within its share
        replace each late one by its parts; fail if it has none
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import tvm
from tvm import tirx

from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import BuiltFunctions, FunctionSplit
from worker.compiler.codegen.compile_functions import Compiler, Objects
from worker.compiler.codegen.splitting import Pieces, pieces_of, split_functions, steps_of
from worker.compiler.codegen.time_limits import last_share_seconds, share_seconds
from worker.compiler.schedules.default import default_schedule
from worker.errors import JobError

Lower = Callable[[tvm.IRModule, tvm.target.Target], tvm.IRModule]


class FunctionTooSlowError(JobError):
    """A function that cannot be split exceeded its time.

    Attributes:
        whole: the model's function: this one, or the one that was split into it.
    """

    def __init__(self, function: str, whole: str, seconds: float) -> None:
        which = function if function == whole else f"{function}, a part of {whole},"
        detail = f"function {which} did not compile in {seconds:.0f} s of processor time"
        super().__init__(ErrorCode.FUNCTION_TOO_SLOW, detail)
        self.whole = whole


@dataclass(frozen=True)
class Compiled:
    """A module whose functions are all compiled.

    Attributes:
        lowered: the functions as compiled, with the lowered Relax functions.
        plain: the TensorIR functions without schedules.
        kernels: the objects of its TensorIR functions.
        splits: the functions that were split.
        built_functions: how many functions were compiled.
    """

    lowered: tvm.IRModule
    plain: tvm.IRModule
    kernels: list[tvm.runtime.Module]
    splits: tuple[FunctionSplit, ...]
    built_functions: BuiltFunctions


def compile_in_shares(
    module: tvm.IRModule, plain: tvm.IRModule, lower: Lower, compiler: Compiler
) -> Compiled:
    """Compile every TensorIR function of a module within its share of time.

    Args:
        module: every function is scheduled.
        plain: the same functions without schedules.
        lower: lowers the Relax functions and adds the functions that they call.
        compiler: how to compile.

    Raises:
        JobError: ``build-failed``, or ``function-too-slow``: a function that cannot be split took too long.
    """
    work = _Work(module, plain, compiler)
    lowered = lower(work.module, compiler.target)
    while missing := work.objects.missing(lowered):
        shares = work.shares(missing)
        late = work.objects.compile(missing, shares)
        if late:
            work.split({name: shares[name] for name in late})
            lowered = lower(work.module, compiler.target)
    return Compiled(lowered, work.plain, work.objects.modules(), tuple(work.splits), work.objects.counts())


@dataclass
class _Work:
    """The module during compilation; parts replace functions that take too long."""

    module: tvm.IRModule
    plain: tvm.IRModule
    compiler: Compiler
    splits: list[FunctionSplit] = field(default_factory=list)
    whole: set[str] = field(default_factory=set)
    """Names of functions that cannot be split."""

    def __post_init__(self) -> None:
        self.objects = Objects(self.compiler)

    def shares(self, functions: Mapping[str, tirx.PrimFunc]) -> dict[str, float]:
        """Seconds of processor time for each function."""
        left = self.compiler.left_seconds()
        plain = {str(variable.name_hint): function for variable, function in self.plain.functions_items()}
        steps = {
            name: steps_of(plain[name]) if name in plain and name not in self.whole else 1
            for name in functions
        }
        self.whole |= {name for name, own in steps.items() if own == 1}
        all_steps = sum(steps.values())
        return {
            name: share_seconds(left, own, all_steps) if own > 1 else last_share_seconds(left)
            for name, own in steps.items()
        }

    def split(self, late: Mapping[str, float]) -> None:
        """Split functions that took longer than their shares.

        Raises:
            FunctionTooSlowError: a function without parts used up its last share.
        """
        pieces = {name: self._pieces(name, seconds) for name, seconds in late.items()}
        found = {name: own for name, own in pieces.items() if own is not None}
        scheduled = {name: own.changed(self._schedule) for name, own in found.items()}
        self.plain = split_functions(self.plain, found).module
        self.module, parts = split_functions(self.module, scheduled)
        self.splits += [FunctionSplit(name=name, seconds=late[name], parts=parts[name]) for name in found]

    def _pieces(self, name: str, seconds: float) -> Pieces | None:
        if name in self.whole:
            raise FunctionTooSlowError(name, self._whole_of(name), seconds)
        pieces = pieces_of(name, self.plain)
        if pieces is None:
            self.whole.add(name)
        return pieces

    def _whole_of(self, name: str) -> str:
        """The function that was split into this one, or the function itself."""
        return next((split.name for split in self.splits if name in split.parts), name)

    def _schedule(self, function: tirx.PrimFunc) -> tirx.PrimFunc:
        return default_schedule(function, self.compiler.target)
