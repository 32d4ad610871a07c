"""Estimates the cycles of a run from its calls, for processors that are not available to measure it.

Each call takes the larger of two times, divided evenly among all threads::

    arithmetic    the multiply-adds of its products, in full vectors, on all ports
    memory        the bytes of its tensors, each once, as full vectors from the first-level cache

This is the roofline model of Williams, Waterman and Patterson (2009) with the first-level cache as memory. It
leaves out cache misses, conversions, functions such as ``exp`` and the start of each call.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import tvm
import tvm_ffi
from tvm import tirx

from bessemer.contract.report import Estimate
from worker.compiler.codegen.flops import find_products
from worker.compiler.codegen.standalone.plan import CallPlan, PlannedTensor
from worker.compiler.schedules.processors import Machine

_FLOPS_PER_MULTIPLY_ADD = 2
_FLOAT_BITS = 32


def flops_of_functions(module: tvm.IRModule) -> dict[str, int]:
    """The floating-point operations of each function's products, of a module without schedules."""
    return {
        variable.name_hint: sum(product.flops for product in find_products(function))
        for variable, function in module.functions_items()
        if isinstance(function, tirx.PrimFunc)
    }


def estimate_run(plan: CallPlan, flops: Mapping[str, int], machine: Machine) -> Estimate:
    """The work of one run, and the cycles that it takes at full rates.

    Args:
        plan: the calls of the run.
        flops: the operations of one call of each function; see ``flops_of_functions``.
        machine: the processor, whose threads share the work evenly.
    """
    flops_per_cycle = _FLOPS_PER_MULTIPLY_ADD * machine.fma_ports * machine.lanes(_FLOAT_BITS)
    bytes_per_cycle = machine.loads_per_cycle * machine.vector_bits / 8
    operations = [flops.get(call.function, 0) for call in plan.calls]
    moved = [sum(bytes_of(plan.tensors[one]) for one in call.arguments) for call in plan.calls]
    cycles = (
        max(work / flops_per_cycle, size / bytes_per_cycle)
        for work, size in zip(operations, moved, strict=True)
    )
    return Estimate(
        flops=sum(operations),
        moved_bytes=sum(moved),
        cycles=round(sum(cycles) / machine.threads),
        threads=machine.threads,
    )


def bytes_of(tensor: PlannedTensor) -> int:
    """The size of a tensor."""
    return prod(tensor.shape) * -(-int(tvm_ffi.dtype(tensor.dtype).bits) // 8)
