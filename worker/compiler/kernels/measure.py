"""Compares a use of a kernel with our own schedules: times two small libraries in alternation."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst

from worker.candidates.client import CandidateClient, LibraryCrashedError, ProcessSide
from worker.compiler.kernels.choose import Times
from worker.compiler.kernels.uses import Use, call_kernels, find_uses, operand_of
from worker.measure.rounds import alternate
from worker.measure.statistics import latency, round_ratios

SECONDS = 0.15
"""Time for the rounds of both sides together."""

_log = logging.getLogger(__name__)

Compile = Callable[[tvm.IRModule, Path], None]
"""Optimizes, schedules and links a module of one function, ``main``, to a library at a path."""


@dataclass(frozen=True)
class KernelComparison:
    """Times uses of kernels beside our own schedules, in processes of the candidate server."""

    candidates: CandidateClient
    folder: Path
    threads: int
    compile: Compile
    numbers: count[int]

    def measure(self, use: Use) -> Times | None:
        """Time both sides on the same inputs; weights that are constants are the module's own.

        Raises:
            JobError: one side cannot be built.
        """
        try:
            return self._alternate(use)
        except LibraryCrashedError as error:
            _log.warning("%s by %s was not measured: %s", use.workload, use.kernel.symbol, error)
            return None

    def _alternate(self, use: Use) -> Times:
        folder = self.folder / str(next(self.numbers))
        own = isolate(use)
        kernel = call_kernels(own, find_uses(own["main"], (use.kernel,)))
        data = operand_of(use.operands[0])
        shape = tuple(size or 1 for size in data.shape)
        inputs = (np.random.default_rng(0).standard_normal(shape).astype(data.dtype),)
        with ExitStack() as stack:
            sides = []
            for name, module in (("kernel", kernel), ("own", own)):
                path = folder / name / "model.so"
                self.compile(module, path)
                library = stack.enter_context(self.candidates.open_library(path, self.threads))
                library.run(inputs)
                sides.append(ProcessSide(library))
            with self.candidates.turn():
                rounds = alternate(tuple(sides), SECONDS, lambda _done, _of: None)
        kernel_ms, own_ms = (latency(rounds.runs(side)).p50_ms for side in range(2))
        return Times(kernel_ms, own_ms, round_ratios(*rounds.sides).p90)


def isolate(use: Use) -> tvm.IRModule:
    """A module whose ``main`` computes only the chain, from its first operand."""
    builder = relax.BlockBuilder()
    data = relax.Var("x", use.operands[0].ty)
    known = {use.operands[0]: data}
    with builder.function("main", [data]):
        with builder.dataflow():
            for variable, call in zip(use.variables, use.calls, strict=True):
                arguments = [_replaced(argument, known) for argument in call.args]
                known[variable] = builder.emit(relax.Call(call.op, arguments, call.attrs))
            output = builder.emit_output(relax.Tuple([known[use.result]]))
        builder.emit_func_output(output)
    return builder.get()


def _replaced(argument: relax.Expr, known: dict[relax.Expr, relax.Var]) -> relax.Expr:
    if isinstance(argument, relax.Var) and argument in known:
        return known[argument]
    if isinstance(argument, GenericConst) or not isinstance(argument.ty, relax.TensorType):
        return argument
    operand = operand_of(argument)
    values = np.random.default_rng(1).standard_normal(tuple(size or 1 for size in operand.shape))
    return relax.const(values.astype(operand.dtype), operand.dtype)
