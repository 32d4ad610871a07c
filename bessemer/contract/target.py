"""Targets: what hardware a library is compiled for."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from bessemer.contract.base import Document

HOST = "host"
LINUX_X86_64 = "x86_64-unknown-linux-gnu"
MAX_CORES = 1024
MAX_FEATURES = 64
MAX_FEATURES_CHARACTERS = 2048
"""Limit of all features together, since PostgreSQL limits an entry of the index of needs to 2704 bytes."""

WORD_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
FEATURE_PATTERN = r"^[+-][A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
Word = Annotated[str, StringConstraints(pattern=WORD_PATTERN)]
Feature = Annotated[str, StringConstraints(pattern=FEATURE_PATTERN)]
Cores = Annotated[int, Field(strict=True, ge=1, le=MAX_CORES)]
_CORES = Field(
    default=None,
    description="Threads the library will run with; null: the worker's cores. A worker that has fewer "
    "verifies and measures it with as many as it has: `threads` in its report.",
)


def _indexable(features: tuple[str, ...]) -> tuple[str, ...]:
    if sum(map(len, features)) > MAX_FEATURES_CHARACTERS:
        raise ValueError(f"expected {MAX_FEATURES_CHARACTERS} characters at most in all features together")
    return features


def architecture_of(triple: str) -> str:
    """The processor's architecture, which is the first word of a triple."""
    return triple.split("-", 1)[0]


class PresetTarget(Document):
    """A target by the name of a preset; see ``GET /v1/targets``."""

    preset: Word = Field(description="A `name` of `GET /v1/targets`.")
    cores: Cores | None = _CORES


class ExplicitTarget(Document):
    """A target in the compiler's own terms."""

    kind: Literal["llvm"] = Field(default="llvm", description="The compiler's backend.")
    mcpu: Word = Field(description="LLVM's name of the processor, such as `znver4` or `x86-64-v3`.")
    triple: Word = Field(
        default=LINUX_X86_64, description="LLVM's: architecture, vendor, system and C library."
    )
    features: Annotated[tuple[Feature, ...], AfterValidator(_indexable)] = Field(
        default=(),
        max_length=MAX_FEATURES,
        description="LLVM features to add or remove, such as `+avx512vnni`.",
    )
    cores: Cores | None = _CORES


Target = PresetTarget | ExplicitTarget


class ResolvedTarget(Document):
    """A target with every choice made, as a worker compiles for it."""

    name: str = Field(description="The preset's name, or the mcpu of an explicit target.")
    kind: Literal["llvm"] = Field(description="The compiler's backend.")
    mcpu: str = Field(description="LLVM's name of the processor; of `host`, the worker's.")
    triple: str = Field(description="LLVM's: architecture, vendor, system and C library.")
    features: tuple[str, ...] = Field(description="Added to what `mcpu` has (`+`), or removed (`-`).")
    cores: int = Field(description="Threads that the library runs with.")


class Preset(Document):
    """A named target."""

    name: str = Field(description="What a request names.")
    description: str = Field(description="Which processors run such code, for people.")
    mcpu: str | None = Field(description="LLVM's name of the processor; null where the worker decides.")
    triple: str = Field(description="LLVM's: architecture, vendor, system and C library.")


PRESETS: tuple[Preset, ...] = (
    Preset(
        name=HOST,
        description="The processor of the worker that takes the job.",
        mcpu=None,
        triple=LINUX_X86_64,
    ),
    Preset(
        name="x86-64-v2",
        description="Any x86-64 with SSE4.2 (2009 and later).",
        mcpu="x86-64-v2",
        triple=LINUX_X86_64,
    ),
    Preset(
        name="x86-64-v3",
        description="x86-64 with AVX2 and FMA (Haswell, Zen and later).",
        mcpu="x86-64-v3",
        triple=LINUX_X86_64,
    ),
    Preset(
        name="x86-64-v4",
        description="x86-64 with AVX-512 (Skylake-X, Zen 4 and later).",
        mcpu="x86-64-v4",
        triple=LINUX_X86_64,
    ),
    Preset(
        name="znver4",
        description="AMD Zen 4 (EPYC 9004, Ryzen 7000).",
        mcpu="znver4",
        triple=LINUX_X86_64,
    ),
)
PRESETS_BY_NAME = {preset.name: preset for preset in PRESETS}


def target_name(target: Target) -> str:
    """The name by which lists filter a target: the preset's name, or the mcpu of an explicit one."""
    return target.preset if isinstance(target, PresetTarget) else target.mcpu


def resolve_target(target: Target, host_mcpu: str, host_cores: int) -> ResolvedTarget:
    """Fill in every choice that the request leaves open.

    Args:
        target: the request's target.
        host_mcpu: LLVM's name of the worker's processor.
        host_cores: the worker's cores, used if the request names none.

    Raises:
        KeyError: the preset is unknown.
    """
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
        kind="llvm",
        mcpu=preset.mcpu or host_mcpu,
        triple=preset.triple,
        features=(),
        cores=cores,
    )
