"""Targets: the processors that libraries are compiled for."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from bessemer.contract.base import Document
from bessemer.contract.triple import LINUX_AARCH64, LINUX_RISCV64, LINUX_X86_64, MACOS_AARCH64

HOST = "host"
MAX_CORES = 1024
MAX_FEATURES = 64
MAX_FEATURES_CHARACTERS = 2048
"""The limit for all features together: they are in a PostgreSQL index, whose entries have 2704 bytes."""

WORD_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
FEATURE_PATTERN = r"^[+-][A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
Word = Annotated[str, StringConstraints(pattern=WORD_PATTERN)]
Feature = Annotated[str, StringConstraints(pattern=FEATURE_PATTERN)]
Cores = Annotated[int, Field(strict=True, ge=1, le=MAX_CORES)]
_CORES = Field(
    default=None,
    description="Number of threads that the library uses; null: the worker's cores. A worker with fewer "
    "cores verifies and measures with all it has; see `threads` in the report.",
)


def _indexable(features: tuple[str, ...]) -> tuple[str, ...]:
    if sum(map(len, features)) > MAX_FEATURES_CHARACTERS:
        raise ValueError(f"expected at most {MAX_FEATURES_CHARACTERS} characters in all features together")
    return features


class PresetTarget(Document):
    """A target by the name of a preset; see ``GET /v1/targets``."""

    preset: Word = Field(description="A `name` from `GET /v1/targets`.")
    cores: Cores | None = _CORES


class ExplicitTarget(Document):
    """A full LLVM target."""

    kind: Literal["llvm"] = Field(default="llvm", description="The compiler's backend.")
    mcpu: Word = Field(description="LLVM's name of the processor, such as `znver4` or `x86-64-v3`.")
    triple: Word = Field(
        default=LINUX_X86_64, description="LLVM's target triple: architecture, vendor, system and C library."
    )
    features: Annotated[tuple[Feature, ...], AfterValidator(_indexable)] = Field(
        default=(),
        max_length=MAX_FEATURES,
        description="LLVM features to add (`+`) or remove (`-`), such as `+avx512vnni`.",
    )
    cores: Cores | None = _CORES


GPU_ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
"""The architectures of NVIDIA GPUs that a library can have machine code for, the oldest first."""

BESIDE_GPU = "x86-64-v3"
"""The processor beside a GPU unless the request names another."""


CUDA_VERSION = "13.0"
"""The CUDA version of the compilers; see the extra ``cuda`` in ``pyproject.toml``."""


class CudaTarget(Document):
    """NVIDIA GPUs, and the processor that starts their kernels."""

    kind: Literal["cuda"] = Field(description="The compiler's backend.")
    arch: Word | None = Field(
        default=None,
        description="The GPU's architecture, such as `sm_90`; null: machine code for every architecture that "
        "the compiler knows, and PTX of the oldest for others.",
    )
    mcpu: Word = Field(default=BESIDE_GPU, description="LLVM's name of the processor beside the GPU.")
    triple: Word = Field(default=LINUX_X86_64, description="LLVM's target triple of that processor.")


Target = PresetTarget | ExplicitTarget | CudaTarget


class ResolvedTarget(Document):
    """A target with every choice made, as the worker compiled for it."""

    name: Word = Field(
        description="The preset's name, the mcpu of an explicit target, or `cuda-` and a GPU's architecture."
    )
    kind: Literal["llvm", "cuda"] = Field(description="The compiler's backend.")
    mcpu: Word = Field(description="LLVM's name of the processor; for `host`, the worker's.")
    triple: Word = Field(description="LLVM's target triple: architecture, vendor, system and C library.")
    features: tuple[Feature, ...] = Field(
        description="LLVM features added to those of `mcpu` (`+`) or removed (`-`)."
    )
    cores: Cores = Field(description="Number of threads that the library uses.")
    gpus: tuple[Word, ...] = Field(
        default=(),
        description="The GPU architectures that the library has machine code for; empty for `llvm`.",
    )

    @property
    def hardware(self) -> str:
        """What runs the libraries, in words: ``znver4``, or ``sm_80, sm_90 beside x86-64-v3``."""
        return f"{', '.join(self.gpus)} beside {self.mcpu}" if self.gpus else self.mcpu


class Preset(Document):
    """A named target."""

    name: str = Field(description="The name for requests.")
    description: str = Field(description="The processors that can run the code, in words.")
    mcpu: str | None = Field(description="LLVM's name of the processor; null for `host`, the worker's own.")
    triple: str = Field(description="LLVM's target triple: architecture, vendor, system and C library.")
    features: tuple[str, ...] = Field(default=(), description="LLVM features added to those of `mcpu`.")
    gpus: tuple[str, ...] = Field(
        default=(),
        description="GPU architectures that the library has machine code for; empty for a processor.",
    )


_RV64GC = ("+m", "+a", "+f", "+d", "+c")
_X86_64 = {
    "x86-64-v2": "Any x86-64 with SSE4.2 (2009 and later).",
    "x86-64-v3": "x86-64 with AVX2 and FMA (Haswell, Zen and later).",
    "x86-64-v4": "x86-64 with AVX-512 (Skylake-X, Zen 4 and later).",
    "skylake-avx512": "Intel Xeon Scalable of 2017, and Skylake-X.",
    "sapphirerapids": "Intel Xeon Scalable of 2023, with AVX-512 FP16 and VNNI.",
    "znver4": "AMD Zen 4 (EPYC 9004, Ryzen 7000).",
    "znver5": "AMD Zen 5 (EPYC 9005, Ryzen 9000).",
}
_AARCH64 = {
    "cortex-a53": "Arm Cortex-A53 (Raspberry Pi 3).",
    "cortex-a72": "Arm Cortex-A72 (Raspberry Pi 4, Graviton).",
    "cortex-a76": "Arm Cortex-A76 (Raspberry Pi 5), with dot products.",
    "neoverse-n1": "Arm Neoverse N1 (Graviton2, Ampere Altra).",
    "neoverse-v1": "Arm Neoverse V1 (Graviton3), with bfloat16 and int8 matrices.",
    "neoverse-v2": "Arm Neoverse V2 (Graviton4, Grace).",
}
_GPUS = {
    "sm_75": "Turing: T4, RTX 20",
    "sm_80": "Ampere: A100, A30",
    "sm_86": "Ampere: A10, A40, RTX 30",
    "sm_89": "Ada: L4, L40, RTX 40",
    "sm_90": "Hopper: H100, H200, GH200",
    "sm_100": "Blackwell: B200, GB200",
    "sm_120": "Blackwell: RTX 50, RTX PRO",
}
PRESETS = (
    Preset(
        name=HOST,
        description="The processor of the worker that takes the job.",
        mcpu=None,
        triple=LINUX_X86_64,
    ),
    *(Preset(name=name, description=text, mcpu=name, triple=LINUX_X86_64) for name, text in _X86_64.items()),
    Preset(
        name="aarch64",
        description="Any 64-bit Arm with NEON (Armv8-A and later), such as a Raspberry Pi 3 or a Graviton.",
        mcpu="generic",
        triple=LINUX_AARCH64,
    ),
    *(
        Preset(name=name, description=text, mcpu=name, triple=LINUX_AARCH64)
        for name, text in _AARCH64.items()
    ),
    Preset(
        name="apple-m1",
        description="Apple M1 and later, with macOS 11 or newer. No worker verifies it.",
        mcpu="apple-a14",
        triple=MACOS_AARCH64,
    ),
    Preset(
        name="riscv64",
        description="Any 64-bit RISC-V that runs Linux (RV64GC).",
        mcpu="generic-rv64",
        triple=LINUX_RISCV64,
        features=_RV64GC,
    ),
    Preset(
        name="riscv64-v",
        description="64-bit RISC-V with vectors of 128 bits or more (RV64GCV, RVA23).",
        mcpu="generic-rv64",
        triple=LINUX_RISCV64,
        features=(*_RV64GC, "+v"),
    ),
    *(
        Preset(
            name=f"cuda-{gpu}",
            description=f"NVIDIA GPUs of compute capability {gpu[3:-1]}.{gpu[-1]} ({known}).",
            mcpu=BESIDE_GPU,
            triple=LINUX_X86_64,
            gpus=(gpu,),
        )
        for gpu, known in _GPUS.items()
    ),
    Preset(
        name="cuda",
        description="Any NVIDIA GPU since Turing: machine code for each architecture above, and PTX.",
        mcpu=BESIDE_GPU,
        triple=LINUX_X86_64,
        gpus=GPU_ARCHITECTURES,
    ),
)
PRESETS_BY_NAME = {preset.name: preset for preset in PRESETS}


def target_name(target: Target) -> str:
    """The name of a target: the preset's name, or the mcpu of an explicit target."""
    if isinstance(target, PresetTarget):
        return target.preset
    return target.mcpu if isinstance(target, ExplicitTarget) else _cuda_name(target)


