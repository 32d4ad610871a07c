"""A job's target in TVM's terms, and whether this machine can run its code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import tvm
from tvm.target import codegen

from bessemer.contract.capability import code_feature
from bessemer.contract.names import did_you_mean
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import Execution
from bessemer.contract.target import GPU_ARCHITECTURES, ResolvedTarget
from bessemer.contract.target_features import unfit_features
from bessemer.contract.triple import (
    LINUX_RISCV64,
    architecture_of,
    not_runnable,
    platform_of,
    runs_on_workers,
    unfit_triple,
)
from worker.candidates.program import Program
from worker.compiler.cuda_parts import missing_cuda_parts
from worker.compiler.platforms import Launcher, launcher_of
from worker.compiler.schedules.gpu.chips import Gpu, gpu_of
from worker.compiler.schedules.processors import Machine, machine_of
from worker.errors import JobError
from worker.measure.gpus import gpus_here
from worker.measure.machine import threads_here

_INSTRUCTION_SETS = re.compile(
    r"(sse|ssse|avx|fma|xop|tbm|bmi|lzcnt|popcnt|movbe|f16c|aes|vaes|pclmul|vpclmul|sha|gfni|adx|amx|sm[34]|crc32"
    r"|cx16|cmov|mmx)"
)
"""LLVM's features that generated code uses. Others are for tuning (``fast-…``) or the system (``xsave``)."""

_LONG_MODE = frozenset({"64bit", "64bit-mode", "sse", "sse2"})
"""Features that 64-bit x86 code requires: its functions return floating-point numbers in SSE registers."""
_V_BY_PARTS = ("+zve64d", "+zvl128b", "-v")
"""The extension V of RISC-V by the names of its parts.

By its own name, TVM would split vectors of a known width into loops over vectors of an unknown one, whose
sums stay in memory (TVM 0.27).
"""
_SVE_BITS = "-aarch64-sve-vector-bits-min:uint={}"
"""LLVM's option to put fixed vectors of up to this length into SVE's registers."""
_OTHER_MODES = frozenset({"16bit-mode", "32bit-mode", "soft-float"})

_DETECTED = {
    "SSE42": ("sse4.2",),
    "POPCNT": ("popcnt",),
    "AVX": ("avx",),
    "F16C": ("f16c",),
    "FMA3": ("fma",),
    "AVX2": ("avx2",),
    "AVX512F": ("avx512f",),
    "AVX512CD": ("avx512cd",),
    "AVX512BW": ("avx512bw",),
    "AVX512DQ": ("avx512dq",),
    "AVX512VL": ("avx512vl",),
    "AVX512IFMA": ("avx512ifma",),
    "AVX512VBMI": ("avx512vbmi",),
    "AVX512VBMI2": ("avx512vbmi2",),
    "AVX512VNNI": ("avx512vnni",),
    "AVX512BITALG": ("avx512bitalg",),
    "AVX512VPOPCNTDQ": ("avx512vpopcntdq",),
    "AVX512FP16": ("avx512fp16",),
}
"""numpy's names of features that it detects on the processor, with LLVM's.

A virtual machine may mask features that a processor's name implies.
"""


_REVEALING = {"avx512fp16": "sapphirerapids"}
"""Instruction sets that older processors lack, each with the first processor that has it."""


@cache
def host_mcpu() -> str:
    """LLVM's name of this machine's processor."""
    named, triple = str(codegen.llvm_get_system_cpu()), host_triple()
    if architecture_of(triple) != "x86_64":
        return named
    present, _ = _detected_features()
    return processor_with(present, named, _instruction_sets(_make_target(triple, named, (), 1)))


def processor_with(present: frozenset[str], named: str, known: frozenset[str]) -> str:
    """The name of a processor, corrected where its instruction sets contradict LLVM's name.

    LLVM goes by the model number, which a hypervisor may set to an older processor's: a Xeon with AVX512-FP16
    and two units for multiply-adds can say that it is a Rocket Lake, which has one.

    Args:
        present: the instruction sets that the processor reports.
        named: LLVM's name.
        known: the instruction sets of the processors of this name.
    """
    return next((mcpu for name, mcpu in _REVEALING.items() if name in present - known), named)


