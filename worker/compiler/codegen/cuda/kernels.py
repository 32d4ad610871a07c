"""Lowers functions that are scheduled for a GPU to CUDA source and the launches that each call makes.

::

    fused_matmul_relu(x, w, y)     →   __global__ fused_matmul_relu_kernel(y, x, w)      in the source
                                       8 blocks of 16 * 16 threads, (y, x, w)  a ``GpuLaunch``
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir.pipeline import finalize_device_passes

from worker.candidates.gpu_timing import GpuLaunch
from worker.compiler.codegen.reversed_indices import count_up
from worker.compiler.schedules.gpu.chips import Gpu

_LAUNCH = "tirx.call_ffi_kernel"
_CONSTANTS = {
    "nanf/*nan*/": "__int_as_float(0x7fffffff)",
    "inff/*inf*/": "__int_as_float(0x7f800000)",
}
"""Half-precision constants that TVM (0.27) writes as invalid C, with valid replacements."""

_SHARED_ARRAY = re.compile(r"extern __shared__ __align__\(\d+\) (\w+(?: \w+)*) (\w+)\[\];")
_SHARED_POINTER = (
    r"extern __shared__ __align__(1024) unsigned char bessemer_shared[]; "
    r"\1 *__restrict__ \2 = (\1 *)bessemer_shared;"
)
"""All kernels of a source share one name for dynamic shared memory, so it has one type and alignment."""

_EIGHT_NUMBERS = re.compile(r"make_ulonglong4\(((?:\(uint\)\d+, ){7}\(uint\)\d+)\)")
_EIGHT_NUMBERS_HELPER = """\
static __forceinline__ __device__ ulonglong4 bessemer_uint8(unsigned a, unsigned b, unsigned c, unsigned d,
                                                            unsigned e, unsigned f, unsigned g, unsigned h) {
  alignas(32) uint2 parts[4] = {{a, b}, {c, d}, {e, f}, {g, h}};
  return *(ulonglong4 *)parts;
}
"""
"""Takes eight 32-bit numbers, which TVM (0.27) passes to a function of four 64-bit numbers."""

_BOOLEANS = re.compile(r"bool\* __restrict__ (\w+)")
"""Boolean parameters of kernels."""

_SHARED = "tirx.use_dyn_shared_memory"


@dataclass(frozen=True)
class GpuFunction:
    """What a call of a function does: its launches, in order, on memory of its parameters and workspaces.

    Attributes:
        launches: the launches.
        workspaces: bytes of each buffer that only these launches use.
    """

    launches: tuple[GpuLaunch, ...]
    workspaces: tuple[int, ...] = ()

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels, in the order of the launches."""
        return tuple(launch.kernel for launch in self.launches)


@dataclass(frozen=True)
class GpuCode:
    """Kernels as CUDA, and the functions that launch them."""

    source: str
    functions: Mapping[str, GpuFunction]


def lower_for_gpu(functions: Mapping[str, tirx.PrimFunc], gpu: Gpu) -> GpuCode:
    """Lower scheduled functions to CUDA.

    Args:
        functions: functions by name; their loops are bound to threads.
        gpu: the GPU.
    """
    named = {name: function.with_attr("global_symbol", name) for name, function in functions.items()}
    with tvm.transform.PassContext(opt_level=3):
        module = lower_threads(tirx.transform.BindTarget(gpu.target)(tvm.IRModule(named)))
        lowered = {str(name.name_hint): one for name, one in _separated(module).functions_items()}
        source = _source_of(
            tvm.IRModule({name: one for name, one in lowered.items() if _is_kernel(one)}), gpu
        )
    return GpuCode(source, {name: _launches_of(name, lowered[name]) for name in functions})


def _is_kernel(function: tirx.PrimFunc) -> bool:
    return int(function.attrs.get("calling_conv", 0)) == 2


class NotLaunchableError(Exception):
    """The function does more than start kernels on buffers of fixed sizes; the message says what."""


def _launches_of(name: str, host: tirx.PrimFunc) -> GpuFunction:
    """Read the host's part of a function: buffers that it allocates, and kernels that it starts."""
    buffers = {parameter: index for index, parameter in enumerate(host.params)}
    workspaces: list[int] = []
    launches: list[GpuLaunch] = []
    for statement in _statements(host.body):
        if isinstance(statement, tirx.DeclBuffer):
            buffers[statement.buffer] = buffers[statement.data.args[0]]
        elif isinstance(statement, tirx.AllocBuffer):
            buffers[statement.buffer] = len(host.params) + len(workspaces)
            workspaces.append(_bytes_of(statement.buffer))
        elif isinstance(statement, tirx.Evaluate) and _is_launch(statement.value):
            launches.append(_launch(statement.value, buffers))
        else:
            raise NotLaunchableError(f"{name} computes outside its kernels: {str(statement)[:200]}")
    return GpuFunction(tuple(launches), tuple(workspaces))


def _statements(body: tirx.Stmt) -> Iterator[tirx.Stmt]:
    if isinstance(body, tirx.SeqStmt):
        for statement in body.seq:
            yield from _statements(statement)
    else:
        yield body


