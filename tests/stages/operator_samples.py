"""Operators of fewer models, as small functions with their inputs: matrices, special functions, searches."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from math import inf, nan
from typing import Any

import torch
import torch.nn.functional as F
from rule_samples import IMAGE, Sample, X, floats, truths, whole
from torch import linalg, special

N, B = whole(3, 4), truths(3, 4)
P, U = X.abs() + 0.3, X.tanh() * 0.95
SQUARE = floats(2, 4, 4) + 4 * torch.eye(4)
POSITIVE = floats(2, 4, 4) @ floats(2, 4, 4).mT + torch.eye(4)
TALL, WIDE = floats(2, 5, 3), floats(3, 5)
SINGULAR = torch.tensor([[1.0, 2.0], [2.0, 4.0]])
NAN = torch.tensor([[1.0, nan, 3.0], [nan, nan, 0.0], [2.0, 1.0, -inf]])


def again(factor: Callable[..., Any], a: torch.Tensor) -> torch.Tensor:
    """The product of a matrix's factors, which does not depend on their signs."""
    left, values, right = factor(a)
    return (left * values.unsqueeze(-2)) @ right


def eigen_again(a: torch.Tensor) -> torch.Tensor:
    """A symmetric matrix rebuilt from its eigenvalues and eigenvectors."""
    values, vectors = linalg.eigh(a)
    return (vectors * values.unsqueeze(-2)) @ vectors.mT


