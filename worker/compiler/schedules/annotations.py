"""What the layout phase and the families tell each other: annotations of blocks, attributes of functions."""

from __future__ import annotations

SCHEDULED = "tirx.is_scheduled"
"""Marks a function that has its schedule, TVM's name for it."""
UNCLAIMED = "bessemer.unclaimed"
"""Marks a function that no family knows: its schedule follows the general rules."""

PATTERN = "op_pattern"
"""What TVM may fuse with a function: one of the following of its ``OpPatternKind``."""
INJECTIVE = 2
FUSES_OUTPUT = 4
"""Elementwise consumers may join the kernel (``kOutEWiseFusable``)."""
OPAQUE = 8
"""Nothing joins the kernel."""

FAMILY = "bessemer.family"
"""Names the family that a block is for, where it is for one only: one of the following."""
CONVOLUTION = "conv2d"
DEPTHWISE = "depthwise"
POOLING = "pooling"
TRANSPOSED = "transposed_convolution"

GROUP_BLOCKS = "bessemer.group_blocks"
"""Of a convolution: how many output blocks read the same inputs."""
DIMENSIONS = "bessemer.dimensions"
"""Of windows: the dimensions of the image, columns included."""
STRIDES, DILATION, PADDING, OUTPUT = (
    f"bessemer.{name}" for name in ("strides", "dilation", "padding", "output")
)
"""Of a transposed convolution: one number per dimension of the image."""

PACKED = "bessemer.packed"
"""Of a product whose right operand is packed: a panel's columns."""

ATTENTION = "bessemer.attention"
"""Of the result of attention: its dimensions, as positions in ``[..., query, feature]``."""
CAUSAL = "bessemer.causal"
"""Of attention whose query ``i`` sees the keys up to ``i`` plus this number only."""
SAFE = "bessemer.safe"
"""Of attention where a query that sees no key gives zeros instead of NaN."""

SHARES = "bessemer.shares"
"""Of a function that only copies: how its last argument, the result, could lie where the others do."""
JOIN = "join"
"""The others are parts of the result, one after another."""
CUT = "cut"
"""The result is a part of the only other one, at the place that follows."""
FIRST_BYTE = "bessemer.first_byte"
"""Of a cut: where the result begins."""
