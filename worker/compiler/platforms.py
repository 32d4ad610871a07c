"""The C libraries of Linux, and how this machine runs programs of other platforms."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from platform import machine

from bessemer.contract.target import architecture_of, platform_of


@dataclass(frozen=True)
class Libc:
    """A C library of Linux.

    Attributes:
        loader: the path of the program that starts programs.
        libraries: the names of its shared libraries.
    """

    loader: str
    libraries: tuple[str, ...]


_GLIBC = ("libm.so.6", "libpthread.so.0", "libc.so.6")
_LIBCS = {
    ("x86_64", "gnu"): Libc("/lib64/ld-linux-x86-64.so.2", _GLIBC),
    ("aarch64", "gnu"): Libc("/lib/ld-linux-aarch64.so.1", _GLIBC),
    ("riscv64", "gnu"): Libc("/lib/ld-linux-riscv64-lp64d.so.1", _GLIBC),
    ("x86_64", "musl"): Libc("/lib/ld-musl-x86_64.so.1", ("libc.so",)),
    ("aarch64", "musl"): Libc("/lib/ld-musl-aarch64.so.1", ("libc.so",)),
    ("riscv64", "musl"): Libc("/lib/ld-musl-riscv64.so.1", ("libc.so",)),
}


@dataclass(frozen=True)
class Launcher:
    """How this machine runs a program of another platform: the words before the program's path."""

    command: tuple[str, ...]


_EMULATORS = "/usr/bin"
_SYSROOTS = "/usr"
"""Debian's packages ``libc6-arm64-cross`` and ``libc6-riscv64-cross`` have each platform's libc below."""


def launcher_of(triple: str) -> Launcher | None:
    """How this machine runs a program for a triple; None if it cannot.

    A program of this machine's architecture is started by its libc's loader. Others run in qemu.
    """
    libc = libc_of(triple)
    if libc is None:
        return None
    architecture = architecture_of(triple)
    if architecture == machine():
        return Launcher((libc.loader,)) if Path(libc.loader).exists() else None
    root = Path(_SYSROOTS, f"{architecture}-linux-{triple.rsplit('-', 1)[-1]}")
    found = (Path(_EMULATORS, f"qemu-{architecture}{suffix}") for suffix in ("-static", ""))
    emulator = next((path for path in found if path.exists()), None)
    if emulator is None or not (root / libc.loader.lstrip("/")).exists():
        return None
    return Launcher((str(emulator), "-L", str(root)))


def libc_of(triple: str) -> Libc | None:
    """The C library of a triple; None if Bessemer knows none."""
    parts = triple.split("-")
    return _LIBCS.get((parts[0], parts[-1].rstrip("0123456789.")))


def linux_triples() -> tuple[str, ...]:
    """The triples of Linux whose C libraries Bessemer knows."""
    return tuple(f"{architecture}-unknown-linux-{environment}" for architecture, environment in _LIBCS)


def foreign_platforms() -> tuple[str, ...]:
    """The platforms besides this machine's own whose programs it can run, such as ``aarch64``."""
    own = platform_of(f"{machine()}-unknown-linux-gnu")
    return tuple(
        sorted(platform_of(one) for one in linux_triples() if platform_of(one) != own and launcher_of(one))
    )


def has_runtime(triple: str) -> bool:
    """Whether TVM's runtime exists for a platform, so that its virtual machine can run the library."""
    return platform_of(triple) in ("x86_64", "aarch64")
