"""What the fleet can do for a target, as a table."""

import pytest

from bessemer.contract.capability import Capability, Gpu, Needs
from bessemer.contract.fleet import Means, Support, offered, support
from bessemer.contract.queue import QueueName
from bessemer.contract.service import Worker
from bessemer.contract.target import GPU_ARCHITECTURES, PRESETS
from tests.workers import some_worker

X86 = Capability(
    architecture="x86_64",
    foreign=("aarch64", "riscv64"),
    programs=("aarch64", "x86_64-musl"),
    processors={"znver4": ("avx512f",)},
)
ARM = Capability(architecture="aarch64", foreign=("riscv64", "x86_64"))
OLD = Capability()
CUDA = X86.model_copy(update={"gpu_architectures": GPU_ARCHITECTURES})
H100 = CUDA.model_copy(update={"gpus": (Gpu(name="H100", arch="sm_90", memory_bytes=1, cuda="13.0"),)})


def a_worker(capability: Capability, *queues: QueueName) -> Worker:
    return some_worker(mcpu="haswell", queues=queues or tuple(QueueName), capability=capability)


@pytest.mark.parametrize(
    ("needs", "fleet", "expected"),
    [
        (None, (X86,), "native native native"),
        ("x86_64 x86-64-v3", (X86,), "native native native"),
        ("x86_64 x86-64-v3", (OLD,), "native native native"),
        ("x86_64 znver4", (X86,), "native none none"),
        ("x86_64-musl x86-64-v3", (X86,), "native native none"),
        ("aarch64 generic", (X86,), "native emulation none"),
        ("riscv64 generic-rv64", (X86,), "native none none"),
        ("sparc v9", (X86,), "none none none"),
        ("aarch64 generic", (X86, ARM), "native native native"),
        ("riscv64 generic-rv64", (X86, ARM), "native none none"),
        ("aarch64 generic", (), "none none none"),
        (None, (), "none none none"),
        ("x86_64-cuda x86-64-v3 sm_90", (X86,), "none none none"),
        ("x86_64-cuda x86-64-v3 sm_90", (CUDA,), "native none none"),
        ("x86_64-cuda x86-64-v3 sm_90", (CUDA, H100), "native native native"),
        ("x86_64-cuda x86-64-v3 sm_80", (H100,), "native none none"),
    ],
)
def test_the_best_worker_counts(needs: str | None, fleet: tuple[Capability, ...], expected: str) -> None:
    parsed = None if needs is None else Needs.parse(needs)
    assert shown(support(parsed, map(a_worker, fleet))) == expected


@pytest.mark.parametrize(
    ("needs", "fleet", "expected"),
    [
        ("aarch64 generic", (X86,), "native device device"),
        ("aarch64 generic", (X86, ARM), "native native native"),
        ("riscv64 generic-rv64", (X86,), "native none none"),
        ("aarch64 generic", (), "none none none"),
    ],
)
def test_a_device_is_better_than_emulation_and_needs_a_worker_that_builds(
    needs: str, fleet: tuple[Capability, ...], expected: str
) -> None:
    assert shown(support(Needs.parse(needs), map(a_worker, fleet), {"aarch64"})) == expected


def test_a_worker_that_takes_no_compilations_builds_nothing() -> None:
    assert support(None, [a_worker(X86, QueueName.QUICK)]).build is Means.NONE


def test_every_preset_is_offered_with_what_can_be_done_for_it() -> None:
    found = offered(PRESETS, [a_worker(X86)])
    assert [one.name for one in found] == [preset.name for preset in PRESETS]
    assert all(one.fleet is not None for one in found)


def shown(found: Support) -> str:
    return f"{found.build} {found.verify} {found.measure}"
