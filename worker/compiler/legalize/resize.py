"""Resize images: each output row and column is a weighted sum of a few input ones.

    image.resize2d(x, (H', W'))  →  x as planes [N * C, H, W]; places and weights [taps, H'] and [taps, W']

    parallel if worth it: for plane in planes
        strip = buffer[H, W']
        for row in H, for each vector of W'
            strip[row, vector] = sum over taps of plane[row, column_places] * column_weights
        for row in H', for each vector of W'
            resized[row, vector] = sum over taps of strip[row_places, vector] * row_weights

The places and weights depend on sizes only, so they are constants. Columns come first: the gathered row is in
the first cache, and an image that grows has fewer rows to gather from. The strip stays in the second cache.
Cubic weights are those of R. Keys (1981).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.nest import INDEX, signature
from worker.compiler.schedules.processors import WORK_PER_THREAD, Machine, threads_pay


@dataclass(frozen=True)
class Taps:
    """The input places and weights of each output place; both ``[taps, outputs]``."""

    places: NDArray[np.int32]
    weights: NDArray[np.float64]

    @property
    def count(self) -> int:
        """The number of input places that an output place reads."""
        return int(self.places.shape[0])

    @property
    def outputs(self) -> int:
        """The number of output places."""
        return int(self.places.shape[1])


_COORDINATES: dict[str, Callable[[NDArray[Any], int, int], NDArray[Any]]] = {
    "half_pixel": lambda at, size, outputs: (at + 0.5) * size / outputs - 0.5,
    "align_corners": lambda at, size, outputs: at * (size - 1) / max(1, outputs - 1),
    "asymmetric": lambda at, size, outputs: at * size / outputs,
}


def find_taps(method: str, mode: str, size: int, outputs: int, cubic: float) -> Taps | None:
    """The places and weights along one axis.

    Args:
        method: ``linear``, ``cubic``, or ``nearest_neighbor`` if ``outputs`` is a multiple of ``size``.
        mode: how output places map to the input: ``half_pixel``, ``align_corners`` or ``asymmetric``.
        size: elements of the input.
        outputs: elements of the output.
        cubic: the coefficient of cubic convolution (R. Keys, 1981), -0.75 in torch.

    Returns:
        The places and weights; None for another method or mode.
    """
    at = np.arange(outputs)
    if method == "nearest_neighbor":
        is_plain = mode in ("asymmetric", "half_pixel") and outputs % size == 0
        return Taps((at * size // outputs)[None].astype("int32"), np.ones((1, outputs))) if is_plain else None
    if mode not in _COORDINATES or method not in ("linear", "cubic"):
        return None
    center = _COORDINATES[mode](at, size, outputs)
    first = np.floor(center)
    rest = center - first
    offsets = (0, 1) if method == "linear" else (-1, 0, 1, 2)
    weights = [1 - rest, rest] if method == "linear" else [_cubic(rest - offset, cubic) for offset in offsets]
    places = np.clip(np.stack([first + offset for offset in offsets]), 0, size - 1)
    return Taps(places.astype("int32"), np.stack(weights))


def _cubic(distance: NDArray[Any], a: float) -> NDArray[Any]:
    x = np.abs(distance)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = a * (((x - 5) * x + 8) * x - 4)
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def write_resize(
    sizes: tuple[int, int, int], rows: Taps, columns: Taps, dtype: str, machine: Machine
) -> tirx.PrimFunc:
    """A scheduled function from planes ``[count, height, width]`` to resized ones.

    Its parameters are the planes, places and weights of the columns ``[taps, width']``, those of the rows
    ``[taps, height']``, and the result. Weights and strip are float64 for float64 planes, else float32.
    """
    count, height, _ = sizes
    wide = "float64" if dtype == "float64" else "float32"
    function = _signature(sizes, rows, columns, dtype, wide)
    x, column_places, column_weights, row_places, row_weights, result = function.params

    def plane(number: Any) -> tirx.Stmt:
        strip = nest.workspace((height, columns.outputs), wide, "strip")

        def along(row: Any) -> tirx.Stmt:
            def element(place: Any) -> tirx.Stmt:
                terms = [
                    x[number, row, column_places[tap, place].astype(INDEX)].astype(wide)
                    * column_weights[tap, place]
                    for tap in range(columns.count)
                ]
                return nest.store(strip, reduce(add, terms), row, place)

            return _vectors(columns.outputs, wide, machine, element)

        def across(row: Any) -> tirx.Stmt:
            def element(place: Any) -> tirx.Stmt:
                terms = [
                    strip[row_places[tap, row].astype(INDEX), place] * row_weights[tap, row]
                    for tap in range(rows.count)
                ]
                return nest.store(result, reduce(add, terms).astype(dtype), number, row, place)

            return _vectors(columns.outputs, wide, machine, element)

        return nest.sequence(
            nest.declare(strip), nest.serial(height, along, INDEX), nest.serial(rows.outputs, across, INDEX)
        )

    is_parallel = threads_pay(machine.threads, count * rows.outputs * columns.outputs, WORK_PER_THREAD)
    return nest.with_loops(function, nest.tasks(count, plane, INDEX, parallel=is_parallel))


def _vectors(extent: int, dtype: str, machine: Machine, element: nest.Body) -> tirx.Stmt:
    """A statement for each place, in vectors; the last one may be shorter."""
    lanes = machine.lanes(nest.bits_of(dtype))
    whole, rest = divmod(extent, lanes)

    def vector(number: Any) -> tirx.Stmt:
        return nest.vectorized(lanes, lambda lane: element(number * lanes + lane), INDEX)

    parts = [nest.serial(whole, vector, INDEX)] if whole else []
    if rest:
        parts.append(nest.vectorized(rest, lambda lane: element(lane + whole * lanes), INDEX))
    return nest.sequence(*parts)


def _signature(
    sizes: tuple[int, int, int], rows: Taps, columns: Taps, dtype: str, wide: str
) -> tirx.PrimFunc:
    inputs = {
        "planes": (sizes, dtype),
        "column_places": (columns.places.shape, "int32"),
        "column_weights": (columns.places.shape, wide),
        "row_places": (rows.places.shape, "int32"),
        "row_weights": (rows.places.shape, wide),
    }
    return signature(inputs, {"resized": ((sizes[0], rows.outputs, columns.outputs), dtype)})
