"""Builds a library whose kernels run on a GPU.

Emits ``model.so``::

    tables of the launches of a run, and the C that starts them
    the kernels' machine code, as one fat binary
    the parameters, which are copied to the GPU once
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import tvm
from tvm import tirx

from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import GpuFunction
from bessemer.contract.target import CUDA_VERSION
from worker.candidates.library import INPUT_CHECK
from worker.compiler.codegen.cuda.kernels import GpuCode, NotLaunchableError, lower_for_gpu
from worker.compiler.codegen.cuda.machine_code import GpuBinary, compile_cuda
from worker.compiler.codegen.estimate import bytes_of, flops_of_functions
from worker.compiler.codegen.executable import Exposed, lower, planned_interface
from worker.compiler.codegen.link import LinkError
from worker.compiler.codegen.standalone.emit import GpuProgram, insert_parameters, write_objects
from worker.compiler.codegen.standalone.parameters import take_parameters
from worker.compiler.codegen.standalone.plan import CallPlan, NotPlannableError
from worker.compiler.codegen.standalone.systems import link_library
from worker.compiler.target import CompileTarget
from worker.errors import JobError, failure_of


@dataclass(frozen=True)
class GpuLinked:
    """A linked library for a GPU.

    Attributes:
        functions: the functions that the first entry point calls.
        kernels: the kernels that each function starts, in order.
        binary: the machine code.
    """

    functions: tuple[GpuFunction, ...]
    kernels: Mapping[str, tuple[str, ...]]
    binary: GpuBinary


def build_gpu_library(
    module: tvm.IRModule,
    plain: tvm.IRModule,
    target: CompileTarget,
    library: Path,
    objects: Path,
    exposed: Exposed,
) -> GpuLinked:
    """Compile a module for a GPU and link it.

    Args:
        module: the module; every function is scheduled for the GPU.
        plain: the same functions without schedules.
        target: a target with a GPU.
        library: the file to write.
        objects: a folder for objects.
        exposed: the functions that C can call.

    Raises:
        JobError: ``build-failed``: lowering, code generation or linking failed. ``gpu-unsupported``: the
            module does more than call kernels on tensors of fixed sizes.
    """
    assert target.gpu is not None
    objects.mkdir(parents=True, exist_ok=True)
    triple = target.resolved.triple
    try:
        lowered = lower(module, target.llvm)
        functions = {
            str(name.name_hint): function
            for name, function in lowered.functions_items()
            if isinstance(function, tirx.PrimFunc) and not str(name.name_hint).startswith(INPUT_CHECK)
        }
        code = lower_for_gpu(functions, target.gpu)
        binary = compile_cuda(code.source, target.resolved.gpus, objects)
        machine, parameters = take_parameters(lowered)
        workspaces = {name: function.workspaces for name, function in code.functions.items()}
        interface = planned_interface(machine, exposed, parameters, workspaces)
        architectures = ", ".join(target.resolved.gpus)
        program = GpuProgram(binary.path, code.functions, architectures, CUDA_VERSION)
        own = write_objects(interface, parameters, triple, objects, gpu=program)
        link_library(library, own.linked, triple, objects)
        insert_parameters(library, own, parameters)
    except JobError:
        raise
    except (NotPlannableError, NotLaunchableError) as error:
        detail = f"a library for a GPU runs kernels on tensors of fixed sizes only: {error}"
        raise JobError(ErrorCode.GPU_UNSUPPORTED, detail) from error
    except LinkError as error:
        raise failure_of(ErrorCode.BUILD_FAILED, error, f"the linker refused: {error}") from error
    except Exception as error:
        raise failure_of(ErrorCode.BUILD_FAILED, error) from error
    return GpuLinked(
        functions=tuple(_described(interface.entries[0].plan, code, flops_of_functions(plain))),
        kernels={name: function.kernels for name, function in code.functions.items()},
        binary=binary,
    )


def _described(plan: CallPlan, code: GpuCode, flops: Mapping[str, int]) -> Iterator[GpuFunction]:
    """The functions that a run calls, and the work of each."""
    calls = Counter(call.function for call in plan.calls)
    first = {call.function: call for call in reversed(plan.calls)}
    for name, count in calls.items():
        function, arguments = code.functions[name], first[name].arguments
        tensors = arguments[: len(arguments) - len(function.workspaces)]
        yield GpuFunction(
            name=name,
            kernels=function.kernels,
            calls=count,
            flops=flops.get(name, 0),
            moved_bytes=sum(bytes_of(plan.tensors[tensor]) for tensor in tensors),
        )
