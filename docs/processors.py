"""Generates ``bessemer/contract/llvm_processors.py`` from TVM's LLVM: ``python -m docs.processors``.

The app and the client, which do not import TVM, read LLVM's names of processors and features from that file.
"""

import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

from bessemer.contract.triple import LINUX_AARCH64, LINUX_RISCV64, LINUX_X86_64
from worker.compiler.target import (
    implied_features,
    is_64_bit,
    is_wide_riscv,
    known_processors,
    processors,
)

PAGE = Path(__file__).parents[1] / "bessemer/contract/llvm_processors.py"
LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
ARM_32_TRIPLE = "arm-unknown-linux-gnueabihf"
WIDTH = 100
FEATURE = re.compile(r"^  (\S+) +- ", re.MULTILINE)
LIST_FEATURES = """
import sys
import tvm
target = tvm.target.Target({"kind": "llvm", "mtriple": sys.argv[1], "mattr": ["+help"]})
tvm.target.codegen.llvm_get_cpu_features(target)
"""
"""LLVM prints its features where one of those asked for is ``+help``."""
BASES = {
    "x86": (LINUX_X86_64, "x86-64"),
    "aarch64": (LINUX_AARCH64, "generic"),
    "riscv64": (LINUX_RISCV64, "generic-rv64"),
}
"""A triple and its least processor for each architecture."""
NOT_INSTRUCTIONS = re.compile(r"(16bit|32bit|64bit).*|v[89](\.\d)?[ar]")
"""Modes of x86, and versions of Arm's architecture, each of which adds dozens of features."""

PREFERENCE = re.compile(r"fuse-|predictable-|store-pair-|max-interleave-")
"""Preferences of processors, which are features of Arm's in LLVM."""


def page() -> str:
    """The module's text."""
    known = processors(LINUX_X86_64)
    wide = {name for name in known if is_64_bit(LINUX_X86_64, name)}
    by_level: dict[str, list[str]] = {level: [] for level in LEVELS}
    for name in sorted(wide):
        reached = [level for level in LEVELS if known[level] <= known[name]]
        by_level[reached[-1] if reached else LEVELS[0]].append(name)
    parts = [
        '"""LLVM\'s names of processors and features. Made by `python -m docs.processors`; do not edit."""\n',
        "",
        "def _names(text: str) -> tuple[str, ...]:",
        "    return tuple(text.split())\n\n",
        "def _rows(text: str) -> dict[str, frozenset[str]]:",
        "    rows: dict[str, set[str]] = {}",
        "    for word in text.split():",
        '        if word.endswith(":"):',
        "            added = rows.setdefault(word[:-1], set())",
        "        else:",
        "            added.add(word)",
        "    return {name: frozenset(others) for name, others in rows.items()}\n\n",
        "X86_64: dict[str, tuple[str, ...]] = {",
        *(f'    "{level}": _names(\n{_words(names, 8)}\n    ),' for level, names in by_level.items()),
        "}",
        '"""Processors with 64-bit code, by the level of x86-64 whose instructions they have."""\n',
        _listing("X86_32", sorted(known.keys() - wide)),
        '"""Processors of x86 without 64-bit code."""',
    ]
    arm = known_processors(LINUX_AARCH64) - known.keys()
    apple = {name for name in arm if name.startswith("apple-")}
    risc = known_processors(LINUX_RISCV64) - known.keys()
    wide_risc = {name for name in risc if is_wide_riscv(name)} - {"generic"}
    others = {
        "AARCH64": (arm - apple - {"generic"}, "Processors with 64-bit Arm code that run Linux."),
        "APPLE": (apple, "Processors with 64-bit Arm code that run macOS or another system of Apple's."),
        "RISCV64": (wide_risc, "RISC-V processors with 64-bit code and double-precision registers."),
        "ARM_32": (
            known_processors(ARM_32_TRIPLE) - arm - known.keys(),
            "Arm processors without 64-bit code.",
        ),
        "RISCV_SMALL": (risc - wide_risc - {"generic"}, "RISC-V processors that lack one of these."),
    }
    for name, (found, text) in others.items():
        parts += ["", _listing(name, sorted(found)), f'"""{text}"""']
    for architecture, (triple, mcpu) in BASES.items():
        names = features(triple)
        asked = [one for one in names if not NOT_INSTRUCTIONS.fullmatch(one)]
        closures = implied_features(triple, mcpu, asked)
        upper = architecture.upper()
        parts += ["", _listing(f"{upper}_FEATURES", names)]
        parts.append('"""Features that a target may add or remove."""')
        rows = [word for name, direct in _direct(closures) for word in (f"{name}:", *direct)]
        parts += ["", f"{upper}_IMPLIED = _rows(\n{_words(rows, 4)}\n)"]
        parts.append('"""Features, each with the features that it adds directly. Those may add others."""')
    return "\n".join(parts) + "\n"


def _direct(closures: Mapping[str, frozenset[str]]) -> Iterator[tuple[str, list[str]]]:
    """The features that each adds itself, without the rows of processors, which add preferences."""
    for name, others in closures.items():
        added_by_others = frozenset().union(*(closures.get(other, frozenset()) for other in others))
        direct = sorted(others - added_by_others)
        if not any(map(PREFERENCE.match, direct)):
            yield name, direct


def features(triple: str) -> list[str]:
    """LLVM's names of the features of a triple's architecture."""
    listing = subprocess.run(
        [sys.executable, "-c", LIST_FEATURES, triple], check=True, capture_output=True, text=True
    )
    return sorted(set(FEATURE.findall(listing.stderr.partition("Available features")[2])))


def _listing(name: str, words: list[str]) -> str:
    return f"{name} = frozenset(\n    _names(\n{_words(words, 8)}\n    )\n)"


def _words(names: list[str], indent: int) -> str:
    margin = " " * indent
    lines = textwrap.wrap(" ".join(names), WIDTH - indent, break_on_hyphens=False, break_long_words=False)
    return "\n".join(f"{margin}{line}" for line in ('"""', *lines, '"""'))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
