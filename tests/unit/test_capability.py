"""Which worker can take a compilation, as a table."""

import pytest
from pydantic import ValidationError

from bessemer.contract.capability import Capability, Needs, lacks, needs_of
from bessemer.contract.target import MAX_FEATURES_CHARACTERS, ExplicitTarget, PresetTarget, Target

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
        ("unheard-of generic", ()),
    ],
    ids=str,
)
def test_a_worker_lacks_unsupported_features_and_takes_what_its_compiler_will_refuse(
    needs: str | None, lacking: tuple[str, ...]
) -> None:
    assert lacks(HASWELL, None if needs is None else Needs.parse(needs)) == lacking


def test_a_worker_without_declared_capabilities_takes_everything() -> None:
    assert lacks(Capability(), Needs.parse("x86_64 x86-64-v4")) == ()


def test_features_too_long_for_an_index_are_refused() -> None:
    with pytest.raises(ValidationError, match="in all features together"):
        ExplicitTarget(mcpu="znver4", features=(f"+{'x' * 63}",) * (MAX_FEATURES_CHARACTERS // 64 + 1))
