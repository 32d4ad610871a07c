"""Non-maximum suppression: of boxes that overlap, only the one with the highest score stays.

    order = argsort(scores), descending; boxes as [4, n] and groups as [n] in this order
    for box in order, unless suppressed
        kept[count++] = its place before the sort
        for other in boxes after it
            suppressed[other] |= same group and overlap(box, other) > threshold

The inner loop reads rows and does not branch, so LLVM vectorizes it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.nest import INDEX
from worker.compiler.translation.compaction import own_size

SIDES = 4
LEFT, TOP, RIGHT, BOTTOM = range(SIDES)


def write_suppression(bound: Any, dtype: str, threshold: float, is_grouped: bool) -> tirx.PrimFunc:
    """A scheduled function from sorted boxes to the places of those that stay, and their number.

    Args:
        bound: the number of boxes.
        dtype: the dtype of the boxes, float32 or float64.
        threshold: boxes that overlap by more suppress each other.
        is_grouped: whether the function takes a group for each box; boxes of different groups stay.
    """
    size = own_size(bound)
    inputs: dict[str, Any] = {"boxes": ((SIDES, size), dtype), "order": ((size,), INDEX)}
    if is_grouped:
        inputs["groups"] = ((size,), INDEX)
    results = {"kept": ((size,), INDEX), "count": ((1,), INDEX), "suppressed": ((size,), "int8")}
    function = nest.signature(inputs, results)
    boxes, order, *groups, kept, count, suppressed = function.params
    zero, none = nest.constant(0, INDEX), tirx.const(0, dtype)
    limit = tirx.const(_largest_within(threshold, dtype), dtype)

    def side(number: int, box: Any) -> Any:
        return boxes[nest.constant(number, INDEX), box]

    def area(box: Any) -> Any:
        return (side(RIGHT, box) - side(LEFT, box)) * (side(BOTTOM, box) - side(TOP, box))

    def overlaps(one: Any, other: Any) -> Any:
        width = tirx.min(side(RIGHT, one), side(RIGHT, other)) - tirx.max(side(LEFT, one), side(LEFT, other))
        height = tirx.min(side(BOTTOM, one), side(BOTTOM, other)) - tirx.max(side(TOP, one), side(TOP, other))
        shared = tirx.max(width, none) * tirx.max(height, none)
        return shared / (area(one) + area(other) - shared) > limit

    def box(place: Any) -> tirx.Stmt:
        def suppress(step: Any) -> tirx.Stmt:
            other = place + 1 + step
            hit = overlaps(place, other)
            if is_grouped:
                hit = tirx.all(hit, groups[0][place] == groups[0][other])
            return nest.store(suppressed, suppressed[other] | hit.astype("int8"), other)

        keep = nest.sequence(
            nest.store(kept, order[place], count[zero]),
            nest.store(count, count[zero] + 1, zero),
            nest.serial(size - 1 - place, suppress, INDEX),
        )
        return tirx.IfThenElse(suppressed[place] == nest.constant(0, "int8"), keep, None)

    loops = nest.sequence(
        nest.store(count, zero, zero),
        nest.serial(size, lambda place: nest.store(suppressed, nest.constant(0, "int8"), place), INDEX),
        nest.serial(size, box, INDEX),
    )
    return nest.with_loops(function, loops)


def _largest_within(threshold: float, dtype: str) -> float:
    """The largest number of a dtype up to a threshold: torchvision compares as float64."""
    if dtype == "float64":
        return threshold
    nearest = np.float32(threshold)
    return float(nearest if nearest <= threshold else np.nextafter(nearest, np.float32(-np.inf)))
