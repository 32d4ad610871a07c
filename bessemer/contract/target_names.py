"""The names of targets, and the errors for targets that Bessemer or LLVM does not know."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic_core import PydanticCustomError

from bessemer.contract.base import GrowingEnum
from bessemer.contract.llvm_processors import ARM, RISCV, X86_32, X86_64, X86_FEATURES
from bessemer.contract.names import did_you_mean
from bessemer.contract.target import (
    HOST,
    LINUX_X86_64,
    PRESETS_BY_NAME,
    ExplicitTarget,
    PresetTarget,
    Target,
    architecture_of,
)

PROCESSORS = frozenset(name for names in X86_64.values() for name in names)
UNSUPPORTED = "target_unsupported"
"""The type of pydantic's error for a known but unsupported target."""

SUPPORTED = (
    "Bessemer supports x86-64 processors on Linux: `host`, a preset, or any LLVM name such as "
    "`skylake-avx512`; `bessemer targets` lists them."
)
PLANNED = "Arm and RISC-V processors are planned, then NVIDIA GPUs (CUDA)."
SHOWN_CHARACTERS = 100
TVM_OPTION = re.compile(r"(?:^|\s)-(\w+)[= ]\s*(\S+)")


class TargetFamily(GrowingEnum):
    """Families of unsupported targets."""

    ARM = "an Arm target"
    RISCV = "a RISC-V target"
    NVIDIA = "an NVIDIA GPU target"
    OTHER = "neither supported nor planned"
    X86_32 = "an x86 processor without 64-bit code"


PLANNED_FAMILIES = (TargetFamily.ARM, TargetFamily.RISCV)
NAMES = {TargetFamily.ARM: ARM, TargetFamily.RISCV: RISCV, TargetFamily.X86_32: X86_32}
PATTERNS = {
    TargetFamily.OTHER: r"rocm|hip|amdgcn|amdgpu|gfx\d+\w*|r600|vulkan|opencl|metal|mps|webgpu|wasm(32|64)?|c"
    r"|spirv\w*|hexagon|qcom/.*|adreno.*|apple/.*-gpu.*|aws/(trn|inf).*|trainium|tpu|xpu|npu|ethos.*|msp430|avr"
    r"|mips\w*|ppc\w*|powerpc\w*|s390x?|sparc\w*|loongarch\w*|bpf\w*|lanai|xcore",
    TargetFamily.NVIDIA: r"cuda|gpu|nvidia([-/].*)?|nvptx(64)?|nvvm|(sm|compute)-?\d+\w?|tensorrt|hopper"
    r"|blackwell|[hab][12]00|v100|p100|t4|l40s?|a10g?|(tesla|geforce|quadro|rtx|gtx|jetson|titan)(-.*)?",
    TargetFamily.ARM: r"arm|arm64e?|arm(hf|el|eb)|thumb(eb)?|aarch64(-be|-32)?|armv\d.*|apple-[am]\d+.*"
    r"|m[1-9]|cortex-.*|neoverse-.*|(aws/)?graviton.*|ampere-?altra|arm/.*|raspberry-?pi(/.*)?|rasp\d\w*",
    TargetFamily.RISCV: r"risc-?v(32|64)?(be)?|rv(32|64)\w*|riscv/.*|sifive-.*|spacemit-.*",
}
"""Names that LLVM's lists lack, in lower case with hyphens."""

NARROW_ABIS = ("x32", "ilp32", "abin32")
"""Environments in which 64-bit processors have 32-bit addresses, such as ``gnux32``."""

OTHER_NAMES = {"native": HOST, "cpu": HOST} | dict.fromkeys(("x86", "x64", "amd64", "x86_64"), "x86-64")


def read_target(value: Any) -> Any:
    """Replace LLVM's name of an x86-64 processor by an explicit target; leave other targets as they are.

    Raises:
        PydanticCustomError: of type ``UNSUPPORTED``: Bessemer does not compile for the target.
        ValueError: the name is unknown.
    """
    if isinstance(value, str):
        return read_target({"preset": value})
    if isinstance(value, PresetTarget):
        return value if value.preset in PRESETS_BY_NAME else read_target(value.model_dump(exclude_unset=True))
    if not isinstance(value, Mapping):
        return value
    kind, name = value.get("kind"), value.get("preset")
    if isinstance(kind, str) and kind != "llvm" and _family(kind) is not None:
        raise _unsupported(kind)
    if not isinstance(name, str) or name in PRESETS_BY_NAME or "mcpu" in value:
        return value
    if name not in PROCESSORS:
        raise _refusal(name)
    return {"mcpu": name, **{key: given for key, given in value.items() if key != "preset"}}


