"""Match the requirements of a target with the instruction sets of a worker's processor.

A worker runs and measures the code that it compiles, so it takes a compilation only if its own processor can
run the target's code. These functions are pure: each worker reports its compiler's knowledge in advance.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Self

from pydantic import Field

from bessemer.contract.base import Document
from bessemer.contract.nvidia_gpus import OLDEST_CUDA, is_new_enough, runs_on
from bessemer.contract.target import GPU_ARCHITECTURES, HOST, ResolvedTarget, Target, resolve_target
from bessemer.contract.triple import platform_of

CUDA_SUFFIX = "-cuda"
"""The suffix of a platform with GPUs, after its processor's platform: ``x86_64-cuda``."""


class Gpu(Document):
    """A GPU of a worker or a device."""

    name: str = Field(description="The model, such as `NVIDIA H100 80GB HBM3`.")
    arch: str = Field(description="The architecture, such as `sm_90`.")
    memory_bytes: int = Field(ge=0, description="The GPU's memory.")
    driver: str = Field(default="", description="The driver's version, such as `580.95.05`, if it is known.")
    cuda: str = Field(description="The newest version of CUDA that the driver runs, such as `13.0`.")

    def runs(self, code: Sequence[str]) -> bool:
        """Whether it runs a library with machine code for these architectures."""
        return runs_on(code, self.arch) and is_new_enough(self.cuda)


def code_feature(code: Sequence[str]) -> str:
    """The feature that a device's GPU needs to run a library with machine code for these architectures.

    It is one architecture, or the oldest of several, whose PTX every newer GPU compiles: ``sm_75-ptx``.
    """
    return code[0] if len(code) == 1 else f"{code[0]}-ptx"


def code_features(gpu: Gpu) -> frozenset[str]:
    """Each ``code_feature`` that a GPU has."""
    each = ((arch,) * count for arch in GPU_ARCHITECTURES for count in (1, 2))
    return frozenset(code_feature(code) for code in each if gpu.runs(code))


class Capability(Document):
    """What a worker cannot run. It accepts unknown targets, and fails them with a reason."""

    architecture: str = Field(
        default="", description="The architecture of the worker's processor, such as `x86_64`."
    )
    preset: str = Field(
        default="",
        description="The preset that `host` equals on this worker: that of its processor, or else the preset "
        "with the most instruction sets among those that the processor can run.",
    )
    foreign: tuple[str, ...] = Field(
        default=(), description="Other architectures that the worker's compiler knows."
    )
    programs: tuple[str, ...] = Field(
        default=(),
        description="Other platforms whose programs the worker can run, under an emulator or with their own "
        "libc, such as `aarch64` or `x86_64-musl`. It verifies libraries for them and measures none.",
    )
    processors: dict[str, tuple[str, ...]] = Field(
        default={},
        description="Processors whose code the worker cannot run, each with the instruction sets that the "
        "worker's own processor lacks.",
    )
    lacking: tuple[str, ...] = Field(
        default=(), description="Instruction sets that the compiler knows and the processor lacks."
    )
    dependents: dict[str, tuple[str, ...]] = Field(
        default={},
        description="Instruction sets that others depend on, each with its dependents that the processor "
        "lacks. A target that removes such a set removes its dependents, too.",
    )
    gpu_architectures: tuple[str, ...] = Field(
        default=(),
        description="Architectures of NVIDIA GPUs that the worker's compiler generates machine code for; "
        "empty without the extra `cuda`.",
    )
    gpus: tuple[Gpu, ...] = Field(default=(), description="The GPUs on which it verifies and measures.")


