"""Generates ``bessemer/contract/llvm_processors.py`` from TVM's LLVM: ``python -m docs.processors``.

The app and the client, which do not import TVM, read LLVM's names of processors and features from that file.
"""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

from bessemer.contract.target import LINUX_AARCH64, LINUX_RISCV64, LINUX_X86_64
from worker.compiler.target import is_64_bit, is_wide_riscv, known_processors, processors

PAGE = Path(__file__).parents[1] / "bessemer/contract/llvm_processors.py"
LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
ARM_32_TRIPLE = "arm-unknown-linux-gnueabihf"
WIDTH = 100
FEATURE = re.compile(r"^  (\S+) +- ", re.MULTILINE)
LIST_FEATURES = f"""
import tvm
target = tvm.target.Target({{"kind": "llvm", "mtriple": "{LINUX_X86_64}", "mattr": ["+help"]}})
tvm.target.codegen.llvm_get_cpu_features(target)
"""
"""LLVM prints its features where one of those asked for is ``+help``."""


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
        "X86_64: dict[str, tuple[str, ...]] = {",
        *(f'    "{level}": _names(\n{_words(names, 8)}\n    ),' for level, names in by_level.items()),
        "}",
        '"""Processors with 64-bit code, by the level of x86-64 whose instructions they have."""\n',
        _listing("X86_32", sorted(known.keys() - wide)),
        '"""Processors of x86 without 64-bit code."""',
    ]
    arm = {name for name in known_processors(LINUX_AARCH64) - known.keys() if not name.startswith("apple-")}
    risc = known_processors(LINUX_RISCV64) - known.keys()
    wide_risc = {name for name in risc if is_wide_riscv(name)} - {"generic"}
    others = {
        "AARCH64": (arm - {"generic"}, "Processors with 64-bit Arm code that run Linux."),
        "RISCV64": (wide_risc, "RISC-V processors with 64-bit code and double-precision registers."),
        "ARM_32": (
            known_processors(ARM_32_TRIPLE) - arm - known.keys(),
            "Arm processors without 64-bit code.",
        ),
        "RISCV_SMALL": (risc - wide_risc - {"generic"}, "RISC-V processors that lack one of these."),
    }
    for name, (found, text) in others.items():
        parts += ["", _listing(name, sorted(found)), f'"""{text}"""']
    parts += ["", _listing("X86_FEATURES", features())]
    parts.append('"""Features of x86 that a target may add or remove."""')
    return "\n".join(parts) + "\n"


def features() -> list[str]:
    """LLVM's names of the features of x86."""
    listing = subprocess.run(
        [sys.executable, "-c", LIST_FEATURES], check=True, capture_output=True, text=True
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
