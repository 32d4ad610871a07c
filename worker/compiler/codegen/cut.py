"""Cuts a fused TensorIR function between its blocks.

Emits, for ``f(x, y): t = g(x); y = h(t)``::

    part0(x, t): t = g(x)
    part1(t, y): y = h(t)

Statements that write the same buffer, and those between them, stay in one part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tvm_ffi
from tvm import s_tir, tirx
from tvm.tirx.analysis import undefined_vars

from worker.compiler.schedules.annotations import PATTERN


@dataclass(frozen=True)
class Part:
    """One part of a function that was cut.

    Attributes:
        function: takes ``inputs``, then ``outputs``; it has no schedule.
        inputs: the buffers of the whole function that the part reads.
        outputs: the buffers of the whole function that the part writes.
    """

    function: tirx.PrimFunc
    inputs: tuple[tirx.Var, ...]
    outputs: tuple[tirx.Var, ...]


@dataclass(frozen=True)
class _Step:
    """Statements that stay together, and the buffers that they use."""

    statements: tuple[tirx.Stmt, ...]
    reads: tuple[tirx.Var, ...]
    writes: tuple[tirx.Var, ...]


def steps_of(function: tirx.PrimFunc) -> int:
    """The number of statements between which a function can be cut."""
    return max(1, len(_statements(function)))


def cut(function: tirx.PrimFunc) -> tuple[Part, ...]:
    """The parts of a function in execution order.

    Args:
        function: legalized and fused, without a schedule.

    Returns:
        At least two parts, or an empty tuple if the function cannot be cut.
    """
    steps: list[_Step] = []
    for statement in _statements(function):
        step = _read_step(statement, (*function.params, *function.body.block.alloc_buffers))
        if step is None:
            return ()
        steps = _followed(steps, step)
    return tuple(_make_part(step, function) for step in steps) if len(steps) > 1 else ()


def _statements(function: tirx.PrimFunc) -> tuple[tirx.Stmt, ...]:
    """The statements of the root block; empty if it has only one."""
    if not isinstance(function.body, s_tir.SBlockRealize):
        return ()
    body = function.body.block.body
    return tuple(body.seq) if isinstance(body, tirx.SeqStmt) else ()


def _read_step(statement: tirx.Stmt, buffers: Sequence[tirx.Var]) -> _Step | None:
    """A statement and the buffers that it uses; None if its blocks do not declare what they write."""
    written: set[tirx.Var] = set()
    read: set[tirx.Var] = set(undefined_vars(statement, []))

    def visit(block: s_tir.SBlock) -> None:
        written.update(region.source for region in block.writes)
        read.update(region.source for region in block.reads)

    tvm_ffi.structural_walk(statement, (s_tir.SBlock, visit))
    writes = tuple(buffer for buffer in buffers if buffer in written)
    reads = tuple(buffer for buffer in buffers if buffer in read and buffer not in written)
    return _Step((statement,), reads, writes) if writes else None


def _followed(steps: list[_Step], step: _Step) -> list[_Step]:
    """Add a step. If an earlier step writes the same buffer, merge all steps from there on."""
    first = next((i for i, other in enumerate(steps) if set(step.writes) & set(other.writes)), len(steps))
    together = (*steps[first:], step)
    writes = dict.fromkeys(buffer for each in together for buffer in each.writes)
    reads = dict.fromkeys(buffer for each in together for buffer in each.reads if buffer not in writes)
    statements = tuple(statement for each in together for statement in each.statements)
    return [*steps[:first], _Step(statements, tuple(reads), tuple(writes))]


def _make_part(step: _Step, whole: tirx.PrimFunc) -> Part:
    body = step.statements[0] if len(step.statements) == 1 else tirx.SeqStmt(step.statements)
    root = s_tir.SBlockRealize([], True, s_tir.SBlock([], [], [], "root", body))
    function = tirx.PrimFunc([*step.reads, *step.writes], root, attrs=whole.attrs)
    return Part(function.without_attr(PATTERN), step.reads, step.writes)
