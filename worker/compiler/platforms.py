"""The platforms that libraries are built for, and how this machine runs programs of other platforms."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from platform import machine

from bessemer.bundle.manifest import LIBRARIES, LIBRARY, PROGRAM
from bessemer.contract.triple import (
    MACOS_AARCH64,
    MACOS_X86_64,
    WINDOWS_X86_64,
    System,
    architecture_of,
    environment_of,
    platform_of,
    system_of,
)


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


_LIBRARIES = dict(zip(System, LIBRARIES, strict=True))


@dataclass(frozen=True)
class Launcher:
    """How this machine runs a program of another platform: the words before the program's path."""

    command: tuple[str, ...]


_EMULATORS = "/usr/bin"
_SYSROOTS = "/usr"
"""Debian's packages ``libc6-arm64-cross`` and ``libc6-riscv64-cross`` have each platform's libc below.
Packages of another architecture, such as ``musl:arm64``, have it where their own programs look for it."""
_EMULATED_PROCESSORS = {"riscv64": ("-cpu", "rv64,v=true,vext_spec=v1.0,vlen=128")}
"""qemu's processors, unless its default has every extension that it knows, as for Arm."""


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
    roots = (Path(_SYSROOTS, f"{architecture}-linux-{environment_of(triple)}"), Path("/"))
    root = next((one for one in roots if (one / libc.loader.lstrip("/")).exists()), None)
    found = (Path(_EMULATORS, f"qemu-{architecture}{suffix}") for suffix in ("-static", ""))
    emulator = next((path for path in found if path.exists()), None)
    if emulator is None or root is None:
        return None
    return Launcher((str(emulator), *_EMULATED_PROCESSORS.get(architecture, ()), "-L", str(root)))


def libc_of(triple: str) -> Libc | None:
    """The C library of a triple for Linux; None for other systems."""
    if system_of(triple) is not System.LINUX:
        return None
    return _LIBCS.get((architecture_of(triple), environment_of(triple)))


def linux_triples() -> tuple[str, ...]:
    """A triple for each C library of Linux, without a version."""
    return tuple(f"{architecture}-unknown-linux-{environment}" for architecture, environment in _LIBCS)


def known_triples() -> tuple[str, ...]:
    """A triple for each platform that libraries are built for."""
    return (*linux_triples(), MACOS_AARCH64, MACOS_X86_64, WINDOWS_X86_64)


def foreign_platforms() -> tuple[str, ...]:
    """The platforms besides this machine's own whose programs it can run, such as ``aarch64``."""
    own = platform_of(f"{machine()}-unknown-linux-gnu")
    return tuple(
        sorted(platform_of(one) for one in linux_triples() if platform_of(one) != own and launcher_of(one))
    )


def has_runtime(triple: str) -> bool:
    """Whether a bundle can contain TVM's runtime, whose virtual machine runs the library for ``run.py``."""
    return platform_of(triple) in ("x86_64", "aarch64")


def library_name(triple: str) -> str:
    """The name of a library's file, as the system's programs expect it."""
    system = system_of(triple)
    return LIBRARY if system is None else _LIBRARIES[system]


def program_name(triple: str) -> str:
    """The name of the file of the program that runs a library."""
    return f"{PROGRAM}.exe" if system_of(triple) is System.WINDOWS else PROGRAM
