"""Machine code for NVIDIA GPUs: CUDA to PTX by NVRTC, PTX to machine code by ptxas, all in one fat binary.

::

    kernels.cu  →  kernels.ptx  →  sm_80.cubin   ┐
      NVRTC           ptxas        sm_90.cubin   ├→  kernels.fatbin    the driver takes the fitting part,
                                   kernels.ptx   ┘                     and compiles the PTX for newer GPUs
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import GpuKernel
from worker.compiler.schedules.gpu.chips import gpu_of
from worker.errors import JobError

_TOOLKIT = "nvidia.cu13"
_ONLY_HERE = "wgmma"
"""Instructions of sm_90 that newer GPUs lack."""

_COMPILED = re.compile(r"Compiling entry function '(?P<kernel>\w+)' for '(?P<arch>\w+)'")
_SPILLED = re.compile(
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes"
)
_USED = re.compile(r"Used (?P<registers>\d+) registers(?:.*?(?P<shared>\d+) bytes smem)?")


@dataclass(frozen=True)
class GpuBinary:
    """A fat binary, and what its kernels use on each architecture."""

    path: Path
    ptx: Path
    usage: tuple[GpuKernel, ...]


def toolkit() -> Path | None:
    """The folder of the CUDA compilers; None if the extra ``cuda`` is not installed."""
    try:
        found = find_spec(_TOOLKIT)
    except ModuleNotFoundError:
        return None
    places = [Path(place) for place in found.submodule_search_locations or ()] if found else []
    return next((place for place in places if (place / "bin" / "ptxas").exists()), None)


def compile_cuda(source: str, architectures: Sequence[str], folder: Path) -> GpuBinary:
    """Compile CUDA for some architectures, and keep its PTX for others.

    Args:
        source: the kernels.
        architectures: such as ``sm_90``, the oldest first: its PTX is what newer GPUs compile.
        folder: where the files are written.

    Raises:
        JobError: ``build-failed`` with the compiler's message.
    """
    ptx = folder / "kernels.ptx"
    ptx.write_bytes(_ptx(source, architectures[0]))
    images = [f"--image3=kind=ptx,sm={_features(source, architectures[0])},file={ptx}"]
    usage: list[GpuKernel] = []
    for arch in architectures:
        cubin = folder / f"{arch}.cubin"
        number = _features(source, arch)
        usage += _usage(_run("ptxas", "-v", "-O3", f"-arch=sm_{number}", str(ptx), "-o", str(cubin)), arch)
        images.append(f"--image3=kind=elf,sm={number},file={cubin}")
    fat = folder / "kernels.fatbin"
    _run("fatbinary", "-64", f"--create={fat}", *images)
    return GpuBinary(fat, ptx, tuple(usage))


def _features(source: str, arch: str) -> str:
    """The architecture's number, with the suffix ``a`` if the source uses instructions of sm_90 alone."""
    return f"{gpu_of(arch).capability}{'a' if _ONLY_HERE in source else ''}"


def _ptx(source: str, arch: str) -> bytes:
    from cuda.bindings import nvrtc  # type: ignore[import-untyped]

    include = _home() / "include"
    options = [
        f"--gpu-architecture=compute_{_features(source, arch)}".encode(),
        f"--include-path={include}".encode(),
        f"--include-path={include / 'cccl'}".encode(),
        b"--std=c++17",
        b"--disable-warnings",
        b"--device-as-default-execution-space",
    ]
    error, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernels.cu", 0, [], [])
    _check(error)
    (compiled,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if compiled != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        size = nvrtc.nvrtcGetProgramLogSize(program)[1]
        log = b" " * size
        nvrtc.nvrtcGetProgramLog(program, log)
        raise JobError(
            ErrorCode.BUILD_FAILED, f"NVRTC refused the kernels: {log.decode(errors='replace')[:2000]}"
        )
    size = nvrtc.nvrtcGetPTXSize(program)[1]
    made = b" " * size
    _check(*nvrtc.nvrtcGetPTX(program, made))
    nvrtc.nvrtcDestroyProgram(program)
    return made.rstrip(b"\0")


def _check(error: object) -> None:
    if int(error) != 0:  # type: ignore[call-overload]
        raise JobError(ErrorCode.BUILD_FAILED, f"NVRTC failed: {error}")


def _home() -> Path:
    found = toolkit()
    if found is None:
        raise JobError(ErrorCode.BUILD_FAILED, "this worker lacks the CUDA compilers (the extra `cuda`)")
    return found


def _run(tool: str, *arguments: str) -> str:
    done = subprocess.run(
        [str(_home() / "bin" / tool), *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise JobError(ErrorCode.BUILD_FAILED, f"{tool} failed: {(done.stderr or done.stdout)[:2000]}")
    return done.stderr + done.stdout


def _usage(log: str, arch: str) -> list[GpuKernel]:
    """Read what ``ptxas -v`` prints: three lines for each kernel."""
    kernels: list[GpuKernel] = []
    name, stack, spilled = "", 0, 0
    for line in log.splitlines():
        if found := _COMPILED.search(line):
            name, stack, spilled = found["kernel"], 0, 0
        elif found := _SPILLED.search(line):
            stack, spilled = int(found["stack"]), int(found["stores"]) + int(found["loads"])
        elif found := _USED.search(line):
            shared = int(found["shared"] or 0)
            kernels.append(
                GpuKernel(
                    name=name,
                    arch=arch,
                    registers=int(found["registers"]),
                    shared_bytes=shared,
                    stack_bytes=stack,
                    spilled_bytes=spilled,
                )
            )
    return kernels
