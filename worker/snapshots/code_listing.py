"""Writes what each function computes, and its code by form, for the console and the API."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from bessemer.contract.code import (
    CODE_INDEX,
    CODE_TEXTS,
    CodeCall,
    CodeFunction,
    CodeKind,
    CodeListing,
    CodeOperator,
    listed_name,
)
from bessemer.contract.ir import NO_TEXT, IrText
from worker.snapshots.frames import FrameWriter

Source = tuple[str, Mapping[CodeKind, str]]
"""The name of a function, and its code in each form that it has."""

MAX_TOTAL_BYTES = 1 << 26
"""The limit of all texts before compression. Later functions have none."""

SYMBOL_PREFIX = "__tvm_ffi_"

_DEFINE = re.compile(r'^define .*?@("[^"]+"|[\w.$-]+)\(')
_CALLED = re.compile(r'@("[^"]+"|[\w.$-]+)')
_LABEL = re.compile(r'("[^"]+"|[A-Za-z_.][\w.$]*):')
_FUNCTION_END = re.compile(r"\.?Lfunc_end\d+:|\t\.size\t|\t\.seh_endproc")
_UNSEEN_ASSEMBLY = re.compile(r"\t\.(?:cfi_|loc\b|file\b|seh_)|\.?L(?:tmp|func_begin)\d+:")
_UNSEEN_LLVM = re.compile(r"\s+#dbg_|\s+call void @llvm\.dbg\.")
_DEBUG_NOTE = re.compile(r",? !dbg !\d+")
_WORD = re.compile(r"[\w.$]+")
_ENTRY = re.compile(r"(?:\.visible |\.weak )?\.entry (\w+)\(")
_MARKS = ("", "_", ".L", "L_", "l_")
"""What assembly has before a name: macOS marks every name, and each format marks private ones."""


def llvm_functions(text: str) -> dict[str, str]:
    """The definitions of functions in LLVM IR by name, without what only debuggers read."""
    found: dict[str, str] = {}
    lines: list[str] = []
    name: str | None = None
    for line in text.splitlines(keepends=True):
        if name is None:
            match = _DEFINE.match(line)
            if match is None:
                lines = [line] if line.startswith("; Function Attrs") else []
                continue
            name = match[1].strip('"')
        if not _UNSEEN_LLVM.match(line):
            lines.append(_DEBUG_NOTE.sub("", line))
        if line.startswith("}"):
            found[name] = "".join(lines)
            name, lines = None, []
    return found


def assembly_functions(text: str, names: Collection[str]) -> dict[str, str]:
    """The functions with some names in LLVM's assembly, without what only debuggers and unwinders read."""
    found: dict[str, list[str]] = {}
    lines: list[str] | None = None
    for line in text.splitlines(keepends=True):
        label = _LABEL.match(line)
        name = _unmarked(label[1].strip('"'), names) if label else None
        if name is not None:
            lines = found.setdefault(name, [])
        elif _FUNCTION_END.match(line):
            lines = None
        if lines is not None and not _UNSEEN_ASSEMBLY.match(line):
            lines.append(line)
    return {name: "".join(kept) for name, kept in found.items()}


def _unmarked(symbol: str, names: Container[str]) -> str | None:
    """The name of a symbol of assembly; None if it is none of the names."""
    found = (symbol.removeprefix(mark) for mark in _MARKS if symbol.startswith(mark))
    return next((name for name in found if name in names), None)


def with_helpers(parts: Mapping[str, str], name: str, word: re.Pattern[str]) -> str:
    """The code of a function, then of the helpers that it calls, which the module does not name."""
    root = next((each for each in (SYMBOL_PREFIX + name, name) if each in parts), None)
    if root is None:
        return ""
    ordered = [root]
    for each in ordered:
        for found in dict.fromkeys(found.strip('"') for found in word.findall(parts[each])):
            called = _unmarked(found, parts)
            if called is not None and called not in ordered and not called.startswith(SYMBOL_PREFIX):
                ordered.append(called)
    return "\n".join(parts[each] for each in ordered)


def sources_of(objects: Path, names: Sequence[str]) -> Iterator[Source]:
    """LLVM IR and assembly of each function that has sources beside the objects."""
    wanted = set(names)
    for path in sorted(objects.glob("*.ll")):
        llvm = llvm_functions(path.read_text("utf-8", "replace"))
        assembly = assembly_functions(path.with_suffix(".s").read_text("utf-8", "replace"), llvm.keys())
        for name in sorted({symbol.removeprefix(SYMBOL_PREFIX) for symbol in llvm} & wanted):
            texts = {
                CodeKind.LLVM_IR: with_helpers(llvm, name, _CALLED),
                CodeKind.ASSEMBLY: with_helpers(assembly, name, _WORD),
            }
            yield name, texts


def ptx_sources(text: str, kernels: Mapping[str, Sequence[str]]) -> Iterator[Source]:
    """PTX of each function.

    Args:
        text: the PTX of a module.
        kernels: the kernels that each function starts.
    """
    entries = ptx_entries(text)
    for name, started in kernels.items():
        found = [entries[kernel] for kernel in dict.fromkeys(started) if kernel in entries]
        yield name, {CodeKind.PTX: "\n".join(found)}


def ptx_entries(text: str) -> dict[str, str]:
    """The kernels of a module in PTX by name. Inline assembly in a kernel has braces of its own."""
    found: dict[str, str] = {}
    lines: list[str] = []
    name, depth = "", 0
    for line in text.splitlines(keepends=True):
        match = _ENTRY.match(line) if not name else None
        name = match[1] if match else name
        if not name:
            continue
        lines.append(line)
        depth += line.count("{") - line.count("}")
        if depth == 0 and "}" in line:
            found[name], name, lines = "".join(lines), "", []
    return found


def write_code(
    folder: Path,
    calls: Sequence[CodeCall],
    operators: Sequence[CodeOperator],
    names: Sequence[str],
    sources: Iterable[Source],
) -> None:
    """Write ``code.json``, and ``code.zst`` if there are sources.

    Args:
        folder: the folder of results.
        calls: the calls of a run.
        operators: the operators of the exported program.
        names: the functions that the library has.
        sources: code of functions.
    """
    listed = (*(call.function for call in calls), *map(listed_name, names))
    computed: dict[str, set[int]] = {name: set() for name in listed}
    for call in calls:
        computed[call.function].update(call.operators)
    frames = FrameWriter(folder / CODE_TEXTS, MAX_TOTAL_BYTES)
    texts = {
        listed_name(name): {kind: frames.append(text) for kind, text in code.items()}
        for name, code in sources
    }
    functions = (_function(name, sorted(numbers), texts.get(name, {})) for name, numbers in computed.items())
    listing = CodeListing(functions=tuple(functions), calls=tuple(calls), operators=tuple(operators))
    (folder / CODE_INDEX).write_text(listing.model_dump_json(exclude_defaults=True), encoding="utf-8")


def _function(name: str, operators: Sequence[int], texts: Mapping[CodeKind, IrText]) -> CodeFunction:
    return CodeFunction(
        name=name,
        operators=tuple(operators),
        llvm_ir=texts.get(CodeKind.LLVM_IR, NO_TEXT),
        assembly=texts.get(CodeKind.ASSEMBLY, NO_TEXT),
        ptx=texts.get(CodeKind.PTX, NO_TEXT),
        truncated=not all(text.is_whole for text in texts.values()),
    )
