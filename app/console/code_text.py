"""Texts of the compiler as lines, functions and rows of a comparison. Pure functions and values."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from hashlib import blake2b
from itertools import islice, pairwise
from typing import NamedTuple

from app.console.code_diff import CONTEXT, Budget, changes
from bessemer.contract.code import listed_name

_DEFINITION = re.compile(r"^    def (\w+)\(")
_DECORATOR = re.compile(r"^    @([TRI]\.\w+)")
MAX_FUNCTIONS = 20_000
"""The most functions read from one text."""


@dataclass(frozen=True)
class Function:
    """A function of a module's text.

    Attributes:
        name: its name.
        is_kernel: whether it is TensorIR, not Relax.
        start: its first line, from 0; its decorators belong to it.
        end: the line after its last.
        digest: equal for equal texts.
        body: equal for functions that differ in their names only.
    """

    name: str
    is_kernel: bool
    start: int
    end: int
    digest: bytes
    body: bytes

    @property
    def lines(self) -> int:
        """The number of its lines."""
        return self.end - self.start


@dataclass(frozen=True)
class Text:
    """A text as lines. A job wrote it, so it may contain anything."""

    data: str

    @cached_property
    def lines(self) -> Sequence[str]:
        """The lines without their ends. Only a line feed ends one."""
        lines = self.data.split("\n")
        return lines[:-1] if lines[-1] == "" else lines

    @cached_property
    def functions(self) -> Mapping[str, Function]:
        """The functions of a module in TVMScript, in order; if names are equal, only the first."""
        starts: list[tuple[int, str, bool]] = []
        first: int | None = None
        is_kernel = False
        for number, line in enumerate(self.lines):
            decorator = _DECORATOR.match(line)
            if decorator is not None:
                first = number if first is None else first
                is_kernel = is_kernel or decorator[1] == "T.prim_func"
                continue
            definition = _DEFINITION.match(line)
            if definition is not None:
                starts.append((number if first is None else first, listed_name(definition[1]), is_kernel))
                first, is_kernel = None, False
        ends = [*(start for start, _, _ in starts[1:]), len(self.lines)]
        found: dict[str, Function] = {}
        for (start, name, kernel), end in islice(zip(starts, ends, strict=False), MAX_FUNCTIONS):
            while end > start and not self.lines[end - 1].strip():
                end -= 1
            found.setdefault(name, _function(self.lines, name, kernel, start, end))
        return found

    def window(self, start: int, count: int) -> Sequence[str]:
        """Up to ``count`` lines, beginning with line ``start``, counted from 0."""
        return self.lines[max(start, 0) : max(start, 0) + count]


def _function(lines: Sequence[str], name: str, is_kernel: bool, start: int, end: int) -> Function:
    text = "\n".join(lines[start:end])
    anonymous = text.replace(f"def {name}(", "def (", 1)
    return Function(name, is_kernel, start, end, _digest(text), _digest(anonymous))


def _digest(text: str) -> bytes:
    return blake2b(text.encode(errors="replace"), digest_size=16).digest()


class Fate(StrEnum):
    """What became of a function between two steps."""

    CHANGED = "changed"
    ADDED = "added"
    REMOVED = "removed"
    RENAMED = "renamed"


class RowKind(StrEnum):
    """What a row of a comparison shows."""

    FUNCTION = "function"
    SAME = "same"
    CHANGED = "changed"
    REMOVED = "removed"
    ADDED = "added"
    FOLD = "fold"


class Row(NamedTuple):
    """A row of a comparison side by side.

    Attributes:
        kind: what it shows.
        before: the line of the text before, from 0; -1 for none.
        after: the line of the text after, from 0; -1 for none.
        size: for a fold, how many lines it hides; for a function, its index in ``Comparison.functions``.
    """

    kind: RowKind
    before: int
    after: int
    size: int = 1


@dataclass(frozen=True)
class FunctionChange:
    """A function that differs between two steps.

    Attributes:
        name: its name after, or before if it was removed.
        fate: what became of it.
        old_name: its previous name; empty if it was not renamed.
        removed: the number of removed lines.
        added: the number of added lines.
        row: its first row.
    """

    name: str
    fate: Fate
    old_name: str
    removed: int
    added: int
    row: int


@dataclass(frozen=True)
class Comparison:
    """Two texts side by side, function by function.

    Attributes:
        rows: what to show, in order.
        functions: the functions that differ.
        unchanged: how many are the same.
    """

    rows: Sequence[Row]
    functions: Sequence[FunctionChange]
    unchanged: int

    @property
    def removed(self) -> int:
        """The number of removed lines."""
        return sum(function.removed for function in self.functions)

    @property
    def added(self) -> int:
        """The number of added lines."""
        return sum(function.added for function in self.functions)


def compare(before: Text, after: Text) -> Comparison:
    """Compare two modules. Equal functions are left out, wherever they stand.

    Functions come in the order of ``after``; a removed function comes where it stood in ``before``.
    """
    rows: list[Row] = []
    differing: list[FunctionChange] = []
    budget = Budget()
    pairs = [pair for pair in _paired(before, after) if not _are_equal(*pair)]
    for old, new in pairs:
        first = len(rows)
        rows.append(Row(RowKind.FUNCTION, old.start if old else -1, new.start if new else -1, len(differing)))
        part = list(_rows(before, after, old, new, budget))
        rows += part
        removed = sum(row.kind in (RowKind.CHANGED, RowKind.REMOVED) for row in part)
        if old and new is None:
            removed = old.lines
        added = sum(row.kind in (RowKind.CHANGED, RowKind.ADDED) for row in part)
        old_name = old.name if old else ""
        name = new.name if new else old_name
        differing.append(
            FunctionChange(name, _fate(old, new), old_name if old_name != name else "", removed, added, first)
        )
    return Comparison(rows, differing, len(after.functions) - sum(new is not None for _, new in pairs))


_Pair = tuple[Function | None, Function | None]


def _paired(before: Text, after: Text) -> Iterator[_Pair]:
    renamed = _renamed(before, after)
    taken = set(renamed.values())
    gone = [name for name in before.functions if name not in after.functions and name not in taken]
    order = {name: number for number, name in enumerate(before.functions)}
    waiting = iter(gone)
    next_gone = next(waiting, None)
    for name, new in after.functions.items():
        old = before.functions.get(renamed.get(name, name))
        while next_gone is not None and old is not None and order[next_gone] < order[old.name]:
            yield before.functions[next_gone], None
            next_gone = next(waiting, None)
        yield old, new
    while next_gone is not None:
        yield before.functions[next_gone], None
        next_gone = next(waiting, None)


def _renamed(before: Text, after: Text) -> dict[str, str]:
    """The old names of renamed functions, by their new names; their bodies are the same."""
    gone = {old.body: old.name for old in before.functions.values() if old.name not in after.functions}
    found: dict[str, str] = {}
    for new in after.functions.values():
        if new.name not in before.functions and new.body in gone:
            found[new.name] = gone.pop(new.body)
    return found


def _are_equal(old: Function | None, new: Function | None) -> bool:
    return old is not None and new is not None and old.digest == new.digest


def _fate(old: Function | None, new: Function | None) -> Fate:
    if old is None:
        return Fate.ADDED
    if new is None:
        return Fate.REMOVED
    return Fate.CHANGED if old.name == new.name else Fate.RENAMED


def _rows(
    before: Text, after: Text, old: Function | None, new: Function | None, budget: Budget
) -> Iterator[Row]:
    """The rows of one function, with long runs of equal lines folded."""
    if old and new is None:
        yield Row(RowKind.FOLD, old.start, -1, old.lines)
        return
    start, end = (old.start, old.end) if old else (0, 0)
    new_start, new_end = (new.start, new.end) if new else (0, 0)
    found = changes(before.lines[start:end], after.lines[new_start:new_end], budget)
    edges = [(0, 0), *((each.end, each.new_end) for each in found)]
    for number, change in enumerate(found):
        line, new_line = edges[number]
        yield from _same(start + line, new_start + new_line, change.start - line, number > 0, True)
        yield from _changed(start, new_start, change.start, change.end, change.new_start, change.new_end)
    line, new_line = edges[-1]
    yield from _same(start + line, new_start + new_line, end - start - line, bool(found), False)


def _same(line: int, new_line: int, count: int, follows: bool, precedes: bool) -> Iterator[Row]:
    head, tail = CONTEXT if follows else 0, CONTEXT if precedes else 0
    folded = count - head - tail
    if folded <= 2:
        head, folded = count, 0
        tail = 0
    yield from (Row(RowKind.SAME, line + each, new_line + each) for each in range(head))
    if folded:
        yield Row(RowKind.FOLD, line + head, new_line + head, folded)
    yield from (Row(RowKind.SAME, line + each, new_line + each) for each in range(count - tail, count))


def _changed(start: int, new_start: int, line: int, end: int, new_line: int, new_end: int) -> Iterator[Row]:
    both = min(end - line, new_end - new_line)
    for each in range(both):
        yield Row(RowKind.CHANGED, start + line + each, new_start + new_line + each)
    for each in range(line + both, end):
        yield Row(RowKind.REMOVED, start + each, -1)
    for each in range(new_line + both, new_end):
        yield Row(RowKind.ADDED, -1, new_start + each)


class Life(NamedTuple):
    """The first and the last step that has a function, and the steps that changed it."""

    first: int
    last: int
    changed: tuple[int, ...]


def lives(steps: Sequence[Mapping[str, Function]]) -> dict[str, Life]:
    """The life of each function in the steps, by its name."""
    present: dict[str, list[int]] = {}
    for number, functions in enumerate(steps):
        for name in functions:
            present.setdefault(name, []).append(number)
    return {
        name: Life(
            numbers[0],
            numbers[-1],
            tuple(
                number
                for last, number in pairwise(numbers)
                if steps[last][name].digest != steps[number][name].digest
            ),
        )
        for name, numbers in present.items()
    }


def matching(text: Text, query: str, limit: int, start: int = 0) -> list[int]:
    """The first ``limit`` lines from ``start`` on that contain ``query`` in any case, numbered from 0."""
    wanted = query.casefold()
    found: list[int] = []
    for number, line in enumerate(text.lines[start:], start):
        if wanted in line.casefold():
            found.append(number)
            if len(found) == limit:
                break
    return found