def cores_of(target: Target) -> int | None:
    """The number of threads that a request names for a target; None if it names none."""
    return None if isinstance(target, CudaTarget) else target.cores


def gpus_of(target: Target) -> tuple[str, ...]:
    """The GPU architectures that a target's libraries have machine code for; empty for a processor."""
    return resolve_target(target, HOST, 1).gpus


def _cuda_name(target: CudaTarget) -> str:
    return "cuda" if target.arch is None else f"cuda-{target.arch}"


def triple_of(target: Target) -> str:
    """The triple of a target."""
    return PRESETS_BY_NAME[target.preset].triple if isinstance(target, PresetTarget) else target.triple


def resolve_target(target: Target, host_mcpu: str, host_cores: int) -> ResolvedTarget:
    """Fill in what the request leaves open with the worker's processor and cores.

    Raises:
        KeyError: the preset is unknown.
    """
    if isinstance(target, CudaTarget):
        return ResolvedTarget(
            name=_cuda_name(target),
            kind=target.kind,
            mcpu=target.mcpu,
            triple=target.triple,
            features=(),
            cores=1,
            gpus=GPU_ARCHITECTURES if target.arch is None else (target.arch,),
        )
    cores = target.cores or host_cores
    if isinstance(target, ExplicitTarget):
        return ResolvedTarget(
            name=target.mcpu,
            kind=target.kind,
            mcpu=target.mcpu,
            triple=target.triple,
            features=target.features,
            cores=cores,
        )
    preset = PRESETS_BY_NAME[target.preset]
    return ResolvedTarget(
        name=preset.name,
        kind="cuda" if preset.gpus else "llvm",
        mcpu=preset.mcpu or host_mcpu,
        triple=preset.triple,
        features=preset.features,
        cores=1 if preset.gpus else cores,
        gpus=preset.gpus,
    )
