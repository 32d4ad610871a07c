"""Which worker can take a compilation, as a table."""

import pytest
from pydantic import ValidationError

from bessemer.contract.capability import NO_CUDA, Capability, Gpu, Needs, lacks, needs_of
from bessemer.contract.target import (
    GPU_ARCHITECTURES,
    MAX_FEATURES_CHARACTERS,
    CudaTarget,
    ExplicitTarget,
    PresetTarget,
    Target,
)

HASWELL = Capability(
    architecture="x86_64",
    foreign=("aarch64", "riscv64"),
    processors={"x86-64-v4": ("avx512f", "avx512vl"), "knl": ("avx512f",)},
    lacking=("avx512f", "avx512vl", "avxvnni"),
    programs=("riscv64", "x86_64-musl"),
    dependents={"avx512f": ("avx512vl",), "avx": ("avx512f", "avx512vl", "avxvnni")},
)
ARM = "aarch64-unknown-linux-gnu"


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (PresetTarget(preset="host"), "None"),
        (PresetTarget(preset="x86-64-v4", cores=3), "x86_64 x86-64-v4"),
        (ExplicitTarget(mcpu="znver4", features=("+b", "+a")), "x86_64 znver4 +b +a"),
        (ExplicitTarget(mcpu="cortex-a72", triple=ARM), "aarch64 cortex-a72"),
        (ExplicitTarget(mcpu="x86-64-v3", triple="x86_64-unknown-linux-musl"), "x86_64-musl x86-64-v3"),
        (PresetTarget(preset="aarch64"), "aarch64 generic"),
        (PresetTarget(preset="riscv64"), "riscv64 generic-rv64 +m +a +f +d +c"),
    ],
)
def test_a_target_needs_its_processor_and_its_features(target: Target, text: str) -> None:
    needs = needs_of(target)
    assert str(needs) == text
    assert needs is None or Needs.parse(text) == needs


@pytest.mark.parametrize(
    ("needs", "lacking"),
    [
        (None, ()),
        ("x86_64 x86-64-v3", ()),
        ("x86_64 x86-64-v4", ("avx512f", "avx512vl")),
        ("x86_64 x86-64-v4 -avx512vl", ("avx512f",)),
        ("x86_64 knl -avx512f", ()),
        ("x86_64 x86-64-v4 -avx512f", ()),
        ("x86_64 x86-64-v4 -avx +avxvnni", ("avxvnni",)),
        ("x86_64 x86-64-v3 +avx512f -avx512f", ()),
        ("x86_64 x86-64-v3 -avx512f +avx512f", ("avx512f",)),
        ("x86_64 x86-64-v3 +avxvnni", ("avxvnni",)),
        ("x86_64 x86-64-v3 +fast-gather", ()),
        ("aarch64 cortex-a72", ("aarch64",)),
        ("aarch64-musl cortex-a72", ("aarch64-musl",)),
        ("riscv64 sifive-u74", ()),
        ("x86_64-musl x86-64-v3", ()),
        ("x86_64 unheard-of", ()),
        ("x86_64 znver4 ", (NO_CUDA,)),
        ("unheard-of generic", ()),
    ],
    ids=str,
)
def test_a_worker_lacks_unsupported_features_and_takes_what_its_compiler_will_refuse(
    needs: str | None, lacking: tuple[str, ...]
) -> None:
    assert lacks(HASWELL, None if needs is None else Needs.parse(needs)) == lacking


ALL = " ".join(GPU_ARCHITECTURES)
GPU = Gpu(name="H100", arch="sm_90", memory_bytes=80 << 30, cuda="13.0")
COMPILES = HASWELL.model_copy(update={"gpu_architectures": GPU_ARCHITECTURES})


def with_gpu(arch: str, cuda: str = "13.0") -> Capability:
    return COMPILES.model_copy(update={"gpus": (GPU.model_copy(update={"arch": arch, "cuda": cuda}),)})


