"""Builds a library whose kernels run on a GPU.

Emits ``model.so``::

    tables of the launches of a run, and the C that starts them
    the kernels' machine code, as one fat binary
    the parameters, which are copied to the GPU once
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tvm
from tvm import tirx

from bessemer.contract.problem import ErrorCode
from worker.candidates.library import INPUT_CHECK
from worker.compiler.codegen.cuda.kernels import NotLaunchableError, lower_for_gpu
from worker.compiler.codegen.cuda.machine_code import CUDA_VERSION, GpuBinary, compile_cuda
from worker.compiler.codegen.executable import Exposed, lower, planned_interface
from worker.compiler.codegen.link import LinkError
from worker.compiler.codegen.standalone.emit import GpuProgram, Interface, write_objects
from worker.compiler.codegen.standalone.parameters import take_parameters
from worker.compiler.codegen.standalone.plan import NotPlannableError
from worker.compiler.codegen.standalone.systems import link_library
from worker.compiler.target import CompileTarget
from worker.errors import JobError, failure_of


@dataclass(frozen=True)
class GpuLinked:
    """A linked library for a GPU: the functions as compiled, what C can call, and the machine code."""

    module: tvm.IRModule
    interface: Interface
    binary: GpuBinary


def build_gpu_library(
    module: tvm.IRModule, target: CompileTarget, library: Path, objects: Path, exposed: Exposed
) -> GpuLinked:
    """Compile a module for a GPU and link it.

    Args:
        module: the module; every function is scheduled for the GPU.
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
        own = write_objects(interface, parameters, triple, objects, program)
        link_library(library, own, triple, objects)
    except JobError:
        raise
    except (NotPlannableError, NotLaunchableError) as error:
        detail = f"a library for a GPU runs kernels on tensors of fixed sizes only: {error}"
        raise JobError(ErrorCode.GPU_UNSUPPORTED, detail) from error
    except LinkError as error:
        raise failure_of(ErrorCode.BUILD_FAILED, error, f"the linker refused: {error}") from error
    except Exception as error:
        raise failure_of(ErrorCode.BUILD_FAILED, error) from error
    return GpuLinked(lowered, interface, binary)
