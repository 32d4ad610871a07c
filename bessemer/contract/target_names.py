"""The names of targets, and the errors for targets that Bessemer or LLVM does not know."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic_core import PydanticCustomError

from bessemer.contract.base import GrowingEnum
from bessemer.contract.llvm_processors import (
    AARCH64,
    APPLE,
    ARM_32,
    RISCV64,
    RISCV_SMALL,
    X86_32,
    X86_64,
)
from bessemer.contract.names import did_you_mean
from bessemer.contract.nvidia_gpus import architecture_named, lacking_architecture, names_gpu
from bessemer.contract.target import (
    GPU_ARCHITECTURES,
    HOST,
    PRESETS_BY_NAME,
    CudaTarget,
    ExplicitTarget,
    Preset,
    PresetTarget,
    Target,
)
from bessemer.contract.target_features import lacks_doubles, unfit_features
from bessemer.contract.triple import (
    LINUX_AARCH64,
    LINUX_RISCV64,
    LINUX_X86_64,
    MACOS_AARCH64,
    System,
    architecture_of,
    platform_of,
    system_of,
    unfit_triple,
)

TRIPLES = {
    **{name: LINUX_X86_64 for names in X86_64.values() for name in names},
    **dict.fromkeys(AARCH64, LINUX_AARCH64),
    **dict.fromkeys(APPLE, MACOS_AARCH64),
    **dict.fromkeys(RISCV64, LINUX_RISCV64),
}
"""The triple of each processor that a target can name."""

PROCESSORS = frozenset(TRIPLES)
GENERIC = {"aarch64": "generic", "riscv64": "generic-rv64"}
"""LLVM's name of each architecture's baseline processor."""
_NO_DOUBLES = (
    "libraries need registers for doubles, which 'generic-rv64' lacks: add '+d', or name the preset 'riscv64'"
)
UNSUPPORTED = "target_unsupported"
"""The type of pydantic's error for a known but unsupported target."""

SUPPORTED = (
    "Bessemer supports x86-64, 64-bit Arm and 64-bit RISC-V on Linux, macOS and Windows: `host`, a preset, "
    "or any LLVM name such as `haswell` or `cortex-a78`; and NVIDIA GPUs on Linux: `cuda-sm_90`. `bessemer "
    "targets` lists them."
)
CUDA = "cuda"
SHOWN_CHARACTERS = 100
TVM_OPTION = re.compile(r"(?:^|\s)-(\w+)[= ]\s*(\S+)")


class TargetFamily(GrowingEnum):
    """Families of unsupported targets."""

    APPLE = "an Apple target without macOS"
    ARM = "an Arm target without 64-bit code"
    RISCV = "a RISC-V target without 64-bit code or double-precision registers"
    OTHER = "not supported"
    OTHER_GPU = "a target for GPUs without CUDA"
    X86_32 = "an x86 processor without 64-bit code"


NAMES = {TargetFamily.ARM: ARM_32, TargetFamily.RISCV: RISCV_SMALL, TargetFamily.X86_32: X86_32}
PATTERNS = {
    TargetFamily.OTHER_GPU: r"rocm|hip|amdgcn.*|amdgpu|amd/.*|gfx\d+\w*|r600|mi\d{3}\w?|vulkan|opencl|metal"
    r"|mps|webgpu|spirv\w*|adreno.*|apple/.*-gpu.*|xpu",
    TargetFamily.OTHER: r"wasm(32|64)?|c|hexagon|qcom/.*|aws/(trn|inf).*|trainium|tpu|npu|ethos.*|msp430|avr"
    r"|mips\w*|ppc\w*|powerpc\w*|s390x?|sparc\w*|loongarch\w*|bpf\w*|lanai|xcore",
    TargetFamily.APPLE: r"arm64e|.*-apple-(ios|tvos|watchos|xros|visionos).*",
    TargetFamily.ARM: r"arm|arm(hf|el|eb)|thumb(eb)?|aarch64-(be|32)|armv[1-7].*",
    TargetFamily.RISCV: r"risc-?v32(be)?|riscv64be|rv32\w*",
}
"""Names that LLVM's lists lack, in lower case with hyphens."""