def unknown_part(target: Target) -> tuple[str, PydanticCustomError | ValueError] | None:
    """The first field of an explicit target that LLVM's tables do not know, with the error; None if all do.

    The features of other architectures than x86-64 are left to the worker's LLVM.
    """
    if not isinstance(target, ExplicitTarget):
        return None
    error = _triple_error(target.triple)
    if error is not None:
        return "triple", error
    error = _processor_error(target)
    if error is not None:
        return "mcpu", error
    if architecture_of(target.triple) != "x86_64":
        return None
    for index, feature in enumerate(target.features):
        if feature[1:] not in X86_FEATURES:
            near = did_you_mean(feature, sorted(feature[0] + name for name in X86_FEATURES))
            return f"features[{index}]", ValueError(f"LLVM knows no feature '{feature}'{near}")
    return None


def unfit_system(triple: str) -> str | None:
    """Why Bessemer makes no libraries for a triple's system; None if it does."""
    if "linux" not in triple.split("-"):
        return f"Bessemer builds for Linux only: use a triple such as {LINUX_X86_64}, not '{triple}'"
    if triple.endswith(NARROW_ABIS):
        return f"the triple '{triple}' has 32-bit addresses, the runtime has 64-bit ones: end it with gnu"
    return None


def _triple_error(triple: str) -> PydanticCustomError | ValueError | None:
    architecture = architecture_of(triple)
    family = _family(architecture)
    if architecture != "x86_64" and family not in PLANNED_FAMILIES:
        if family is not None:
            return _unsupported(architecture)
        return ValueError(f"LLVM knows no architecture '{architecture}'; did you mean '{LINUX_X86_64}'?")
    reason = unfit_system(triple)
    return None if reason is None else ValueError(reason)


def _processor_error(target: ExplicitTarget) -> PydanticCustomError | ValueError | None:
    family = _family(architecture_of(target.triple))
    known = PROCESSORS if family is None else NAMES[family] | {"generic"}
    if target.mcpu in known:
        return None
    other = _family(target.mcpu)
    if other is not None and other is not family:
        return _unsupported(target.mcpu)
    near = did_you_mean(target.mcpu, sorted(known))
    return ValueError(f"LLVM knows no processor '{target.mcpu}' for {target.triple}{near}")


def _refusal(name: str) -> Exception:
    shown = _shown(name)
    plain = shown.strip().lower()
    if plain.startswith("llvm") or TVM_OPTION.search(shown):
        return _of_tvm(shown)
    if _family(plain) is not None:
        return _unsupported(shown)
    return ValueError(f"unknown target '{shown}'{_near(plain) or '.'} {SUPPORTED}")


def _shown(name: str) -> str:
    """The start of a name, made encodable as UTF-8."""
    return name[:SHOWN_CHARACTERS].encode("utf-8", "replace").decode()


def _near(name: str) -> str:
    known = sorted(PROCESSORS | PRESETS_BY_NAME.keys())
    longer = (each for each in known if name and each.startswith(name))
    meant = OTHER_NAMES.get(name) or next(longer, None)
    return f"; did you mean '{meant}'?" if meant else did_you_mean(name, known, cutoff=0.6)


def _of_tvm(text: str) -> Exception:
    """The error for a TVM target string, which says what to write instead."""
    options: dict[str, str] = dict(TVM_OPTION.findall(text))
    kind, name = text.split()[0], options.get("mcpu", options.get("arch", ""))
    parts: tuple[str, ...] = (kind, options.get("mtriple", ""), name)
    for part in parts:
        if _family(part) is not None:
            return _unsupported(part)
    example = name if name in PROCESSORS else HOST
    return ValueError(
        f"'{text}' is a TVM target string; write '{example}'. TVM's -mcpu is the target's name or "
        "`target.mcpu`; -mattr is `target.features`, -num-cores `target.cores`, -mtriple `target.triple`"
    )


def _unsupported(name: str) -> PydanticCustomError:
    family = _family(name)
    assert family is not None
    reason = f"'{_shown(name)}' is {family}. {SUPPORTED} {PLANNED}"
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
