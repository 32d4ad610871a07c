"""Which operators work on blocks."""

from __future__ import annotations

from worker.compiler.layout.blocked_operators import ELEMENTWISE, cast, divide, join, map_elements, reshape
from worker.compiler.layout.blocked_pools import average, pool, pool_adaptively
from worker.compiler.layout.convolution_operators import convolve
from worker.compiler.layout.convolution_types import Rule

_DIMENSIONS = (1, 2, 3)

RULES: dict[str, Rule] = {
    **{f"relax.nn.conv{dimensions}d": convolve for dimensions in _DIMENSIONS},
    **{f"relax.nn.conv{dimensions}d_transpose": convolve for dimensions in _DIMENSIONS},
    **{f"relax.nn.max_pool{dimensions}d": pool for dimensions in _DIMENSIONS},
    **{f"relax.nn.avg_pool{dimensions}d": pool for dimensions in _DIMENSIONS},
    **{f"relax.nn.adaptive_avg_pool{dimensions}d": pool_adaptively for dimensions in _DIMENSIONS},
    "relax.mean": average,
    "relax.concat": join,
    "relax.astype": cast,
    "relax.divide": divide,
    "relax.reshape": reshape,
    "relax.expand_dims": reshape,
    "relax.squeeze": reshape,
    **{f"relax.{name}": map_elements for name in ELEMENTWISE},
}
"""By the operator's name."""