@dataclass(frozen=True)
class CompileTarget:
    """A target that a job compiles for, checked once before its first stage.

    Attributes:
        resolved: the target as the report names it.
        llvm: the target as TVM takes it.
        machine: the processor as schedules and layouts model it.
        gpu: the oldest GPU that kernels are scheduled for; None for a target without one.
    """

    resolved: ResolvedTarget
    llvm: tvm.target.Target
    machine: Machine
    gpu: Gpu | None = None

    @property
    def architecture(self) -> str:
        """The processor's architecture, such as ``x86_64``."""
        return architecture_of(self.resolved.triple)

    @property
    def platform(self) -> str:
        """The architecture, with the C library or the system; see ``platform_of``."""
        return platform_of(self.resolved.triple)

    @property
    def is_of_this_architecture(self) -> bool:
        """Whether this machine's processor has the target's architecture."""
        return self.architecture == architecture_of(host_triple())

    @property
    def is_of_this_platform(self) -> bool:
        """Whether the target has this machine's architecture and C library: the same runtime serves both."""
        return self.platform == platform_of(host_triple())

    @property
    def execution(self) -> Execution:
        """How a library for the target runs here."""
        if self.gpu is not None and self.is_of_this_architecture:
            return Execution.PROGRAM
        if not self.is_of_this_architecture:
            return Execution.EMULATED
        return Execution.NATIVE if self.is_of_this_platform else Execution.PROGRAM

    @property
    def is_native(self) -> bool:
        """Whether this process can load the library, so that it can be measured."""
        return self.execution is Execution.NATIVE

    @property
    def launcher(self) -> Launcher | None:
        """How this machine runs the library's own program; None if it cannot."""
        return launcher_of(self.resolved.triple)

    def program(self, path: Path) -> Program | None:
        """The program of a bundle for the target; None if this machine cannot run it."""
        found = self.launcher
        return None if found is None else Program(path, found.command, self.threads)

    @property
    def runs_here(self) -> bool:
        """Whether this machine can run the library's own program, or load the library."""
        return self.has_gpu and (self.is_native or self.launcher is not None)

    @property
    def has_gpu(self) -> bool:
        """Whether this machine has the GPU that the target needs, if it needs one."""
        if self.gpu is None:
            return True
        fits = any(gpu.runs(self.resolved.gpus) for gpu in gpus_here())
        return fits and self.is_of_this_architecture

    @property
    def threads(self) -> int:
        """The threads that the library runs with here: the target may have more cores than this machine."""
        return threads_here(self.resolved.cores)


def compile_target(target: ResolvedTarget) -> CompileTarget:
    """Check a target and describe it in TVM's terms.

    Raises:
        JobError: ``build-failed``: the triple's system is not Linux; LLVM does not know the architecture, the
            processor or a feature; or the processor has no 64-bit code. LLVM itself would print a warning
            and compile for another target.
    """
    unknown = [gpu for gpu in target.gpus if gpu not in GPU_ARCHITECTURES]
    if unknown:
        raise JobError(ErrorCode.BUILD_FAILED, f"no code for the GPU architecture {', '.join(unknown)}")
    missing = missing_cuda_parts() if target.gpus else ()
    if missing:
        detail = f"this worker cannot compile for GPUs: it lacks {', '.join(missing)}"
        raise JobError(ErrorCode.BUILD_FAILED, detail)
    made = _tvm_target(target)
    return CompileTarget(target, made, machine_of(made), gpu_of(target.gpus[0]) if target.gpus else None)


def _tvm_target(target: ResolvedTarget) -> tvm.target.Target:
    _check_triple(target.triple)
    plain = _make_target(target.triple, target.mcpu, (), target.cores)
    if target.mcpu not in known_processors(target.triple):
        near = did_you_mean(target.mcpu, known_processors(target.triple))
        detail = f"LLVM knows no processor '{target.mcpu}' for {target.triple}{near}"
        raise JobError(ErrorCode.BUILD_FAILED, detail)
    if not target.features:
        return _in_64_bits(target, plain)
    unfit = [reason for _, reason in unfit_features(architecture_of(target.triple), target.features)]
    if unfit:
        raise JobError(ErrorCode.BUILD_FAILED, "; ".join(unfit))
    made = _make_target(target.triple, target.mcpu, target.features, target.cores)
    return _in_64_bits(target, made)


def _in_64_bits(target: ResolvedTarget, made: tvm.target.Target) -> tvm.target.Target:
    """Refuse an x86 processor or features without 64-bit code, at which LLVM would abort."""
    if architecture_of(target.triple) != "x86_64":
        return made
    wrong = _not_of_64_bits(made)
    if wrong:
        named = " ".join((target.mcpu, *target.features))
        detail = f"'{named}' has {', '.join(wrong)}: it has no 64-bit code for {target.triple}"
        raise JobError(ErrorCode.BUILD_FAILED, detail)
    return made


