"""Compares two texts line by line, and two lines word by word. Pure functions with bounded work.

Source: Bram Cohen's patience diff: lines that are unique in both texts are matched first.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

MAX_CELLS = 5_000_000
"""The limit of the work on two texts. Once it is spent, parts without unique lines count as replaced."""

MAX_GAP_CELLS = 90_000
MAX_WORD_CELLS = 6_400
CONTEXT = 3

_WORDS = re.compile(r"\w+|\s+|.", re.DOTALL)

Pair = tuple[int, int]


class Change(NamedTuple):
    """Lines ``before[start:end]`` that became ``after[new_start:new_end]``. One of the two may be empty."""

    start: int
    end: int
    new_start: int
    new_end: int


@dataclass
class Budget:
    """The remaining work, in lines and in cells of the tables that compare parts without unique lines."""

    cells: int = MAX_CELLS

    def takes(self, cells: int) -> bool:
        """Take the cells of a table; False if they do not fit."""
        if cells > min(MAX_GAP_CELLS, self.cells):
            return False
        self.cells -= cells
        return True


def changes(before: Sequence[str], after: Sequence[str], budget: Budget) -> tuple[Change, ...]:
    """What changed, in order. Equal texts have no changes."""
    matched = [*_matches(before, after, budget), (len(before), len(after))]
    found: list[Change] = []
    old = new = 0
    for line, new_line in matched:
        if (old, new) != (line, new_line):
            found.append(Change(old, line, new, new_line))
        old, new = line + 1, new_line + 1
    return tuple(found)


def _matches(before: Sequence[str], after: Sequence[str], budget: Budget) -> Iterator[Pair]:
    """Pairs of equal lines, both ascending."""
    waiting: list[tuple[int, int, int, int] | Pair] = [(0, len(before), 0, len(after))]
    while waiting:
        part = waiting.pop()
        if len(part) == 2:
            yield part
            continue
        start, end, new_start, new_end = part
        while start < end and new_start < new_end and before[start] == after[new_start]:
            yield (start, new_start)
            start, new_start = start + 1, new_start + 1
        tail: list[Pair] = []
        while start < end and new_start < new_end and before[end - 1] == after[new_end - 1]:
            end, new_end = end - 1, new_end - 1
            tail.append((end, new_end))
        inside: list[tuple[int, int, int, int] | Pair] = []
        if start < end and new_start < new_end:
            inside = _inside(before, after, (start, end, new_start, new_end), budget)
        waiting += [*tail, *reversed(inside)]


def _inside(
    before: Sequence[str], after: Sequence[str], part: tuple[int, int, int, int], budget: Budget
) -> list[tuple[int, int, int, int] | Pair]:
    start, end, new_start, new_end = part
    budget.cells -= end - start + new_end - new_start
    anchors = _unique_pairs(before, after, part) if budget.cells > 0 else []
    if not anchors:
        if not budget.takes((end - start) * (new_end - new_start)):
            return []
        pairs = common(before[start:end], after[new_start:new_end])
        return [(start + line, new_start + new_line) for line, new_line in pairs]
    found: list[tuple[int, int, int, int] | Pair] = []
    for line, new_line in anchors:
        found += [(start, line, new_start, new_line), (line, new_line)]
        start, new_start = line + 1, new_line + 1
    return [*found, (start, end, new_start, new_end)]


def _unique_pairs(before: Sequence[str], after: Sequence[str], part: tuple[int, int, int, int]) -> list[Pair]:
    """The longest ascending sequence of lines that are unique in both parts."""
    start, end, new_start, new_end = part
    counts, new_counts = Counter(before[start:end]), Counter(after[new_start:new_end])
    place = {after[line]: line for line in range(new_start, new_end) if new_counts[after[line]] == 1}
    pairs = [
        (line, place[before[line]])
        for line in range(start, end)
        if counts[before[line]] == 1 and before[line] in place
    ]
    ends: list[int] = []
    chosen: list[int] = []
    previous: list[int] = []
    for number, (_, new_line) in enumerate(pairs):
        at = bisect_left(ends, new_line)
        previous.append(chosen[at - 1] if at else -1)
        ends[at : at + 1], chosen[at : at + 1] = [new_line], [number]
    found: list[Pair] = []
    number = chosen[-1] if chosen else -1
    while number >= 0:
        found.append(pairs[number])
        number = previous[number]
    return found[::-1]


def common(before: Sequence[str], after: Sequence[str]) -> list[Pair]:
    """The longest common subsequence, by a table of ``len(before) * len(after)`` cells."""
    table = [[0] * (len(after) + 1) for _ in range(len(before) + 1)]
    for line in reversed(range(len(before))):
        row, below, text = table[line], table[line + 1], before[line]
        for new_line in reversed(range(len(after))):
            row[new_line] = (
                below[new_line + 1] + 1
                if text == after[new_line]
                else max(below[new_line], row[new_line + 1])
            )
    found: list[Pair] = []
    line = new_line = 0
    while line < len(before) and new_line < len(after):
        if before[line] == after[new_line]:
            found.append((line, new_line))
            line, new_line = line + 1, new_line + 1
        elif table[line + 1][new_line] >= table[line][new_line + 1]:
            line += 1
        else:
            new_line += 1
    return found


def word_marks(before: str, after: str) -> tuple[list[Pair], list[Pair]]:
    """The parts of two lines that differ, as ranges of characters; none if the lines are mostly different."""
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    first = _common_start(old, new)
    last = min(_common_start(old[::-1], new[::-1]), len(old) - first, len(new) - first)
    middle, new_middle = old[first : len(old) - last], new[first : len(new) - last]
    pairs = common(middle, new_middle) if len(middle) * len(new_middle) <= MAX_WORD_CELLS else []
    equal = [*old[:first], *(middle[line] for line, _ in pairs), *old[len(old) - last :]]
    if 2 * _letters(equal) < max(_letters(old), _letters(new)):
        return [], []
    same = {first + line for line, _ in pairs} | {*range(first), *range(len(old) - last, len(old))}
    new_same = {first + line for _, line in pairs} | {*range(first), *range(len(new) - last, len(new))}
    return _ranges(old, same), _ranges(new, new_same)


def _letters(words: Sequence[str]) -> int:
    return sum(len(word) for word in words if not word.isspace())


def _common_start(old: Sequence[str], new: Sequence[str]) -> int:
    count = 0
    while count < min(len(old), len(new)) and old[count] == new[count]:
        count += 1
    return count


def _ranges(words: Sequence[str], same: set[int]) -> list[Pair]:
    """The characters of the words that are not the same, joined where they touch."""
    found: list[Pair] = []
    start = 0
    for number, word in enumerate(words):
        end = start + len(word)
        if number not in same:
            if found and found[-1][1] == start:
                found[-1] = (found[-1][0], end)
            else:
                found.append((start, end))
        start = end
    return found
