"""Operators on complex numbers, and Fourier transforms, for the tests of the translation rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from rule_samples import Sample, floats


def _pairs(value: Any) -> Any:
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value.resolve_neg()


def _sample(name: str, body: Callable[..., Any], *inputs: torch.Tensor) -> Sample:
    """A sample on complex tensors, which are passed and returned as pairs of real numbers."""

    def on_pairs(*pairs: torch.Tensor) -> Any:
        found = body(*map(torch.view_as_complex, pairs))
        return tuple(map(_pairs, found)) if isinstance(found, tuple | list) else _pairs(found)

    return Sample(name, on_pairs, tuple(map(torch.view_as_real, inputs)))


def numbers(*shape: int) -> torch.Tensor:
    """Complex numbers around zero, the same at each call."""
    return torch.view_as_complex(floats(*shape, 2))


A, B = numbers(3, 4), numbers(3, 4).flip(1).contiguous()
SQUARE = numbers(4, 4) + 3 * torch.eye(4)


def _filled(a: torch.Tensor) -> torch.Tensor:
    whole = torch.zeros(3, 6, dtype=torch.cfloat)
    whole[:, :4] = a
    whole[0] = 1j
    whole[1, 2] += 2
    return whole


def _changed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    copy = a.clone()
    copy *= b
    copy -= 1j
    copy.real = b.imag
    return copy


COMPLEX_NUMBERS = (
    _sample("sums", lambda a, b: (a + b, a - b * 2, 1 - a, a + 2j, torch.add(a, b, alpha=2j)), A, B),
    _sample("products", lambda a, b: (a * b, a * 2j, a * b.real, a * torch.tensor([1j, 2, 3, 4])), A, B),
    _sample("quotients", lambda a, b: (a / b, a / b.abs(), 1 / a, a / (1 + 2j)), A, B),
    _sample("powers", lambda a, b: (a**3, a**-2, a**0.3, a**b, 2**a, a.sqrt(), a.rsqrt()), A, B),
    _sample("powers of zero", lambda a: (a * 0) ** 2.5, A),
    _sample("exponentials", lambda a: (a.exp(), a.log(), a.log2(), a.log1p(), a.expm1(), a.sigmoid()), A),
    _sample(
        "inverse trigonometry",
        lambda a: (a.asin(), a.acos(), a.atan(), a.asinh(), a.acosh(), a.atanh()),
        A,
    ),
    _sample("sizes of large numbers", lambda a: ((a * 1e25).abs() / 1e25, (a * 1e30).sqrt() / 1e15), A),
    _sample("trigonometry", lambda a: (a.sin(), a.cos(), a.tan(), a.sinh(), a.cosh(), a.tanh()), A),
    _sample("parts", lambda a: (a.abs(), a.angle(), a.conj(), a.real, a.imag, a.conj().imag, a.sgn()), A),
    _sample("from parts", lambda a: (torch.polar(a.abs(), a.angle()), torch.complex(a.imag, a.real)), A),
    _sample("fills", _filled, A),
    _sample("changes in place", _changed, A, B),
    _sample(
        "constants",
        lambda a: (torch.full((2,), 1 + 2j), torch.ones_like(a), a.new_zeros(2), a.clone().fill_(1j)),
        A,
    ),
    _sample("choices", lambda a, b: (torch.where(a.real > 0, a, b), a.masked_fill(a.imag > 0, 1j)), A, B),
    _sample("joins", lambda a, b: (torch.stack([a, b], 1), torch.cat([a, b.real], -1)), A, B),
    _sample("comparisons", lambda a, b: (a == b, a != 0, a.isnan(), a.isinf(), torch.isclose(a, b)), A, B),
    _sample("sums along axes", lambda a: (a.sum(), a.mean(-1), a.mean(), a.cumsum(1), a.trace()), A),
    _sample("products along axes", lambda a: (a.prod(0), a.prod(), a.cumprod(1)), A),
    _sample("norms", lambda a: (a.norm(), torch.linalg.vector_norm(a, 1, -1), a.std(0), a.any(1)), A),
    _sample(
        "matrices",
        lambda a, b: (a @ b.T, torch.mv(a, b[0]), torch.vdot(a[0], b[0]), torch.outer(a[0], b[0])),
        A,
        B,
    ),
    _sample(
        "added products",
        lambda a: (torch.addmm(a, a, a, beta=2), torch.nn.functional.linear(a, a, a[0])),
        SQUARE,
    ),
    _sample(
        "spectral layer",
        lambda a, w: torch.einsum("bixy,ioxy->boxy", a, w),
        numbers(2, 3, 4, 2),
        numbers(3, 5, 4, 2),
    ),
    _sample("convolution", torch.nn.functional.conv1d, numbers(2, 3, 8), numbers(5, 3, 3)),
    _sample("systems", lambda a, b: (torch.linalg.solve(a, b.T), torch.linalg.inv(a)), SQUARE, B),
    _sample("systems of a matrix and a batch", torch.linalg.solve, SQUARE[None], SQUARE.T.contiguous()),
    _sample("variances and means", lambda a: (*torch.var_mean(a, 1), *torch.std_mean(a)), A),
    _sample("one or the other", lambda a, b: torch.logical_xor(a, b - b[0]), A, B),
    _sample("determinants", lambda a: (torch.linalg.det(a), *torch.linalg.slogdet(a)), SQUARE),
    _sample("determinants of a batch", torch.linalg.det, numbers(2, 3, 5, 5)),
    _sample(
        "determinants of singular matrices", torch.linalg.det, numbers(2, 1, 4).expand(2, 4, 4).contiguous()
    ),
    _sample("systems of vectors", torch.linalg.solve, SQUARE.expand(3, 4, 4).contiguous(), A),
    _sample(
        "views",
        lambda a: (a.reshape(2, 6), a.T, a[None].squeeze(0), a[:, 1], a[1:, ::2], a.unfold(1, 2, 1)),
        A,
    ),
    _sample(
        "moves",
        lambda a: (a.flip(0), a.roll(1, 0), a.repeat(2, 1), a.tril(), a.unbind(0)[1], a.split(2, 1)[1]),
        A,
    ),
    _sample(
        "indices",
        lambda a: (a[torch.tensor([2, 0])], a.index_select(1, torch.tensor([1, 3])), a.diagonal()),
        A,
    ),
    _sample(
        "writes at indices",
        lambda a, b: (
            a.index_put((torch.tensor([0, 2]),), b[:2]),
            a.index_add(0, torch.tensor([0, 2]), b[:2]),
            a.scatter(1, torch.zeros(3, 1, dtype=torch.long), 1j),
        ),
        A,
        B,
    ),
    _sample("padding", lambda a: torch.nn.functional.pad(a, (1, 2)), A),
    _sample(
        "wider numbers", lambda a: (a.to(torch.complex128) * 2, a.to(torch.complex128).to(torch.cfloat)), A
    ),
    _sample("bits", lambda a: (a.view(torch.float32), a.real.contiguous().view(torch.cfloat)), A),
)


def _transforms(length: int) -> Sample:
    """Transforms of complex and real numbers of a length, and back, along the last axis and along another."""

    def body(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
        real, spectrum = a.real, torch.fft.rfft(a.real)
        return (
            torch.fft.fft(a),
            torch.fft.ifft(a, norm="ortho"),
            torch.fft.fft(a.mT, dim=-2),
            spectrum,
            torch.fft.rfft(real.mT, dim=-2, norm="forward"),
            torch.fft.irfft(spectrum * 2, n=length),
            torch.fft.irfft(a[:, : length // 2 + 1], n=length),
            torch.fft.irfft(a[:, : length // 2 + 1].mT, n=length, dim=-2),
        )

    return _sample(f"transforms of length {length}", body, numbers(3, length))


FOURIER = (
    *map(_transforms, (67, 81, 176)),
    _sample("transforms of two long axes", lambda a: torch.fft.fft2(a, norm="ortho"), numbers(2, 66, 65)),
    Sample(
        "back and forth on two axes", lambda a: torch.fft.irfft2(torch.fft.rfft2(a) * 2), (floats(1, 70, 72),)
    ),
    Sample("frequencies", lambda a: a + torch.fft.fftfreq(7, 0.5) + torch.fft.rfftfreq(12), (floats(7),)),
)
