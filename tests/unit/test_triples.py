"""Triples: where their programs run, and why some have no libraries."""

import pytest

from bessemer.contract.triple import platform_of, runs_on_workers, unfit_triple
from worker.compiler.codegen.standalone.sources import zig_target
from worker.compiler.platforms import known_triples, library_name, program_name


@pytest.mark.parametrize(
    ("triple", "platform", "zig", "library"),
    [
        ("x86_64-unknown-linux-gnu", "x86_64", "x86_64-linux-gnu.2.17", "model.so"),
        ("x86_64-unknown-linux-gnu.2.28", "x86_64", "x86_64-linux-gnu.2.17", "model.so"),
        ("aarch64-linux-gnu", "aarch64", "aarch64-linux-gnu.2.17", "model.so"),
        ("aarch64-unknown-linux-musl", "aarch64-musl", "aarch64-linux-musl", "model.so"),
        ("riscv64-unknown-linux-gnu", "riscv64", "riscv64-linux-gnu.2.27", "model.so"),
        ("aarch64-apple-macos", "aarch64-macos", "aarch64-macos.11.0", "model.dylib"),
        ("x86_64-apple-macosx13.1", "x86_64-macos", "x86_64-macos.11.0", "model.dylib"),
        ("x86_64-pc-windows-msvc", "x86_64-windows", "x86_64-windows-gnu", "model.dll"),
    ],
)
def test_a_triple_names_a_platform(triple: str, platform: str, zig: str, library: str) -> None:
    assert unfit_triple(triple) is None
    assert platform_of(triple) == platform
    assert zig_target(triple) == zig
    assert library_name(triple) == library
    assert runs_on_workers(triple) == (library == "model.so")
    assert program_name(triple) == ("run.exe" if library == "model.dll" else "run")


@pytest.mark.parametrize(
    ("triple", "reason"),
    [
        ("x86_64-unknown-linux-gnux32", "has 32-bit addresses"),
        ("x86_64-unknown-linux", "end 'x86_64-unknown-linux' with gnu, gnu.2.28 or musl"),
        ("x86_64-unknown-linux-musl.1.2", "does not link to 'musl.1.2'"),
        ("x86_64-unknown-linux-gnu.2.12", "need glibc 2.17 or newer"),
        ("riscv64-unknown-linux-gnu.2.26", "end 'riscv64-unknown-linux-gnu.2.26' with gnu.2.27"),
        ("riscv64-apple-macos", "for macos, Bessemer builds for aarch64, x86_64 only"),
        ("aarch64-macos", "write 'aarch64-apple-macos11.0'"),
        ("x86_64-windows-gnu", "write 'x86_64-pc-windows-gnu'"),
        ("x86_64-unknown-openbsd", "Bessemer builds for Linux, macOS and Windows"),
        ("x86_64-unknown-none", "Bessemer builds for Linux, macOS and Windows"),
    ],
)
def test_an_unfit_triple_is_refused_with_what_is_possible(triple: str, reason: str) -> None:
    assert reason in (unfit_triple(triple) or "")


def test_every_platform_that_is_prepared_is_fit() -> None:
    assert [one for one in known_triples() if unfit_triple(one)] == []
