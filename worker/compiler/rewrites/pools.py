"""An average pool after a convolution of one tap, as between the blocks of a DenseNet.

    avg_pool(conv2d(x, w) + b)                                      →   conv2d(avg_pool(x), w) + b

Both are linear, and every window counts all of its pixels, so they can change places. The convolution then
computes the pool's pixels only: a quarter for windows of 2 x 2 and stride 2.
"""

from __future__ import annotations

from math import prod

from tvm import relax
from tvm.relax.dpl import is_const, is_op, wildcard

from worker.compiler.layout.images import FLOATS, image_of, integers
from worker.compiler.layout.relax_graph import static_shape
from worker.compiler.rewrites.rewrite import Match, Rewrite

_X, _WEIGHTS, _BIAS = wildcard(), is_const(), is_const()
_CONVOLUTION = is_op("relax.nn.conv2d")(_X, _WEIGHTS)
_BIASED = is_op("relax.add")(_CONVOLUTION, _BIAS)
_POOL = is_op("relax.nn.avg_pool2d")(_CONVOLUTION | _BIASED)

_PLAIN = "NCHW"


def _pool_first(match: Match) -> relax.Expr | None:
    convolution, pool = match.call(_CONVOLUTION), match.call(_POOL)
    if not _is_pointwise(convolution) or not _has_whole_windows(pool):
        return None
    if _BIAS in match and not _is_per_channel(match[_BIAS]):
        return None
    pooled = relax.Call(pool.op, [match[_X]], pool.attrs)
    result = relax.Call(convolution.op, [pooled, match[_WEIGHTS]], convolution.attrs)
    return relax.op.add(result, match[_BIAS]) if _BIAS in match else result


def _is_pointwise(call: relax.Call) -> bool:
    """Whether a convolution of floats multiplies each pixel alone."""
    weights, attributes, image = image_of(call.args[1]), call.attrs, image_of(call.args[0])
    if weights is None or image is None or image_of(call) is None or image.dtype not in FLOATS:
        return False
    layouts = (attributes.data_layout, attributes.out_layout, attributes.kernel_layout)
    return (
        layouts == (_PLAIN, _PLAIN, "OIHW")
        and str(call.ty.dtype) == image.dtype
        and set(weights.sizes) == set(integers(attributes.strides)) == {1}
        and not any(integers(attributes.padding))
    )


def _has_whole_windows(pool: relax.Call) -> bool:
    """Whether a pool has fewer pixels than its image, and no window reaches over the edge."""
    image, output, attributes = image_of(pool.args[0]), image_of(pool), pool.attrs
    if image is None or output is None or (attributes.layout, attributes.out_layout) != (_PLAIN, _PLAIN):
        return False
    if any(integers(attributes.padding)) or set(integers(attributes.dilation)) != {1}:
        return False
    sides = zip(
        image.sizes, output.sizes, integers(attributes.pool_size), integers(attributes.strides), strict=True
    )
    return prod(output.sizes) < prod(image.sizes) and all(
        (pixels - 1) * stride + taps <= size for size, pixels, taps, stride in sides
    )


def _is_per_channel(bias: relax.Expr) -> bool:
    """Whether a bias is the same for all pixels."""
    shape = static_shape(bias)
    return shape is not None and set(shape[-2:]) <= {1}


REWRITES = (
    Rewrite(
        name="pool_first",
        summary="a 1x1 convolution before an average pool moves behind the pool, which has fewer pixels",
        pattern=_POOL,
        rewriter=_pool_first,
        is_default=True,
    ),
)