def is_64_bit(triple: str, mcpu: str) -> bool:
    """Whether a processor of x86 runs 64-bit code."""
    return not _not_of_64_bits(_make_target(triple, mcpu, (), 1))


def is_wide_riscv(mcpu: str) -> bool:
    """Whether a RISC-V processor has 64-bit code and passes doubles in registers, as Linux's libraries do."""
    target = _make_target(LINUX_RISCV64, mcpu, (), 1)
    return {"64bit", "d"} <= {str(feature) for feature in codegen.llvm_get_cpu_features(target)}


def _not_of_64_bits(target: tvm.target.Target) -> tuple[str, ...]:
    """The features whose presence or absence leaves an x86 target without 64-bit code."""
    features = {str(feature) for feature in codegen.llvm_get_cpu_features(target)}
    return (*sorted(_OTHER_MODES & features), *(f"no {name}" for name in sorted(_LONG_MODE - features)))


def missing_features(target: CompileTarget) -> tuple[str, ...]:
    """The features that this machine's processor lacks to run code for a target.

    Returns:
        LLVM's names of instruction sets, or the target's architecture where this machine has another;
        empty where the code runs here.
    """
    if not target.is_of_this_architecture:
        return (target.architecture,)
    needed = _instruction_sets(target.llvm)
    return tuple(sorted(needed - host_instruction_sets(host_triple())))


def refuse_unrunnable(target: CompileTarget, by_device: bool = False) -> None:
    """Refuse a target whose code this machine cannot run, and so cannot verify.

    Args:
        target: the target.
        by_device: whether a device verifies what this machine cannot run.

    Raises:
        JobError: ``target-not-runnable`` with the missing features.
    """
    if by_device and not target.runs_here:
        return
    if not runs_on_workers(target.resolved.triple):
        raise JobError(ErrorCode.TARGET_NOT_RUNNABLE, not_runnable(target.resolved.triple))
    if not target.has_gpu:
        detail = f"this worker has no GPU that runs code for {', '.join(target.resolved.gpus)}"
        raise JobError(ErrorCode.TARGET_NOT_RUNNABLE, detail)
    missing = missing_features(target)
    if missing and (target.is_of_this_architecture or target.launcher is None):
        detail = f"target '{target.resolved.name}' needs {', '.join(missing)}, which this processor lacks"
        raise JobError(ErrorCode.TARGET_NOT_RUNNABLE, detail)
    if not target.is_native and target.launcher is None:
        detail = f"this worker cannot run programs for {target.resolved.triple}"
        raise JobError(ErrorCode.TARGET_NOT_RUNNABLE, detail)