def older(operator: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    """An operator that torch warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return operator(*inputs)


MATRICES = (
    Sample("inverse", torch.inverse, (SQUARE,)),
    Sample("inverse of a singular matrix", lambda a: linalg.inv_ex(a)[1], (SINGULAR,)),
    Sample("system", linalg.solve, (SQUARE, floats(4, 3))),
    Sample("system of a vector", linalg.solve, (SQUARE[0], floats(4))),
    Sample("system from the right", lambda a, b: linalg.solve(a, b, left=False), (SQUARE, floats(2, 3, 4))),
    *(
        Sample(
            f"system by its triangles, left {left}, adjoint {adjoint}",
            lambda a, b, left=left, adjoint=adjoint: linalg.lu_solve(
                *linalg.lu_factor(a), b if left else b.mT, left=left, adjoint=adjoint
            ),
            (SQUARE[0].flip(0), floats(2, 4, 3)),
        )
        for left in (True, False)
        for adjoint in (True, False)
    ),
    Sample("inverse of a tensor", linalg.tensorinv, (SQUARE[0].reshape(4, 1, 2, 2),)),
    Sample("determinant", linalg.det, (floats(3, 4, 4),)),
    Sample("logarithm of a determinant", linalg.slogdet, (floats(3, 4, 4).double(),)),
    Sample("triangles", linalg.lu, (floats(2, 4, 3),)),
    Sample("Cholesky's factor", linalg.cholesky, (POSITIVE,)),
    Sample("its upper form", partial(older, lambda a: torch.cholesky(a, upper=True)), (POSITIVE,)),
    Sample("not a positive matrix", lambda a: linalg.cholesky_ex(a)[1], (-POSITIVE,)),
    Sample("system by that factor", torch.cholesky_solve, (floats(2, 4, 3), POSITIVE.tril())),
    Sample("inverse by that factor", torch.cholesky_inverse, (POSITIVE.tril(),)),
    Sample("orthogonal factor", linalg.qr, (TALL,)),
    Sample("the whole of it", lambda a: linalg.qr(a, "complete"), (TALL,)),
    Sample("of a wide matrix", linalg.qr, (WIDE,)),
    Sample("product with reflections", torch.ormqr, (floats(4, 3), floats(3), floats(4, 2))),
    Sample(
        "from the right",
        lambda a, t, b: torch.ormqr(a, t, b, left=False, transpose=True),
        (floats(2, 4, 4), floats(2, 4), floats(2, 3, 4)),
    ),
    Sample("reflections", linalg.householder_product, (floats(4, 3), floats(3))),
    Sample(
        "lower triangle",
        lambda a, b: linalg.solve_triangular(a, b, upper=False),
        (SQUARE.tril(), floats(2, 4, 3)),
    ),
    Sample(
        "upper triangle from the right",
        lambda a, b: linalg.solve_triangular(a, b, upper=True, left=False, unitriangular=True),
        (SQUARE[0].triu(), floats(3, 4)),
    ),
    Sample(
        "older form", partial(older, lambda a, b: torch.triangular_solve(b, a)[0]), (SQUARE, floats(2, 4, 3))
    ),
    Sample("eigenvalues", linalg.eigvalsh, (POSITIVE,)),
    Sample("eigenvectors", eigen_again, (POSITIVE - 3 * torch.eye(4),)),
    Sample("singular values", linalg.svdvals, (WIDE,)),
    Sample("singular vectors", partial(again, partial(linalg.svd, full_matrices=False)), (TALL,)),
    Sample("of a singular matrix", partial(again, linalg.svd), (SINGULAR,)),
    Sample("pseudoinverse", linalg.pinv, (TALL,)),
    Sample("of a lower triangle", partial(linalg.pinv, hermitian=True), (SQUARE,)),
    Sample("spectral norm", lambda a: (linalg.matrix_norm(a, 2), linalg.matrix_norm(a, "nuc")), (TALL,)),
    Sample("rank", linalg.matrix_rank, (SINGULAR,)),
    Sample("exponential", linalg.matrix_exp, (floats(2, 4, 4).double() * 2,)),
    Sample("exponential in float32", linalg.matrix_exp, (SQUARE / 9,)),
    Sample("power below zero", lambda a: linalg.matrix_power(a, -2), (SQUARE,)),
    Sample("form of two vectors", F.bilinear, (floats(5, 3), floats(5, 4), floats(2, 3, 4), floats(2))),
    Sample("added to a vector", lambda b, a, v: torch.addmv(b, a, v, beta=0.5), (floats(3), X, floats(4))),
    Sample("summed products", torch.addbmm, (floats(3, 5), floats(2, 3, 4), floats(2, 4, 5))),
    Sample("distance", lambda a, b: torch.dist(a, b, 3), (X, P)),
)

EDGES = torch.tensor([-2.5, -2.0, -0.3, 0.0, 1e-5, 1.0, 2.0, 12.5, 40.0, inf])

ORDERS = torch.tensor([nan, -1.0, 0.0, 1e-5, 0.3, 1.0, 7.5, 8.0, 60.0, 140.0, 150.0, 1e10, inf])

SPECIAL = (
    Sample("inverse of erf", torch.erfinv, (torch.tensor([-1.0, 1.0, 0.0, 0.999, -0.9999, 1.5, 1e-6]),)),
    Sample("inverse of erf in float64", torch.erfinv, (U.double(),)),
    Sample("quantile of the normal distribution", special.ndtri, (torch.tensor([0, 1e-9, 0.2, 0.9, 1, 2]),)),
    Sample("complement of erf", torch.erfc, (X * 3,)),
    Sample("its scaled form", special.erfcx, (X * 5,)),
    Sample("logarithm of the normal distribution", special.log_ndtr, (X * 9,)),
    Sample("logarithm of gamma", torch.lgamma, (EDGES,)),
    Sample("several of them", lambda a: torch.mvlgamma(a, 2), (P + 2,)),
    Sample("digamma", torch.digamma, (EDGES,)),
    Sample("digamma in float64", torch.digamma, (X.double(),)),
    Sample("polygamma", lambda a: torch.polygamma(1, a) + torch.polygamma(2, a), (P,)),
    Sample(
        "of numbers below zero",
        lambda a: (torch.polygamma(1, a), torch.polygamma(4, a), special.zeta(3.0, a)),
        (torch.tensor([-8.5, -0.25, 0.0, -40.75]),),
    ),
    Sample("zeta", special.zeta, (P + 1.5, P)),
    Sample(
        "its limits",
        special.zeta,
        (torch.tensor([1.0, 0.5, 2.5, nan, 2.0]), torch.tensor([2.0, 2.0, -0.5, 1.0, inf])),
    ),
    Sample("Bessel functions", lambda a: (special.i0e(a), special.i1(a), special.i1e(a)), (X * 9,)),
    Sample(
        "and their limits",
        lambda a: (torch.i0(a), special.i0e(a) * 1e18, special.i1(a), special.i1e(a) * 1e18),
        (torch.tensor([nan, inf, 0.0, 3e38, -3e38]),),
    ),
    Sample("a Bessel function in float64", torch.i0, (X.double() * 9,)),
    Sample(
        "shares of the gamma function",
        lambda a, x: (torch.igamma(a, x), torch.igammac(a, x)),
        (ORDERS.reshape(-1, 1).clone(), ORDERS),
    ),
    Sample(
        "hypotenuses without end",
        torch.hypot,
        (torch.tensor([inf, nan, inf, 0.0]), torch.tensor([inf, -inf, nan, 0.0])),
    ),
    Sample("neighboring number", torch.nextafter, (X, P)),
    Sample(
        "fraction and exponent",
        torch.frexp,
        (torch.tensor([0.0, -0.0, 1e-40, inf, nan, 1.0, -3.0, 100.0]),),
    ),
    Sample("fraction in float64", torch.frexp, (X.double() * 1e100,)),
    Sample("divisors", torch.gcd, (N, whole(3, 4, low=0, high=30))),
    Sample("multiples", torch.lcm, (N, whole(4, low=0, high=30))),
    Sample("shifts by tensors", lambda a, b: (a << b) + (a >> b), (N, N.abs() % 4)),
    Sample("bits", lambda a: a.view(torch.int32), (X,)),
    Sample("sign of a number", lambda a: torch.copysign(a, -1.0), (X,)),
    Sample("sign of a float", torch.copysign, (N, X)),
    Sample("middle slope", F.rrelu, (X,)),
    Sample("angle", torch.angle, (X,)),
    Sample("running logarithm", lambda a: a.logcumsumexp(0), (floats(6, 2) * 30,)),
    Sample("from nothing on", lambda a: a.logcumsumexp(-1), (torch.tensor([-inf, -inf, 1.0, inf, 2.0]),)),
    Sample("what is a number", lambda a: (a.nanmean(), a.nansum(0), torch.nan_to_num(a, 1.0)), (NAN,)),
    Sample("running extremes", lambda a: (a.cummax(-1), a.cummin(0)), (NAN,)),
    Sample("extremes", lambda a: (a.max(-1), a.min(0), a.max(), a.amin(-1)), (NAN,)),
    Sample("places", lambda a: (a.argmax(-1), a.argmin(0), a.argmax()), (NAN,)),
    Sample("in float64", lambda a: (a.max(-1), a.amin()), (X.double(),)),
    Sample(
        "of equal ones", lambda a: (a.argmax(-1), a.argmin(-1)), (torch.tensor([[1.0, 3, 3], [0, -0.0, 2]]),)
    ),
)

SORTED = floats(6).sort()[0]

SEARCHING = (
    Sample("between boundaries", torch.searchsorted, (SORTED, X)),
    Sample("behind equal ones", lambda s: torch.searchsorted(s, s, right=True, out_int32=True), (SORTED,)),
    Sample("between boundaries of its row", torch.searchsorted, (floats(3, 6).sort()[0], X)),
    Sample("by an order", lambda s, a: torch.searchsorted(s, a, sorter=s.argsort()), (floats(6), X)),
    Sample("one number", lambda s: torch.searchsorted(s, 0.3), (SORTED,)),
    Sample("the second", lambda a: (a.kthvalue(2), a.kthvalue(3, 0, keepdim=True)), (X,)),
    Sample(
        "the most frequent", lambda a: (a.mode(-1), a.mode(0, keepdim=True)), (whole(7, 5, low=0, high=3),)
    ),
    Sample("the median of numbers", lambda a: (a.nanmedian(), a[0].nanmedian(-1, keepdim=True)), (NAN,)),
    Sample("histogram", lambda a: torch.histc(a, 5), (X,)),
    Sample("histogram of one value", lambda a: torch.histc(a * 0 + 2, 4), (X,)),
    Sample("moments", lambda a: (torch.var_mean(a, 1), torch.std_mean(a)), (X,)),
    Sample("first places", lambda m: torch.nonzero_static(m, size=15), (B,)),
    Sample("nothing to sort", lambda a: (a[:, :0].sort(-1)[0].sum() + a.sum(),), (X,)),
    Sample("nothing of the largest", lambda a: a.topk(0)[0].sum() + a.sum(), (X,)),
)


def without_columns(a: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """A copy with zeros in the columns that a mask names."""
    result = a.clone()
    result[:, mask] = 0.0
    return result


ROWS = torch.tensor([2, 0, 2])
WHERE = whole(3, 4, low=0, high=3)

WRITING = (
    *(
        Sample(
            f"scatter by {how}, self {own}",
            lambda a, i, b, how=how, own=own: a.scatter_reduce(0, i, b, how, include_self=own),
            (X, WHERE, P),
        )
        for how in ("sum", "mean", "prod", "amin")
        for own in (True, False)
    ),
    *(
        Sample(
            f"rows by {how}",
            partial(older, lambda a, i, b, how=how: a.index_reduce(0, i, b, how, include_self=False)),
            (X, ROWS, P),
        )
        for how in ("mean", "prod", "amax")
    ),
    Sample("mean of integers", lambda a, i, b: a.scatter_reduce(0, i, b, "mean"), (N, WHERE, N.flip(0))),
    Sample(
        "scatter and multiply",
        partial(older, lambda a, i, b: torch.scatter(a, 0, i, b, reduce="multiply")),
        (X, WHERE, P),
    ),
    Sample("scatter a factor", lambda a, i: torch.scatter(a, 0, i, 2.0, reduce="multiply"), (X, WHERE)),
    Sample("columns by a mask", without_columns, (X, B[0])),
    Sample("rows by a mask", lambda a, m, b: a.index_put((m,), b), (X, B[:, 0], floats(4))),
    Sample("put", lambda a, i, b: a.put(i, b), (X, torch.tensor([1, 5]), floats(2))),
    Sample("diagonal", lambda a, b: torch.diagonal_scatter(a, b, -1, 1, 2), (floats(2, 4, 5), floats(2, 3))),
    Sample(
        "repeat each as often",
        lambda a, r: a.repeat_interleave(r, 1, output_size=6),
        (X, torch.tensor([1, 2, 0, 3])),
    ),
    Sample("by strides", lambda a: a.as_strided((4, 3), (1, 2), 1), (X,)),
    *(
        Sample(
            f"one number by {how}",
            partial(
                older, lambda a, i, how=how: (a.scatter_reduce(0, i, a, how), a.index_reduce(0, i, a, how))
            ),
            (torch.tensor(3.0), torch.tensor(0)),
        )
        for how in ("mean", "amax")
    ),
    Sample(
        "of one number",
        lambda a, i: (a.scatter_add(0, i[0], a), a.unfold(0, 1, 1), a.index_select(0, i)),
        (torch.tensor(3.0), torch.tensor([0])),
    ),
    Sample(
        "copies of views",
        lambda a: (
            torch.narrow_copy(a, -1, 1, 2),
            torch.permute_copy(a, (1, 0)),
            torch.unbind_copy(a),
            torch.view_copy(a, (2, 6)),
        ),
        (X,),
    ),
    Sample("by strides of a transpose", lambda a: (a.mT + 1).as_strided((3, 3), (1, 2), 2), (X,)),
    Sample(
        "write by strides", lambda a, b: torch.as_strided_scatter(a, b, (2, 2), (1, 2), 1), (X, X[:2, :2])
    ),
)


def _unpooled(a: torch.Tensor, rank: int) -> torch.Tensor:
    pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[rank - 1]
    unpool = (F.max_unpool1d, F.max_unpool2d, F.max_unpool3d)[rank - 1]
    return unpool(*pool(a, 2, return_indices=True), 2)


def _nearest(name: str, sizes: list[int], *factors: float | None) -> Sample:
    """A resize as traces write it: by size, with the factors or without."""
    overload = getattr(torch.ops.aten, name).default
    data = floats(2, 3, 7, 9, 5)[(slice(None), slice(None), *(0,) * (3 - len(sizes)))]
    return Sample(f"{name} to {sizes} by {factors}", lambda a: overload(a, sizes, *factors), (data,))


RESIZING = (
    _nearest("upsample_nearest1d", [11], 2.3),
    _nearest("upsample_nearest2d", [18, 10], 2.0, 2.0),
    _nearest("upsample_nearest2d", [18, 10], None, None),
    _nearest("upsample_nearest2d", [12, 7], 1.35, 1.5),
    _nearest("upsample_nearest3d", [3, 9, 8], 0.5, None, 1.7),
    _nearest("_upsample_nearest_exact1d", [7], None),
    _nearest("_upsample_nearest_exact2d", [12, 7], 1.35, 1.5),
    _nearest("_upsample_nearest_exact3d", [3, 9, 8], None, None, None),
    *(
        Sample(
            f"antialiased {mode} to {size}, corners {corners}",
            lambda a, mode=mode, size=size, corners=corners: F.interpolate(
                a, size, mode=mode, antialias=True, align_corners=corners
            ),
            (IMAGE,),
        )
        for mode, size, corners in (
            ("bilinear", (4, 5), False),
            ("bilinear", (4, 14), True),
            ("bicubic", (4, 14), False),
            ("bicubic", (3, 4), True),
        )
    ),
    Sample(
        "antialiased by a factor",
        lambda a: F.interpolate(a, scale_factor=0.6, mode="bicubic", antialias=True),
        (IMAGE.double(),),
    ),
    Sample("bicubic by a factor", lambda a: F.interpolate(a, scale_factor=1.7, mode="bicubic"), (IMAGE,)),
    Sample(
        "places of the largest", lambda a: F.max_pool2d(a, 3, 2, 1, return_indices=True), (IMAGE.round(),)
    ),
    Sample(
        "places with a rest",
        lambda a: F.max_pool2d(a, 2, ceil_mode=True, return_indices=True),
        (IMAGE,),
    ),
    Sample("adaptive places", lambda a: F.adaptive_max_pool2d(a, (3, 4), return_indices=True), (IMAGE,)),
    *(
        Sample(f"pooled and back, {rank} axes", partial(_unpooled, rank=rank), (floats(*shape),))
        for rank, shape in ((1, (2, 3, 6)), (2, (2, 3, 6, 8)), (3, (1, 2, 4, 4, 6)))
    ),
    *(
        Sample(
            f"maxima of windows that were drawn, {rank} axes",
            lambda a, d, pool=pool, sizes=sizes: pool(a, 2, sizes, _random_samples=d, return_indices=True),
            (data, floats(*data.shape[:2], rank).sigmoid()),
        )
        for rank, pool, data, sizes in (
            (2, F.fractional_max_pool2d, IMAGE, (4, 5)),
            (3, F.fractional_max_pool3d, floats(2, 3, 5, 4, 6), (3, 1, 4)),
        )
    ),
    Sample(
        "mean by a divisor with a rest",
        lambda a: F.avg_pool2d(a, 3, 2, 1, ceil_mode=True, divisor_override=2),
        (IMAGE[..., :8],),
    ),
    Sample("mean by a divisor", lambda a: F.avg_pool2d(a, 2, divisor_override=3), (IMAGE,)),
)