ARCHITECTURES = frozenset(map(architecture_of, TRIPLES.values()))

ALIASES = {"arm64": "aarch64", "amd64": "x86_64", "x64": "x86_64"}
"""Other names of architectures, with LLVM's."""

OTHER_NAMES = {
    "native": HOST,
    "cpu": HOST,
    **dict.fromkeys(("x86", "x64", "amd64", "x86_64"), "x86-64"),
    **dict.fromkeys(("arm64", "armv8", "armv8-a", "aarch64-unknown-linux-gnu", "raspberry-pi"), "aarch64"),
    **dict.fromkeys(("riscv", "risc-v", "rv64gc", "rv64", "riscv64-unknown-linux-gnu"), "riscv64"),
    "m1": "apple-m1",
    **dict.fromkeys(("m2", "apple-m2"), "apple-a15"),
    **dict.fromkeys(("m3", "apple-m3"), "apple-a17"),
    **{f"m{number}": f"apple-m{number}" for number in (4, 5)},
    "graviton2": "neoverse-n1",
    "graviton3": "neoverse-v1",
    "graviton4": "neoverse-v2",
    "ampere-altra": "neoverse-n1",
    "raspberry-pi-4": "cortex-a72",
    "raspberry-pi-5": "cortex-a76",
}


def read_target(value: Any) -> Any:
    """Replace LLVM's name of a processor by an explicit target; leave other targets as they are.

    Raises:
        PydanticCustomError: of type ``UNSUPPORTED``: Bessemer does not compile for the target.
        ValueError: the name is unknown.
    """
    if isinstance(value, str):
        return read_target({"preset": value})
    if isinstance(value, PresetTarget):
        preset = PRESETS_BY_NAME.get(value.preset)
        is_whole = preset is not None and not (preset.gpus and value.cores)
        return value if is_whole else read_target(value.model_dump(exclude_unset=True))
    if not isinstance(value, Mapping):
        return value
    kind, name = value.get("kind"), value.get("preset")
    if kind == CUDA and "preset" not in value:
        return _cuda(value)
    if isinstance(kind, str) and kind != "llvm" and _family(kind) is not None:
        raise _unsupported(kind)
    return _named(name, value) if isinstance(name, str) else value


def _named(name: str, value: Mapping[Any, Any]) -> Any:
    """The target of a name, with what the request adds to it."""
    preset = PRESETS_BY_NAME.get(name)
    rest = {key: given for key, given in value.items() if key != "preset"}
    if preset is not None and preset.gpus:
        return _changed_gpu(preset, rest) if any(given is not None for given in rest.values()) else value
    if "mcpu" in value:
        return value
    if preset is not None:
        return _changed_preset(preset, rest) if rest.keys() & _OF_EXPLICIT else value
    if name not in PROCESSORS:
        raise _refusal(name)
    return {"mcpu": name, "triple": TRIPLES[name], **rest}


_OF_EXPLICIT = ExplicitTarget.model_fields.keys() - PresetTarget.model_fields.keys()
"""The fields that only a full target has."""


def _changed_gpu(preset: Preset, rest: Mapping[Any, Any]) -> Any:
    """A target of a preset's GPUs with another processor beside them."""
    changes = {key: given for key, given in rest.items() if given is not None}
    return _cuda({"kind": CUDA, "arch": preset.gpus[0] if len(preset.gpus) == 1 else None, **changes})


def _cuda(value: Mapping[Any, Any]) -> Any:
    """A target of GPUs, with the processor of the triple's architecture beside them."""
    unfit = sorted(_NOT_OF_GPUS.keys() & value.keys())
    if unfit:
        raise ValueError(f"`{unfit[0]}` is for processors: {_NOT_OF_GPUS[unfit[0]]}")
    triple = value.get("triple")
    if isinstance(triple, str) and "mcpu" not in value and triple.startswith("aarch64-"):
        return {**value, "mcpu": GENERIC["aarch64"]}
    return value