@dataclass(frozen=True)
class Needs:
    """What a target's code requires of a machine. As text: ``x86_64 znver4 +avx512vnni``.

    The platform is the architecture, and the C library unless that is glibc, such as ``aarch64-musl``. For
    GPUs, it ends with ``-cuda``, and their architectures follow: ``x86_64-cuda x86-64-v3 sm_90``.

    Attributes:
        platform: where the code runs.
        mcpu: the processor.
        features: LLVM features added or removed.
        gpus: the architectures of GPUs that the code is for.
        runs: whether the machine must run the code, besides compiling it.
    """

    platform: str
    mcpu: str
    features: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    runs: bool = True

    def __str__(self) -> str:
        only = () if self.runs else (_COMPILE_ONLY,)
        return " ".join((self.platform, self.mcpu, *self.features, *self.gpus, *only))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text that ``str`` produces."""
        platform, mcpu, *words = text.split(" ")
        features = tuple(word for word in words if word.startswith(("+", "-")))
        gpus = tuple(word for word in words if word not in features and word != _COMPILE_ONLY)
        return cls(platform, mcpu, features, gpus, _COMPILE_ONLY not in words)


_COMPILE_ONLY = "compile-only"


def needs_of(target: Target, is_verified: bool = True) -> Needs | None:
    """What a target requires of a worker.

    Args:
        target: the target.
        is_verified: whether the worker must run the code.

    Returns:
        None if any worker will do: for ``host``, and for processors if nothing runs the code. GPUs need a
        worker with their compiler in any case.
    """
    resolved = resolve_target(target, HOST, 1)
    if resolved.mcpu == HOST or not (is_verified or resolved.gpus):
        return None
    needs = needs_of_library(resolved)
    return needs if is_verified else replace(needs, runs=False)


def needs_of_library(target: ResolvedTarget) -> Needs:
    """What a library's target requires of a machine that runs it."""
    return Needs(platform_of_target(target), target.mcpu, target.features, target.gpus)


def platform_of_target(target: ResolvedTarget) -> str:
    """Where a target's libraries run: ``aarch64``, ``x86_64-musl`` or ``x86_64-cuda``."""
    return platform_of(target.triple) + (CUDA_SUFFIX if target.gpus else "")


def lacks(capability: Capability, needs: Needs | None, on_devices: Container[str] = ()) -> tuple[str, ...]:
    """What a worker lacks to run code with these needs.

    Args:
        capability: the worker's.
        needs: the target's.
        on_devices: other platforms, for which live devices verify what the worker compiles.

    Returns:
        The missing instruction sets, or the architecture if it differs. Empty if the worker can run the code,
        or if its compiler does not know the target and will refuse it with a reason.
    """
    if needs is None:
        return ()
    if needs.gpus:
        return _lacks_for_gpus(capability, needs, on_devices)
    if needs.platform in capability.programs:
        return ()
    if needs.platform != capability.architecture:
        architecture = needs.platform.partition("-")[0]
        known = architecture in (capability.architecture, *capability.foreign)
        return (needs.platform,) if known and needs.platform not in on_devices else ()
    return _lacking_sets(capability, needs)


def _lacks_for_gpus(capability: Capability, needs: Needs, on_devices: Container[str]) -> tuple[str, ...]:
    """What a worker lacks to compile, and to run if needed, code for GPUs."""
    if not set(needs.gpus) <= set(capability.gpu_architectures):
        return (NO_CUDA,)
    if not needs.runs or needs.platform in on_devices:
        return ()
    if needs.platform != capability.architecture + CUDA_SUFFIX:
        return (needs.platform,)
    if not any(gpu.runs(needs.gpus) for gpu in capability.gpus):
        return (no_gpu(needs.gpus),)
    return _lacking_sets(capability, needs)


NO_CUDA = "the CUDA compilers (the extra `cuda`)"


def no_gpu(architectures: Sequence[str]) -> str:
    """The GPU that a worker lacks for libraries with machine code for some architectures."""
    known = f"{architectures[0]} or newer" if len(architectures) > 1 else architectures[0]
    return f"a GPU that runs code for {known}, with a driver for CUDA {OLDEST_CUDA} or newer"


def _lacking_sets(capability: Capability, needs: Needs) -> tuple[str, ...]:
    """The instruction sets that the worker's own processor lacks."""
    lacking = set(capability.processors.get(needs.mcpu, ()))
    for feature in needs.features:  # the last of two contradicting features wins, as in LLVM
        sign, name = feature[0], feature[1:]
        if sign == "+":
            lacking |= {name} & set(capability.lacking)
        else:
            lacking -= {name, *capability.dependents.get(name, ())}
    return tuple(sorted(lacking))
