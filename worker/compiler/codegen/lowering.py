"""Lowers TensorIR functions to what LLVM compiles: TVM's passes, with ours between them.

::

    indices that count down are made to count up                reversed_indices
    loops of a known, shorter last iteration are split off      loop_partition
    blocks become loops, indices become offsets                 TVM
    assertions that cannot fail are removed                     argument_checks
    vectors of unknown length, registers                        vector_length, stack_registers

TVM computes from every access which part of a buffer is used, to make the buffer smaller. For a convolution
with a border, that takes half of the time to compile it. Functions without blocks but their root have final
loops, which a family wrote with buffers as small as they need to be, so modules of such functions skip it.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.tirx.compilation_pipeline import PIPELINE_MAP

from worker.compiler.codegen.argument_checks import skip_needless_checks
from worker.compiler.codegen.loop_partition import partition_hinted_loops
from worker.compiler.codegen.lowerings import register_lowerings
from worker.compiler.codegen.reversed_indices import count_up
from worker.compiler.codegen.stack_registers import keep_registers_on_stack
from worker.compiler.codegen.vector_length import check_vector_length

PIPELINE = "bessemer"
"""The name under which ``tirx.build`` and ``relax.build`` find this lowering."""

_SHRINKING = "s_tir.CompactBufferAllocation"


def _pipeline() -> tuple[tvm.transform.Pass, object, object]:
    register_lowerings()
    lower, finalize_host, finalize_device = PIPELINE_MAP["s_tir"]()
    passes = tvm.transform.Sequential([count_up, partition_hinted_loops, lower])

    @tvm.transform.module_pass(opt_level=0, name="LowerFunctions")
    def lower_functions(module: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
        if not all(map(_has_final_loops, module.functions.values())):
            return passes(module)
        with tvm.transform.PassContext(
            opt_level=context.opt_level,
            required_pass=context.required_pass,
            disabled_pass=[*context.disabled_pass, _SHRINKING],
            config=dict(context.config),
        ):
            return passes(module)

    def finalize() -> tvm.transform.Pass:
        return tvm.transform.Sequential(
            [skip_needless_checks, check_vector_length, keep_registers_on_stack, finalize_host()]
        )

    return lower_functions, finalize, finalize_device


def _has_final_loops(function: object) -> bool:
    """Whether a TensorIR function has no block in its root block."""
    if not isinstance(function, tirx.PrimFunc) or not isinstance(function.body, s_tir.SBlockRealize):
        return False
    inner: list[s_tir.SBlock] = []
    tvm_ffi.structural_walk(function.body.block.body, (s_tir.SBlock, inner.append))
    return not inner


PIPELINE_MAP[PIPELINE] = _pipeline
