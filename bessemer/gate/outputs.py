"""Compare the outputs of a library with expected outputs on the same inputs."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import inf, isfinite, isnan
from operator import ne, sub
from pathlib import Path

from bessemer.gate.arrays import Array, ArraysError, Header, arrays_of, reading

INPUTS, OUTPUTS = "inputs/", "outputs/"
"""Prefixes of the array names in a reference."""

STATE = "state."
"""The prefix of states' names. Invocations return states beside the outputs, if the library has any."""


@dataclass(frozen=True)
class OutputChange:
    """The output that changed most.

    Attributes:
        percent: for a float output, the largest difference of an element divided by the largest expected
            magnitude; otherwise the share of elements that differ. Infinite if the outputs cannot be
            compared.
        detail: the difference in words.
        note: how the outputs were matched, if their names differ.
    """

    percent: float
    detail: str
    note: str = ""


def compare_outputs(
    reference: Path, found: Path, *, by_position: bool = False, folder: str = ""
) -> OutputChange:
    """Compare the outputs of a library with a reference.

    Args:
        reference: a ``reference.npz``.
        found: the outputs of an invocation on the reference's inputs. State after the run is not compared.
        by_position: match renamed outputs by position if number, shapes and dtypes agree.
        folder: where the reference has the entry point that ran.

    Raises:
        ArraysError: a file cannot be read, or the names or shapes differ.
    """
    with reading(reference) as expected_archive, reading(found) as found_archive:
        expected = arrays_of(expected_archive, folder + OUTPUTS)
        if not expected:
            raise ArraysError(f"{reference} has no array whose name starts with '{folder}{OUTPUTS}'")
        given = {
            name: array
            for name, array in arrays_of(found_archive, "").items()
            if name in expected or not name.startswith(STATE)
        }
        if expected.keys() == given.keys():
            return _largest(_change(name, expected[name], given[name]) for name in expected)
        names = f"the outputs are {_listed(given)}, expected {_listed(expected)}"
        if not (by_position and _agree(expected, given)):
            raise ArraysError(names)
        pairs = zip(expected.values(), given.items(), strict=True)
        change = _largest(_change(name, before, now) for before, (name, now) in pairs)
        return replace(change, note=f"{names}: compared by position")


def _largest(changes: Iterable[OutputChange]) -> OutputChange:
    return max(changes, key=lambda change: change.percent)


def _agree(expected: dict[str, Array], given: dict[str, Array]) -> bool:
    """Whether the outputs differ only in names, and outputs with the same name have the same position."""
    if len(expected) != len(given):
        return False
    pairs = list(zip(expected, given, strict=True))
    return all(
        (before == now or (before not in given and now not in expected))
        and expected[before].header() == given[now].header()
        for before, now in pairs
    )


def _change(name: str, expected: Array, found: Array) -> OutputChange:
    headers = expected.header(), found.header()
    if headers[0].shape != headers[1].shape:
        raise ArraysError(
            f"output '{name}' has the shape {_shape(headers[1])}, expected {_shape(headers[0])}"
        )
    if headers[0].is_complex != headers[1].is_complex:
        raise ArraysError(f"output '{name}' is {headers[1].dtype!r}, expected {headers[0].dtype!r}")
    if all(header.is_float for header in headers):
        return _float_change(name, expected, found)
    return _exact_change(name, expected, found)


def _float_change(name: str, expected: Array, found: Array) -> OutputChange:
    difference = scale = 0.0
    for before, now in zip(expected.chunks(), found.chunks(), strict=True):
        difference = max(difference, _largest_difference(before, now))
        scale = max(scale, max(map(abs, filter(isfinite, before)), default=0.0))
    detail = f"output '{name}' differs by up to {difference:.3g}; its largest value was {scale:.3g}"
    return OutputChange(_percent(difference, scale), detail)


def _exact_change(name: str, expected: Array, found: Array) -> OutputChange:
    count = total = 0
    for before, now in zip(expected.chunks(), found.chunks(), strict=True):
        total += len(before)
        count += sum(map(ne, before, now))
    percent = 100.0 * count / total if total else 0.0
    return OutputChange(percent, f"output '{name}' differs in {count} of {total} elements")


def _percent(difference: float, scale: float) -> float:
    if difference == 0.0:
        return 0.0
    return 100.0 * difference / scale if scale else inf


def _largest_difference(before: tuple[float, ...], now: tuple[float, ...]) -> float:
    if all(map(isfinite, before)) and all(map(isfinite, now)):
        differences: Iterator[float] = map(sub, before, now)
        return max(map(abs, differences))
    return max(map(_difference, before, now))


def _difference(before: float, now: float) -> float:
    """Two NaNs agree, and so do two equal infinities."""
    if before == now or (isnan(before) and isnan(now)):
        return 0.0
    return abs(before - now) if isfinite(before) and isfinite(now) else inf


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _shape(header: Header) -> str:
    return "x".join(map(str, header.shape)) or "scalar"