_NOT_OF_GPUS = {
    "cores": "a library for a GPU has no threads on the processor; leave it out",
    "features": "a GPU's features follow from its architecture, `arch`; leave it out",
}


def _changed_preset(preset: Preset, rest: Mapping[str, Any]) -> Any:
    """An explicit target for a preset on another system, or with other features."""
    if preset.mcpu is None:
        raise ValueError(
            f"`{HOST}` is the worker's own processor and system: name a processor, such as 'x86-64-v3', to "
            f"change its {', '.join(sorted(rest.keys() & _OF_EXPLICIT))}"
        )
    added = rest.get("features", ())
    features = [*preset.features, *added] if isinstance(added, list | tuple) else added
    return {"mcpu": preset.mcpu, "triple": preset.triple, **rest, "features": features}


def unknown_part(target: Target) -> tuple[str, PydanticCustomError | ValueError] | None:
    """The first invalid field of an explicit target, with the error; None if all are valid."""
    if isinstance(target, CudaTarget):
        return _unknown_cuda_part(target)
    if not isinstance(target, ExplicitTarget):
        return None
    error = _triple_error(target.triple)
    if error is not None:
        return "triple", error
    error = _processor_error(target)
    if error is not None:
        return "mcpu", error
    architecture = architecture_of(target.triple)
    for index, reason in unfit_features(architecture, target.features):
        return f"features[{index}]", ValueError(reason)
    if target.mcpu == GENERIC.get(architecture) and lacks_doubles(architecture, target.features):
        return "features", ValueError(_NO_DOUBLES)
    return None


def _unknown_cuda_part(target: CudaTarget) -> tuple[str, PydanticCustomError | ValueError] | None:
    if target.arch is not None and target.arch not in GPU_ARCHITECTURES:
        return "arch", _arch_error(target.arch)
    if platform_of(target.triple) not in _BESIDE_GPUS or system_of(target.triple) is not System.LINUX:
        reason = (
            "NVIDIA's driver is for Linux with glibc, on x86-64 and 64-bit Arm: write "
            f"{LINUX_X86_64} or {LINUX_AARCH64}, not '{target.triple}'"
        )
        return "triple", ValueError(reason)
    return unknown_part(ExplicitTarget(mcpu=target.mcpu, triple=target.triple))


_BESIDE_GPUS = ("x86_64", "aarch64")


def _arch_error(arch: str) -> PydanticCustomError | ValueError:
    meant = architecture_named(arch)
    if meant is None:
        known = ", ".join(GPU_ARCHITECTURES)
        return ValueError(f"'{_shown(arch)}' is not an architecture of NVIDIA GPUs: choose one of {known}")
    if meant in GPU_ARCHITECTURES:
        return ValueError(f"'{_shown(arch)}' is not a known architecture; did you mean '{meant}'?")
    return _lacking(arch, meant)


def _lacking(name: str, arch: str) -> PydanticCustomError:
    reason = lacking_architecture(_shown(name), arch)
    return PydanticCustomError(UNSUPPORTED, "{reason}", {"reason": reason})


def _gpu_refusal(name: str) -> Exception:
    """The error for another name of an NVIDIA GPU."""
    arch = architecture_named(name)
    if arch is not None and arch not in GPU_ARCHITECTURES:
        return _lacking(name, arch)
    return ValueError(f"unknown target '{_shown(name)}'; did you mean '{_cuda_preset(arch)}'? {SUPPORTED}")


def _not_a_processor(name: str) -> ValueError:
    preset = _cuda_preset(architecture_named(name))
    return ValueError(f"'{_shown(name)}' is a GPU, not a processor: name it as the target, '{preset}'")


def _cuda_preset(arch: str | None) -> str:
    return CUDA if arch is None else f"{CUDA}-{arch}"


