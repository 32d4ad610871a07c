"""Chooses the kernels that a module calls: those that the request names, or those that measure faster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import tvm
from tvm import relax

from bessemer.contract.offers import operator_of
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import KernelChoice
from bessemer.contract.request import AUTO, OURS
from worker.compiler.kernels.functions import require_functions
from worker.compiler.kernels.kernel import Kernel
from worker.compiler.kernels.registry import KernelBook
from worker.compiler.kernels.uses import Use, call_kernels, find_uses
from worker.errors import JobError

CLEAR_WIN = 0.9
"""A kernel is called only if it takes at most this share of the time of our own schedules in nine of ten
rounds: it prevents fusion and adds its library to the bundle, 25 MB for OpenBLAS."""


class Times(NamedTuple):
    """Milliseconds of one call by a kernel and by our own schedules, and the ratio's 90th percentile."""

    kernel_ms: float
    own_ms: float
    ratio: float


Measure = Callable[[Use], Times | None]
"""Times both sides; returns None if one of them crashed, in which case the kernel is not called."""


@dataclass(frozen=True)
class Chosen:
    """The module that calls kernels, the choices, and the workloads that a kernel could compute."""

    module: tvm.IRModule
    choices: tuple[KernelChoice, ...]
    workloads: tuple[str, ...]


@dataclass(frozen=True)
class _Decision:
    use: Use
    takes_kernel: bool
    times: Times | None


def check_choices(choices: Mapping[str, str], book: KernelBook, architecture: str) -> None:
    """Refuse choices of kernels that cannot be linked.

    Raises:
        JobError: ``kernel-unavailable`` for one that is not compiled for the architecture;
            ``library-function-missing`` for one whose function no extension defines.
    """
    for key, name in choices.items():
        operator = operator_of(key)
        for kernel in _kernels(book, operator, name):
            path = kernel.object_for(architecture)
            if path is None:
                require_functions((kernel.symbol,))
            elif not path.is_file():
                detail = f"the kernel '{name}' for '{operator}' is not compiled for {architecture}: no {path}"
                raise JobError(ErrorCode.KERNEL_UNAVAILABLE, detail)


def check_workloads(choices: Mapping[str, str], workloads: Sequence[str]) -> None:
    """Refuse a choice for a workload that is not among these.

    Raises:
        JobError: ``kernel-unknown``.
    """
    for key in choices:
        if key != operator_of(key) and key not in workloads:
            known = (
                f"it has {', '.join(workloads)}" if workloads else "no kernel computes any of its workloads"
            )
            raise JobError(ErrorCode.KERNEL_UNKNOWN, f"the model has no workload '{key}'; {known}")


def choose_kernels(
    module: tvm.IRModule, choices: Mapping[str, str], book: KernelBook, measure: Measure
) -> Chosen:
    """Let ``main`` call kernels where the request asks for them.

    Args:
        module: in Relax operators.
        choices: a library's name, ``auto`` or ``none``, by operator or by workload.
        book: all kernels.
        measure: times a use both ways; called once for each workload whose choice is ``auto``.
    """
    uses = tuple(_uses(module["main"], choices, book))
    wanted = [use for use in uses if _requested(use, choices) in (AUTO, use.kernel.name)]
    timed: dict[tuple[str, str], Times | None] = {}
    decisions = [_decide(use, choices, timed, measure) for use in wanted]
    taken = list(_without_overlap(decision for decision in decisions if decision.takes_kernel))
    kept = [
        decision if decision in taken else replace(decision, takes_kernel=False) for decision in decisions
    ]
    changed = call_kernels(module, [decision.use for decision in taken]) if taken else module
    workloads = tuple(dict.fromkeys(use.workload for use in uses))
    return Chosen(changed, tuple(_summary(kept)), workloads)


def _requested(use: Use, choices: Mapping[str, str]) -> str:
    return choices.get(use.workload, choices.get(use.kernel.operator, OURS))


def _kernels(book: KernelBook, operator: str, name: str) -> tuple[Kernel, ...]:
    return tuple(
        kernel for kernel in book.kernels.values() if kernel.operator == operator and kernel.name == name
    )


def _uses(main: relax.Function, choices: Mapping[str, str], book: KernelBook) -> Iterator[Use]:
    """The uses that the kernels of the named operators could compute."""
    for operator in dict.fromkeys(map(operator_of, choices)):
        for name in book.names(operator):
            yield from find_uses(main, _kernels(book, operator, name))


def _decide(
    use: Use, choices: Mapping[str, str], timed: dict[tuple[str, str], Times | None], measure: Measure
) -> _Decision:
    if _requested(use, choices) != AUTO:
        return _Decision(use, takes_kernel=True, times=None)
    if use.has_dynamic_sizes:
        return _Decision(use, takes_kernel=False, times=None)
    key = use.kernel.symbol, use.workload
    if key not in timed:
        timed[key] = measure(use)
    times = timed[key]
    return _Decision(use, times is not None and times.ratio <= CLEAR_WIN, times)


def _without_overlap(decisions: Iterable[_Decision]) -> Iterator[_Decision]:
    """Prefer longer chains, then faster kernels; drop uses that overlap with a preferred one."""

    def rank(decision: _Decision) -> tuple[int, float]:
        return -len(decision.use.variables), decision.times.kernel_ms if decision.times else 0.0

    claimed: set[relax.Var] = set()
    for decision in sorted(decisions, key=rank):
        if claimed.isdisjoint(decision.use.variables):
            claimed.update(decision.use.variables)
            yield decision


def _summary(decisions: Iterable[_Decision]) -> Iterator[KernelChoice]:
    """One entry for each workload, kernel and decision."""
    grouped: dict[tuple[str, str, bool], list[_Decision]] = {}
    for decision in decisions:
        key = decision.use.workload, decision.use.kernel.symbol, decision.takes_kernel
        grouped.setdefault(key, []).append(decision)
    for (workload, symbol, takes), group in grouped.items():
        times = group[0].times
        yield KernelChoice(
            workload=workload,
            kernel=group[0].use.kernel.name,
            symbol=symbol,
            calls=len(group),
            used=takes,
            kernel_ms=times.kernel_ms if times else None,
            own_ms=times.own_ms if times else None,
        )
