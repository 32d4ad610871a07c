"""Sequences in blocks have one row: cut into parts of equal length they are scheduled as images are.

The parts take the place of rows. All families of windows then find what they need: enough rows for all
threads, and rows whose inputs stay in the second-level cache while all blocks of outputs pass by.
"""

from __future__ import annotations

from dataclasses import replace

from tvm import s_tir

from worker.compiler.schedules.families.windows import Windows
from worker.compiler.schedules.machine import divisors

_LONGEST = 64
_SHORTEST = 12


def cut_row(schedule: s_tir.Schedule, windows: Windows) -> Windows:
    """Cut the only row where it is long and has a divisor of a good length; else nothing changes."""
    batch, blocks, rows, columns, lanes = windows.sizes
    length = divisors(columns, _LONGEST)[-1]
    if rows > 1 or columns <= _LONGEST or length < _SHORTEST:
        return windows
    row, column = schedule.get_loops(windows.last)[2:4]
    part, _ = schedule.split(column, factors=[None, length])
    schedule.fuse(row, part)
    return replace(windows, sizes=(batch, blocks, columns // length, length, lanes))