def _triple_error(triple: str) -> PydanticCustomError | ValueError | None:
    architecture = architecture_of(triple)
    family = _family(triple) or _family(architecture)
    if architecture not in ARCHITECTURES or family is not None:
        if family is not None:
            return _unsupported(triple)
        if names_gpu(architecture):
            return _not_a_processor(architecture)
        meant = (
            ALIASES[architecture] + triple[len(architecture) :] if architecture in ALIASES else LINUX_X86_64
        )
        return ValueError(f"LLVM knows no architecture '{architecture}'; did you mean '{meant}'?")
    reason = unfit_triple(triple)
    return None if reason is None else ValueError(reason)


def _processor_error(target: ExplicitTarget) -> PydanticCustomError | ValueError | None:
    architecture = architecture_of(target.triple)
    known = {name for name, triple in TRIPLES.items() if architecture_of(triple) == architecture}
    if target.mcpu in known or target.mcpu == GENERIC.get(architecture):
        return None
    if _family(target.mcpu) is not None:
        return _unsupported(target.mcpu)
    if names_gpu(target.mcpu):
        return _not_a_processor(target.mcpu)
    near = did_you_mean(target.mcpu, sorted(known))
    return ValueError(f"LLVM knows no processor '{target.mcpu}' for {target.triple}{near}")


def _refusal(name: str) -> Exception:
    shown = _shown(name)
    plain = shown.strip().lower()
    if plain.startswith("llvm") or TVM_OPTION.search(shown):
        return _of_tvm(shown)
    if _family(plain) is not None:
        return _unsupported(shown)
    if names_gpu(plain):
        return _gpu_refusal(shown)
    return ValueError(f"unknown target '{shown}'{_near(plain) or '.'} {SUPPORTED}")


def _shown(name: str) -> str:
    """The start of a name, made encodable as UTF-8."""
    return name[:SHOWN_CHARACTERS].encode("utf-8", "replace").decode()


def _near(name: str) -> str:
    known = sorted(PROCESSORS | PRESETS_BY_NAME.keys())
    if name in OTHER_NAMES:
        return f"; did you mean '{OTHER_NAMES[name]}'?"
    longer = (each for each in known if name and each.startswith(name))
    meant = next(longer, None)
    return f"; did you mean '{meant}'?" if meant else did_you_mean(name, known, cutoff=0.6)


def _of_tvm(text: str) -> Exception:
    """The error for a TVM target string, which says what to write instead."""
    options: dict[str, str] = dict(TVM_OPTION.findall(text))
    kind, name = text.split()[0], options.get("mcpu", options.get("arch", ""))
    parts: tuple[str, ...] = (kind, options.get("mtriple", ""), name)
    for part in parts:
        if _family(part) is not None:
            return _unsupported(part)
    if kind == CUDA or kind.startswith("nvptx"):
        arch = architecture_named(name)
        if arch is not None and arch not in GPU_ARCHITECTURES:
            return _lacking(name, arch)
        meant = _cuda_preset(arch)
        return ValueError(f"'{text}' is a TVM target string; write '{meant}'. TVM's -arch is `target.arch`")
    example = name if name in PROCESSORS else HOST
    return ValueError(
        f"'{text}' is a TVM target string; write '{example}'. TVM's -mcpu is the target's name or "
        "`target.mcpu`; -mattr is `target.features`, -num-cores `target.cores`, -mtriple `target.triple`"
    )


def _unsupported(name: str) -> PydanticCustomError:
    family = _family(name)
    assert family is not None
    reason = f"'{_shown(name)}' is {family}. {SUPPORTED}"
    return PydanticCustomError(UNSUPPORTED, "{reason}", {"reason": reason})


def _family(name: str) -> TargetFamily | None:
    """The family of an unsupported target, which may be a triple; None if the name is unknown."""
    lower = name.strip().lower()
    plain = lower.replace("_", "-")
    words = (lower, plain, re.split(r"-(?:unknown|linux|pc|apple|none)\b", plain)[0])
    if PROCESSORS.intersection(words):
        return None
    known = (family for family, names in NAMES.items() if names.intersection(words))
    alike = (
        family for family, pattern in PATTERNS.items() if any(re.fullmatch(pattern, word) for word in words)
    )
    return next(known, None) or next(alike, None)
