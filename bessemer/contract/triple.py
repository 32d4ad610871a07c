"""Triples: the platforms that Bessemer builds libraries for, and why it refuses others.

::

    x86_64-unknown-linux-gnu.2.17        architecture, vendor, system, C library and its oldest version
    aarch64-apple-macos11.0              architecture, vendor, system and its oldest version
"""

import re
from enum import StrEnum

LINUX_X86_64 = "x86_64-unknown-linux-gnu"
LINUX_AARCH64 = "aarch64-unknown-linux-gnu"
LINUX_RISCV64 = "riscv64-unknown-linux-gnu"
MACOS_AARCH64 = "aarch64-apple-macos11.0"
MACOS_X86_64 = "x86_64-apple-macos11.0"
WINDOWS_X86_64 = "x86_64-pc-windows-gnu"

OLDEST_GLIBC = {"x86_64": (2, 17), "aarch64": (2, 17), "riscv64": (2, 27)}
"""Libraries run with this version of glibc and later ones, even if their triple names a newer one."""
OLDEST_MACOS = (11, 0)
"""The first version of macOS for Arm."""


class System(StrEnum):
    """An operating system that Bessemer builds libraries for."""

    LINUX = "linux"
    MACOS = "macos"
    WINDOWS = "windows"


_ARCHITECTURES = {
    System.LINUX: ("x86_64", "aarch64", "riscv64"),
    System.MACOS: ("aarch64", "x86_64"),
    System.WINDOWS: ("x86_64",),
}
_NARROW_ABIS = ("x32", "ilp32", "abin32", "64_32")
"""Environments in which 64-bit processors have 32-bit addresses, such as ``gnux32``."""
_GLIBC = re.compile(r"gnu(?:\.(\d{1,3})\.(\d{1,3}))?")
_MACOS = re.compile(r"macosx?(?:(\d{1,3})(?:\.(\d{1,3}))?)?")
_EXAMPLES = f"{LINUX_X86_64}, x86_64-unknown-linux-musl, {MACOS_AARCH64} or {WINDOWS_X86_64}"


def architecture_of(triple: str) -> str:
    """The processor's architecture, which is the first word of a triple."""
    return triple.split("-", 1)[0]


def system_of(triple: str) -> System | None:
    """The operating system of a triple; None if Bessemer builds no libraries for it."""
    words = triple.split("-")[1:]
    if "linux" in words:
        return System.LINUX
    if any(map(_MACOS.fullmatch, words)):
        return System.MACOS
    return System.WINDOWS if "windows" in words else None


def environment_of(triple: str) -> str:
    """The C library of a triple without its version: ``gnu``, ``musl``, or another last word."""
    return triple.rsplit("-", 1)[-1].partition(".")[0]


def platform_of(triple: str) -> str:
    """The part of a triple that decides where its programs run: ``aarch64`` or ``aarch64-musl``.

    It is the architecture, then the C library unless it is glibc, or the system unless it is Linux.
    """
    architecture, system = architecture_of(triple), system_of(triple)
    if system in (System.MACOS, System.WINDOWS):
        return f"{architecture}-{system}"
    return f"{architecture}-musl" if environment_of(triple).startswith("musl") else architecture


def runs_on_workers(triple: str) -> bool:
    """Whether a worker could run programs for a triple: workers run under Linux."""
    return system_of(triple) is System.LINUX


def not_runnable(triple: str) -> str:
    """Why no library for a system without workers can be verified, and what to do."""
    return f"code for {triple} cannot be run by any worker here: ask for `verification: none`"


def unfit_triple(triple: str) -> str | None:
    """Why Bessemer builds no libraries for a triple of a known architecture; None if it does."""
    system = system_of(triple)
    if "darwin" in triple:
        return f"write '{architecture_of(triple)}-apple-macos11.0' instead of '{triple}'"
    if system is None:
        return (
            f"Bessemer builds for Linux, macOS and Windows: use a triple such as {_EXAMPLES}, not '{triple}'"
        )
    if triple.endswith(_NARROW_ABIS):
        return f"the triple '{triple}' has 32-bit addresses, the runtime has 64-bit ones: end it with gnu"
    if architecture_of(triple) not in _ARCHITECTURES[system]:
        possible = ", ".join(_ARCHITECTURES[system])
        return f"for {system.value}, Bessemer builds for {possible} only, not '{triple}'"
    return _UNFIT[system](triple)


def _unfit_libc(triple: str) -> str | None:
    word = triple.rsplit("-", 1)[-1]
    architecture = architecture_of(triple)
    given, oldest = _GLIBC.fullmatch(word), OLDEST_GLIBC[architecture]
    if given is None:
        if word == "musl":
            return None
        return f"Bessemer does not link to '{word}': end '{triple}' with gnu, gnu.2.28 or musl"
    if given[1] is not None and _version(given) < oldest:
        version = ".".join(map(str, oldest))
        return (
            f"libraries for {architecture} need glibc {version} or newer: end '{triple}' with gnu.{version}"
        )
    return None


def _unfit_macos(triple: str) -> str | None:
    if len(triple.split("-")) != 3 or not _MACOS.fullmatch(triple.split("-")[2]):
        return f"write '{architecture_of(triple)}-apple-macos11.0' instead of '{triple}'"
    if macos_version(triple) < OLDEST_MACOS:
        return f"libraries need macOS 11.0 or newer: end '{triple}' with macos11.0"
    return None


def macos_version(triple: str) -> tuple[int, int]:
    """The oldest version of macOS that a triple names; the oldest possible if it names none."""
    found = _MACOS.fullmatch(triple.split("-")[-1])
    return OLDEST_MACOS if found is None or found[1] is None else _version(found)


def _unfit_windows(triple: str) -> str | None:
    words = triple.split("-")
    if len(words) == 4 and words[2] == "windows" and words[3] in ("gnu", "msvc"):
        return None
    return f"write '{WINDOWS_X86_64}' instead of '{triple}'"


_UNFIT = {System.LINUX: _unfit_libc, System.MACOS: _unfit_macos, System.WINDOWS: _unfit_windows}


def _version(found: re.Match[str]) -> tuple[int, int]:
    return int(found[1]), int(found[2] or 0)