@pytest.mark.parametrize(
    ("target", "is_verified", "text"),
    [
        (CudaTarget(kind="cuda", arch="sm_90"), True, "x86_64-cuda x86-64-v3 sm_90"),
        (PresetTarget(preset="cuda-sm_90"), False, "x86_64-cuda x86-64-v3 sm_90 compile-only"),
        (CudaTarget(kind="cuda", mcpu="generic", triple=ARM), True, f"aarch64-cuda generic {ALL}"),
        (PresetTarget(preset="x86-64-v4"), False, "None"),
        (PresetTarget(preset="host"), False, "None"),
    ],
    ids=str,
)
def test_a_gpu_needs_a_worker_that_compiles_for_it_even_unverified(
    target: Target, is_verified: bool, text: str
) -> None:
    needs = needs_of(target, is_verified)
    assert str(needs) == text
    assert needs is None or Needs.parse(text) == needs


@pytest.mark.parametrize(
    ("capability", "needs", "part"),
    [
        (Capability(), "x86_64-cuda x86-64-v3 sm_90 compile-only", NO_CUDA),
        (HASWELL, "x86_64-cuda x86-64-v3 sm_90 compile-only", NO_CUDA),
        (HASWELL, "x86_64-cuda x86-64-v3 sm_90", NO_CUDA),
        (COMPILES, "x86_64-cuda x86-64-v3 sm_90 compile-only", ""),
        (COMPILES, "x86_64-cuda x86-64-v3 sm_70 compile-only", NO_CUDA),
        (COMPILES, "x86_64-cuda x86-64-v3 sm_90", "runs code for sm_90"),
        (with_gpu("sm_90"), "x86_64-cuda x86-64-v3 sm_90", ""),
        (with_gpu("sm_90", cuda="12.8"), "x86_64-cuda x86-64-v3 sm_90", "a driver for CUDA 13.0 or newer"),
        (with_gpu("sm_90"), "x86_64-cuda x86-64-v3 sm_80", "runs code for sm_80"),
        (with_gpu("sm_86"), "x86_64-cuda x86-64-v3 sm_80", ""),
        (with_gpu("sm_80"), "x86_64-cuda x86-64-v3 sm_86", "runs code for sm_86"),
        (with_gpu("sm_90"), f"x86_64-cuda x86-64-v3 {ALL}", ""),
        (with_gpu("sm_130"), f"x86_64-cuda x86-64-v3 {ALL}", ""),
        (with_gpu("sm_70"), f"x86_64-cuda x86-64-v3 {ALL}", "runs code for sm_75 or newer"),
        (with_gpu("sm_90"), "x86_64-cuda x86-64-v4 sm_90", "avx512f"),
        (with_gpu("sm_90"), "aarch64-cuda generic sm_90", "aarch64-cuda"),
        (with_gpu("sm_90"), "aarch64-cuda generic sm_90 compile-only", ""),
    ],
    ids=str,
)
def test_a_worker_lacks_the_compilers_or_the_gpu(capability: Capability, needs: str, part: str) -> None:
    lacking = lacks(capability, Needs.parse(needs))
    assert part in " ".join(lacking)
    assert bool(lacking) == bool(part)


def test_a_worker_of_an_older_release_leaves_gpus_to_others() -> None:
    """It reads the platform, and knows no GPUs."""
    needs = Needs.parse("x86_64-cuda x86-64-v3 sm_90")
    assert lacks(HASWELL, Needs(needs.platform, needs.mcpu)) == ("x86_64-cuda",)


def test_a_worker_without_declared_capabilities_takes_everything() -> None:
    assert lacks(Capability(), Needs.parse("x86_64 x86-64-v4")) == ()


def test_features_too_long_for_an_index_are_refused() -> None:
    with pytest.raises(ValidationError, match="in all features together"):
        ExplicitTarget(mcpu="znver4", features=(f"+{'x' * 63}",) * (MAX_FEATURES_CHARACTERS // 64 + 1))
