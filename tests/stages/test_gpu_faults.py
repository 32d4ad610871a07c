"""The reference executor for GPU kernels finds what a GPU would not forgive."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

from tests.gpu.faults import Fault, KernelFault
from tests.gpu.kernel import run_function

REVERSE = """
@T.prim_func(s_tir=True, private=True)
def reverse(x: T.Buffer((128,), "float32"), y: T.Buffer((128,), "float32")):
    block = T.launch_thread("blockIdx.x", 2)
    shared = T.alloc_buffer((64,), "float32", scope="shared")
    register = T.alloc_buffer((2,), "float32", scope="local")
    thread = T.launch_thread("threadIdx.x", 64)
    register[0] = x[block * 64 + thread]
    shared[thread] = register[0]
    T.tvm_storage_sync("shared")
    y[block * 64 + thread] = shared[63 - thread]
"""

COPY = """
@T.prim_func(s_tir=True, private=True)
def copy(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
    block = T.launch_thread("blockIdx.x", 1)
    shared = T.alloc_buffer((64,), "float32", scope="shared")
    thread = T.launch_thread("threadIdx.x", 16)
    T.evaluate(T.s_tir.cp_async_raw("float32", shared.data, thread * 4, x.data, thread * 4, 16))
    T.evaluate(T.call_intrin("void", "tirx.ptx.cp_async_commit_group"))
    T.evaluate(T.call_intrin("void", "tirx.ptx.cp_async_wait_group", 0))
    T.tvm_storage_sync("shared")
    for i in range(4):
        y[thread * 4 + i] = shared[(15 - thread) * 4 + i]
"""

BARRIER = '    T.tvm_storage_sync("shared")\n'
WAIT = '    T.evaluate(T.call_intrin("void", "tirx.ptx.cp_async_wait_group", 0))\n'


def kernel(source: str) -> Any:
    """A function as TVM leaves it when it has lowered it, from TVMScript."""
    return tvm.script.from_source(source, extra_vars={"T": T})


def run(source: str, size: int) -> np.ndarray:
    x, y = np.arange(1, size + 1, dtype=np.float32), np.zeros(size, np.float32)
    run_function(kernel(source), [x, y], 1)
    return y


def test_a_correct_kernel_passes() -> None:
    np.testing.assert_array_equal(
        run(REVERSE, 128), np.arange(1, 129, dtype=np.float32).reshape(2, 64)[:, ::-1].reshape(-1)
    )
    np.testing.assert_array_equal(
        run(COPY, 64), np.arange(1, 65, dtype=np.float32).reshape(16, 4)[::-1].reshape(-1)
    )


@pytest.mark.parametrize(
    ("fault", "right", "wrong"),
    [
        pytest.param(Fault.RACE, BARRIER, "", id="a removed barrier"),
        pytest.param(Fault.RACE, BARRIER, BARRIER.replace("shared", "warp"), id="a barrier of warps only"),
        pytest.param(Fault.OUT_OF_BOUNDS, "[63 - thread]", "[64 - thread]", id="an index too large by one"),
        pytest.param(Fault.OUT_OF_BOUNDS, "x[block * 64", "x[block * 64 - 1", id="a negative index"),
        pytest.param(Fault.RACE, "y[block * 64 + thread]", "y[thread]", id="blocks that write the same"),
        pytest.param(
            Fault.RACE, "y[block * 64 + thread]", "y[thread // 2]", id="threads that write the same"
        ),
        pytest.param(Fault.UNWRITTEN, "    y[", "    if thread < 63:\n        y[", id="an unwritten output"),
        pytest.param(
            Fault.DIVERGENT, BARRIER, f"    if thread < 63:\n    {BARRIER}", id="a barrier for some threads"
        ),
        pytest.param(Fault.UNINITIALIZED, "= register[0]", "= register[1]", id="a register nobody wrote"),
        pytest.param(
            Fault.UNINITIALIZED,
            "    shared[thread]",
            "    if thread > 0:\n        shared[thread]",
            id="shared memory nobody wrote",
        ),
        pytest.param(Fault.UNINITIALIZED, "= x[block", "= y[block", id="an output read before it is written"),
        pytest.param(
            Fault.MISALIGNED,
            "    y[block * 64 + thread] = shared[63 - thread]",
            "    if thread < 15:\n        y[T.ramp(block * 64 + thread * 4 + 1, 1, 4)] = T.broadcast(shared[0], 4)",
            id="a vector at an odd address",
        ),
        pytest.param(Fault.DIVISION, "[63 - thread]", "[63 // (thread - 3)]", id="a division by zero"),
        pytest.param(Fault.LIMIT, 'threadIdx.x", 64', 'threadIdx.x", 2048', id="too many threads"),
        pytest.param(Fault.LIMIT, "alloc_buffer((64,)", "alloc_buffer((64000,)", id="too much shared memory"),
    ],
)
def test_a_faulty_kernel_is_caught(fault: Fault, right: str, wrong: str) -> None:
    assert right in REVERSE
    with pytest.raises(KernelFault) as caught:
        run(REVERSE.replace(right, wrong), 128)
    assert caught.value.fault is fault


@pytest.mark.parametrize(
    ("fault", "right", "wrong"),
    [
        pytest.param(Fault.BEFORE_WAIT, WAIT, "", id="no wait"),
        pytest.param(Fault.BEFORE_WAIT, 'wait_group", 0', 'wait_group", 1', id="a wait for the group before"),
        pytest.param(Fault.RACE, BARRIER, "", id="a wait without a barrier"),
        pytest.param(
            Fault.BEFORE_WAIT,
            WAIT + BARRIER,
            BARRIER + '    register = T.alloc_buffer((1,), scope="local")\n'
            "    register[0] = shared[thread * 4]\n" + WAIT + BARRIER,
            id="a read of its own copy before the wait",
        ),
        pytest.param(Fault.MISALIGNED, "thread * 4, 16", "thread * 3, 16", id="a source between vectors"),
    ],
)
def test_a_faulty_asynchronous_copy_is_caught(fault: Fault, right: str, wrong: str) -> None:
    assert right in COPY
    with pytest.raises(KernelFault) as caught:
        run(COPY.replace(right, wrong), 64)
    assert caught.value.fault is fault


def test_a_fault_names_buffer_element_threads_and_statement() -> None:
    with pytest.raises(KernelFault) as caught:
        run(REVERSE.replace(BARRIER, ""), 128)
    assert str(caught.value) == (
        "race: thread (63, 0, 0) of block (0, 0, 0) wrote cell 63 of shared and thread (0, 0, 0) of block (0, 0, 0)"
        " reads it without a barrier in between\n"
        "in: y[block * 64 + thread] = shared[63 - thread]"
    )


def test_memory_touched_by_the_host_is_caught() -> None:
    source = """
@T.prim_func(s_tir=True, private=True)
def serial(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
    for i in range(8):
        y[i] = x[i]
"""
    with pytest.raises(KernelFault) as caught:
        run(source, 8)
    assert caught.value.fault is Fault.OUTSIDE
