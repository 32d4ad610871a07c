"""Annotations of blocks and attributes of functions that connect the layout phase with the families."""

from __future__ import annotations

SCHEDULED = "tirx.is_scheduled"
"""Marks a scheduled function; the name is TVM's."""
AUTHORED = "bessemer.authored"
"""Marks a function that the model's author scheduled, which stays as it is."""
UNCLAIMED = "bessemer.unclaimed"
"""Marks a function that no family claimed, which follows the general rules."""

PATTERN = "op_pattern"
"""How TVM may fuse a function, one of the following values of ``OpPatternKind``."""
ELEMENTWISE = 0
"""The function may join the kernel before it, which TVM denies integers that are broadcast."""
INJECTIVE = 2
FUSES_OUTPUT = 4
"""Elementwise consumers may join the kernel (``kOutEWiseFusable``)."""
OPAQUE = 8
"""Nothing may join the kernel."""

FAMILY = "bessemer.family"
"""Names the only family that may claim a block's function, one of the following."""
CONVOLUTION = "conv2d"
DEPTHWISE = "depthwise"
POOLING = "pooling"
TRANSPOSED = "transposed_convolution"
WINOGRAD = "winograd"
GROUPED = "grouped_convolution"
OF_IMAGES = (CONVOLUTION, DEPTHWISE, POOLING, TRANSPOSED, WINOGRAD, GROUPED)

GROUP_BLOCKS = "bessemer.group_blocks"
"""On a convolution: the number of output blocks that read the same inputs."""
FACTORS = "bessemer.factors"
"""On a convolution of float32: the dtype of its factors before they were widened."""
DIMENSIONS = "bessemer.dimensions"
"""On windows: the number of the image's dimensions, columns included."""
STRIDES, DILATION, PADDING, OUTPUT = (
    f"bessemer.{name}" for name in ("strides", "dilation", "padding", "output")
)
"""On a transposed convolution: one number per dimension of the image."""
ACTIVATED = "bessemer.activated"
"""Marks the block that scales and activates a convolution's image, which is computed a row at a time."""
BUNDLE = "bessemer.bundle"
"""On a grouped convolution: the groups of a bundle, the inputs and the outputs of a group."""
STEPS = "bessemer.steps"
"""On a grouped convolution, which also has the ``DILATION`` and the ``PADDING`` before: its strides."""
PARTITION = "pragma_loop_partition_hint"
"""On a loop whose last iteration is shorter: compile that one separately; the name is TVM's."""
SIDE = "bessemer.side"
"""On Winograd's convolution, which also has the ``PADDING`` before an image: outputs of a tile's side."""

LAYER = "bessemer.layer"
"""On a convolution among whose algorithms a search may choose: its sizes."""

LAID_OUT = "bessemer.layout."
"""On a root block in a tuning record: the prefix of choices for the layout phase. ``SIDE_WANTED`` is the side
of a tile of the function's layer; the others concern the whole model."""
SIDE_WANTED, BLOCK_BITS, ACTIVATES, CHAINED = (
    f"{LAID_OUT}{name}" for name in ("side", "block_bits", "activates", "chains")
)
LAID_OUT_MODEL = f"{LAID_OUT}model"
"""On a root block with choices for the whole model: which model that is."""

PACKED = "bessemer.packed"
"""On a product with a packed right operand: the columns of a panel."""
PACKED_GROUP = "bessemer.packed_group"
"""On such a product: the adjacent steps of the depth of one column, if there are several."""

ATTENTION = "bessemer.attention"
"""On the result of attention: the positions of its dimensions in ``[..., query, feature]``."""
CAUSAL = "bessemer.causal"
"""On causal attention: query ``i`` sees only the keys up to ``i`` plus this number."""
SAFE = "bessemer.safe"
"""On attention: whether the result of a query that sees no key is zero instead of NaN."""

SCATTER = "bessemer.scatter"
"""On a function that writes values to a copy of a tensor: how a value joins the old one."""
STATE = "bessemer.state"
"""On ``main``: the indices of the first state among arguments and among results, and the number of states."""

SHARES = "bessemer.shares"
"""On a function that only copies: how its last argument, the result, may share memory with the others."""
JOIN = "join"
"""The other arguments are parts of the result, one after another."""
CUT = "cut"
"""The result is a part of the only other argument, from ``FIRST_BYTE`` on."""
FIRST_BYTE = "bessemer.first_byte"
"""On a cut: the offset of the result."""

TF32 = "bessemer.tf32"
"""On a function for a GPU: tensor cores may round factors of float32 to 10 bits of mantissa."""

LANES = "bessemer.lanes"
"""On a function written for processors: its vectors' lanes, which are the threads of a block on a GPU."""
