"""Fourier transforms of a few values as straight-line programs, and the factors of long ones.

A codelet splits its length into factors (Cooley and Tukey) down to primes, whose transforms use that two
values the same distance from the ends share their cosines and sines.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from math import cos, pi, sin

LARGEST_PRIME = 31
"""Lengths with a larger prime factor are computed by Bluestein's algorithm."""
_RADICES = (8, 4, 2)

Term = tuple[float, int]
Complex = tuple[int, int]


@dataclass
class Codelet:
    """Sums of multiples of earlier values. Values are numbered, the inputs first: real, imaginary, real, …

    Attributes:
        inputs: the number of inputs.
        sums: the terms of each further value.
        outputs: the values that are the transform, as pairs of real and imaginary part.
    """

    inputs: int
    sums: list[tuple[Term, ...]] = field(default_factory=list)
    outputs: list[Complex] = field(default_factory=list)

    def sum(self, *terms: Term) -> int:
        """Add a value, the sum of factors times values."""
        self.sums.append(terms)
        return self.inputs + len(self.sums) - 1

    def joined(self, left: Complex, right: Complex, sign: int) -> Complex:
        """``left + sign * right``."""
        real, imaginary = (self.sum((1, one), (sign, other)) for one, other in zip(left, right, strict=True))
        return real, imaginary

    def turned(self, value: Complex, turn: float) -> Complex:
        """A value times ``exp(-2πi turn)``."""
        if turn == 0:
            return value
        x, y = value
        c, s = cos(2 * pi * turn), sin(2 * pi * turn)
        return self.sum((c, x), (s, y)), self.sum((c, y), (-s, x))


@cache
def codelet(length: int) -> Codelet:
    """The forward transform of ``length`` complex values, not scaled."""
    found = Codelet(2 * length)
    found.outputs = _transform(found, [(2 * place, 2 * place + 1) for place in range(length)])
    return found


def _transform(code: Codelet, values: list[Complex]) -> list[Complex]:
    length = len(values)
    if length == 1:
        return values
    if length == 2:
        return [code.joined(values[0], values[1], sign) for sign in (1, -1)]
    first = next(prime for prime in range(2, length + 1) if length % prime == 0)
    if first == length:
        return _prime(code, values)
    rest = length // first
    rows = [_transform(code, values[start::first]) for start in range(first)]
    columns = [
        _transform(code, [code.turned(row[k], start * k / length) for start, row in enumerate(rows)])
        for k in range(rest)
    ]
    return [columns[place % rest][place // rest] for place in range(length)]


def _prime(code: Codelet, values: list[Complex]) -> list[Complex]:
    length, half = len(values), len(values) // 2
    sums = [code.joined(values[j], values[length - j], 1) for j in range(1, half + 1)]
    gaps = [code.joined(values[j], values[length - j], -1) for j in range(1, half + 1)]
    zero: Complex = tuple(
        code.sum((1, values[0][part]), *((1, one[part]) for one in sums)) for part in (0, 1)
    )  # type: ignore[assignment]
    outputs = [zero] * length
    for k in range(1, half + 1):
        angles = [2 * pi * (j * k % length) / length for j in range(1, half + 1)]
        even = [
            code.sum(
                (1, values[0][part]), *((cos(a), one[part]) for a, one in zip(angles, sums, strict=True))
            )
            for part in (0, 1)
        ]
        odd = [
            code.sum(*((sin(a), one[part]) for a, one in zip(angles, gaps, strict=True))) for part in (0, 1)
        ]
        outputs[k] = code.sum((1, even[0]), (1, odd[1])), code.sum((1, even[1]), (-1, odd[0]))
        outputs[length - k] = code.sum((1, even[0]), (-1, odd[1])), code.sum((1, even[1]), (1, odd[0]))
    return outputs


def radices(length: int) -> list[int] | None:
    """The lengths of the passes, whose product is ``length``; None if a prime factor is too large."""
    odd, found, factor = length, [], 3
    while odd % 2 == 0:
        odd //= 2
    twos = length // odd
    while odd > 1:
        if factor > LARGEST_PRIME:
            return None
        if odd % factor == 0:
            found.append(factor)
            odd //= factor
        else:
            factor += 2
    powers = []
    while twos > 1:
        radix = 4 if twos == 16 else next(one for one in _RADICES if twos % one == 0)
        powers.append(radix)
        twos //= radix
    return [*powers, *sorted(found, reverse=True)]
