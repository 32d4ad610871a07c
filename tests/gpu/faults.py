"""What a kernel must not do."""

from __future__ import annotations

from enum import Enum
from typing import Any


class Fault(Enum):
    """The kinds of faults that the executor finds."""

    OUT_OF_BOUNDS = "out of bounds"
    UNINITIALIZED = "uninitialized read"
    UNWRITTEN = "unwritten output"
    RACE = "race"
    BEFORE_WAIT = "use of an asynchronous copy before its wait"
    DIVERGENT = "divergent synchronization"
    MISALIGNED = "misaligned access"
    DIVISION = "integer division by zero"
    OUTSIDE = "memory of the device touched outside a kernel"
    LIMIT = "limit of the device"
    UNSUPPORTED = "unsupported node"


class KernelFault(Exception):  # noqa: N818 - the kernel's fault, not an error of the executor
    """A kernel broke a rule of the machine. ``statement`` is the TIR statement that did."""

    def __init__(self, fault: Fault, detail: str) -> None:
        self.fault = fault
        self.detail = detail
        self.statement: Any = None
        super().__init__(fault, detail)

    def __str__(self) -> str:
        where = "" if self.statement is None else f"\nin: {str(self.statement).splitlines()[-1].strip()}"
        return f"{self.fault.value}: {self.detail}{where}"