_KERNEL_NAMES = {
    "aarch64": {
        "aes": "aes",
        "bf16": "bf16",
        "complxnum": "fcma",
        "crc": "crc32",
        "dotprod": "asimddp",
        "fp16fml": "asimdfhm",
        "fullfp16": "fphp",
        "i8mm": "i8mm",
        "lse": "atomics",
        "neon": "asimd",
        "rcpc": "lrcpc",
        "rdm": "asimdrdm",
        "sha2": "sha2",
        "sha3": "sha3",
        "sve": "sve",
        "sve2": "sve2",
    },
    "x86_64": {
        name: name
        for name in ("avx", "avx2", "f16c", "fma", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
    },
}
"""LLVM's names of features that code may use, and the kernel's in ``/proc/cpuinfo``."""


def device_features(target: CompileTarget) -> tuple[str, ...]:
    """The features that a device needs to run a target's code: the kernel's names, and ``code_feature``.

    A device without a feature that is not known here finds out when it meets the instruction.
    """
    names = _KERNEL_NAMES.get(target.architecture, {})
    features = (str(feature) for feature in codegen.llvm_get_cpu_features(target.llvm))
    of_gpu = (code_feature(target.resolved.gpus),) if target.resolved.gpus else ()
    return (*sorted({names[feature] for feature in features if feature in names}), *of_gpu)


@cache
def host_instruction_sets(triple: str) -> frozenset[str]:
    """The instruction sets of this machine's processor."""
    named = _instruction_sets(_make_target(triple, host_mcpu(), (), 1))
    if architecture_of(triple) != "x86_64":
        return named
    present, absent = _detected_features()
    return (named | present) - absent


def known_architectures() -> frozenset[str]:
    """The architectures for which LLVM generates code."""
    return frozenset(str(name) for name in codegen.llvm_get_targets())


def processors(triple: str) -> dict[str, frozenset[str]]:
    """The processors that LLVM knows for a triple's architecture, each with its instruction sets."""
    return {
        name: _instruction_sets(_make_target(triple, name, (), 1))
        for name in sorted(known_processors(triple))
    }


def dependents(triple: str) -> dict[str, frozenset[str]]:
    """The instruction sets of a triple's architecture, each with its dependents."""
    known = sorted(frozenset().union(*processors(triple).values()))
    added = tuple(f"+{name}" for name in known)
    everything = _make_target(triple, host_mcpu(), added, 1)
    without = {name: _make_target(triple, host_mcpu(), (*added, f"-{name}"), 1) for name in known}
    return {
        name: _instruction_sets(everything) - _instruction_sets(less) - {name}
        for name, less in without.items()
    }


def implied_features(triple: str, mcpu: str, names: Sequence[str]) -> dict[str, frozenset[str]]:
    """Features of a triple's architecture, each with the features that it adds.

    Args:
        triple: the triple.
        mcpu: a processor with few features.
        names: the features; a feature that adds no others is left out.
    """
    of_processor = _features(_named_target(triple, mcpu, (), 1))
    removed = tuple(sorted(f"-{name}" for name in of_processor if not name.startswith("64bit")))
    without = _features(_named_target(triple, mcpu, removed, 1))
    implied = {
        name: _features(_named_target(triple, mcpu, (*removed, f"+{name}"), 1)) - without - {name}
        for name in names
    }
    return {name: others for name, others in implied.items() if others}


def host_triple() -> str:
    """LLVM's name of this machine's architecture and system."""
    return str(codegen.llvm_get_system_triple())


def _detected_features() -> tuple[frozenset[str], frozenset[str]]:
    from numpy._core._multiarray_umath import (  # type: ignore[import-not-found]
        __cpu_features__ as detected,
    )

    present = {name for key, names in _DETECTED.items() if detected.get(key) is True for name in names}
    absent = {name for key, names in _DETECTED.items() if detected.get(key) is False for name in names}
    return frozenset(present), frozenset(absent)


def _instruction_sets(target: tvm.target.Target) -> frozenset[str]:
    return frozenset(feature for feature in _features(target) if _INSTRUCTION_SETS.match(feature))


def _features(target: tvm.target.Target) -> frozenset[str]:
    return frozenset(str(feature) for feature in codegen.llvm_get_cpu_features(target))


def _check_triple(triple: str) -> None:
    reason = unfit_triple(triple)
    if reason is not None:
        raise JobError(ErrorCode.BUILD_FAILED, reason)
    if architecture_of(triple) not in known_architectures():
        near = did_you_mean(architecture_of(triple), known_architectures())
        raise JobError(ErrorCode.BUILD_FAILED, f"LLVM knows no architecture for the triple '{triple}'{near}")


@cache
def known_processors(triple: str) -> frozenset[str]:
    """LLVM's names of the processors of a triple's architecture."""
    target = tvm.target.Target({"kind": "llvm", "mtriple": triple})
    return frozenset(str(name) for name in codegen.llvm_get_cpu_archlist(target))


def _make_target(triple: str, mcpu: str, features: tuple[str, ...], cores: int) -> tvm.target.Target:
    target = _named_target(triple, mcpu, features, cores)
    machine = machine_of(target)
    if machine.scalable:
        return _named_target(triple, mcpu, features, cores, (_SVE_BITS.format(machine.vector_bits),))
    if architecture_of(triple) != "riscv64" or "v" not in _features(target):
        return target
    return _named_target(triple, mcpu, (*features, *_V_BY_PARTS), cores)


def _named_target(
    triple: str, mcpu: str, features: tuple[str, ...], cores: int, options: tuple[str, ...] = ()
) -> tvm.target.Target:
    config: dict[str, Any] = {"kind": "llvm", "mtriple": triple, "mcpu": mcpu, "num-cores": cores}
    if features:
        config["mattr"] = list(features)
    if options:
        config["cl-opt"] = list(options)
    if architecture_of(triple) == "riscv64":
        config["mabi"] = "lp64d"
    return tvm.target.Target(config)