def _is_launch(value: Any) -> bool:
    return isinstance(value, tvm.ir.Call) and getattr(value.op, "name", "") == _LAUNCH


def _launch(call: Any, buffers: Mapping[tirx.Var, int]) -> GpuLaunch:
    names = tuple(map(str, call.attrs.launch_params))
    kernel, *arguments = call.args[: len(call.args) - len(names)]
    sizes = dict(zip(names, map(_number, call.args[len(call.args) - len(names) :]), strict=True))
    return GpuLaunch(
        kernel=str(kernel.value),
        grid=_extents("blockIdx", sizes),
        block=_extents("threadIdx", sizes),
        shared_bytes=sizes.get(_SHARED, 0),
        arguments=tuple(buffers[argument.args[0]] for argument in arguments),
    )


def _extents(axis: str, sizes: Mapping[str, int]) -> tuple[int, int, int]:
    x, y, z = (sizes.get(f"{axis}.{dimension}", 1) for dimension in "xyz")
    return x, y, z


def _number(value: Any) -> int:
    if not isinstance(value, tirx.IntImm):
        raise NotLaunchableError(f"a kernel's size depends on its inputs: {value}")
    return int(value)


def _bytes_of(buffer: Any) -> int:
    element = tvm_ffi.dtype(str(buffer.dtype))
    return prod(map(_number, buffer.shape)) * -(-int(element.bits) * int(element.lanes) // 8)


_PASSES: tuple[tvm.transform.Pass, ...] = (
    count_up,
    s_tir.transform.CanonicalizeLoop(),
    s_tir.transform.LowerCrossThreadReduction(),
    s_tir.transform.LowerInitBlock(),
    s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
    s_tir.transform.ConvertBlocksToOpaque(),
    s_tir.transform.LiftThreadBinding(),
    s_tir.transform.ManifestSharedMemoryLocalStage(),
    s_tir.transform.CompactBufferAllocation(),
    s_tir.transform.LowerAutoCopy(),
    s_tir.transform.UnifyThreadBinding(),
    s_tir.transform.LowerMatchBuffer(),
    s_tir.transform.StmtSimplify(),
    s_tir.transform.InjectPermutedLayout(),
    s_tir.transform.AnnotateIrregularLoop(),
    s_tir.transform.InjectSoftwarePipeline(),
    s_tir.transform.TransformMmaBufferLayout(),
    s_tir.transform.LowerOpaqueBlock(),
    tirx.transform.FlattenBuffer(),
    tirx.transform.BF16ComputeLegalize(),
    tirx.transform.NarrowDataType(32),
    s_tir.transform.LoopPartition(),
    tirx.transform.VectorizeLoop(True),
    s_tir.transform.InjectVirtualThread(),
    s_tir.transform.InjectDoubleBuffer(),
    tirx.transform.StorageRewrite(),
    s_tir.transform.HoistIfThenElse(),
    tirx.transform.UnrollLoop(),
    s_tir.transform.RenormalizeSplitPattern(),
    tirx.transform.StmtSimplify(),
    tirx.transform.RemoveNoOp(),
    s_tir.transform.RewriteUnsafeSelect(),
    tirx.transform.CommonSubexprElim(),
    tirx.transform.VerifyMemory(),
    tirx.transform.AnnotateEntryFunc(),
    s_tir.transform.ThreadSync("shared"),
    s_tir.transform.ThreadSync("shared.dyn"),
    s_tir.transform.ThreadSync("warp"),
    s_tir.transform.InferFragment(),
    s_tir.transform.LowerThreadAllreduce(),
    s_tir.transform.InjectPTXAsyncCopy(),
    s_tir.transform.MergeSharedMemoryAllocations(),
)
"""``CountUp``, then the passes of ``tvm.s_tir.pipeline`` up to the separation of host and device."""


def lower_threads(module: tvm.IRModule) -> tvm.IRModule:
    """Lower scheduled functions to loops between barriers, the kernels still inside them."""
    return tvm.transform.Sequential(_PASSES)(module)


def _separated(module: tvm.IRModule) -> tvm.IRModule:
    return tirx.transform.SplitHostDevice()(module)


def _source_of(kernels: tvm.IRModule, gpu: Gpu) -> str:
    generate = tvm.get_global_func("target.build.cuda")
    passes = tvm.transform.Sequential((tirx.transform.BF16StorageLegalize(), finalize_device_passes()))
    source = str(generate(passes(kernels), gpu.target).inspect_source("cuda"))
    for misspelled, constant in _CONSTANTS.items():
        source = source.replace(misspelled, constant)
    booleans = _BOOLEANS.findall(source)
    if any(f"*)({name} " in source for name in booleans):
        raise NotLaunchableError("a kernel reads booleans as a vector, which TVM writes as 16-bit numbers")
    source = _EIGHT_NUMBERS.sub(r"bessemer_uint8(\1)", source)
    return _EIGHT_NUMBERS_HELPER + _SHARED_ARRAY.sub(_SHARED_POINTER, source)
