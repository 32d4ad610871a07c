"""Functions of a dynamic number of images have the loops of one image, if each image is computed alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import tvm
from tvm import s_tir, te, tirx

from worker.compiler.schedules.annotations import FAMILY, POOLING
from worker.compiler.schedules.each_image import for_each_image, of_one_image
from worker.compiler.schedules.processors import machine_of

MACHINE = machine_of(tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 1}))
BATCH, OTHER = tirx.Var("n", "int64"), tirx.Var("m", "int64")
IMAGES = te.placeholder((BATCH, 3, 4, 16), name="images")
OTHERS = te.placeholder((OTHER, 3, 4, 16), name="others")
FIXED = te.placeholder((2, 3, 4, 16), name="fixed")
SQUARE = te.placeholder((BATCH, BATCH, 16), name="square")
Kernel = Callable[[], Any]


def compute(shape: Any, element: Callable[..., Any]) -> Any:
    """A tensor of images."""
    return te.compute(shape, element, attrs={FAMILY: POOLING})


def schedule_of(given: Any, result: Any) -> s_tir.Schedule:
    inputs = given if isinstance(given, tuple) else (given,)
    function = te.create_prim_func([*inputs, result]).with_attr("global_symbol", "main")
    return s_tir.Schedule(tvm.IRModule({"main": function}))


def summed() -> Any:
    channel = te.reduce_axis((0, 3), "c")
    return compute((BATCH, 4, 16), lambda n, y, x: te.sum(IMAGES[n, channel, y, x], axis=channel))


def summed_over_images() -> Any:
    image = te.reduce_axis((0, BATCH), "i")
    return compute((BATCH, 3, 4, 16), lambda n, c, y, x: te.sum(IMAGES[image, c, y, x], axis=image))


BY_IMAGE: dict[str, tuple[Any, Kernel, bool]] = {
    "elements": (IMAGES, lambda: compute(IMAGES.shape, lambda n, *at: IMAGES[(n, *at)] + 1.0), True),
    "sums": (IMAGES, summed, True),
    "a border": (
        IMAGES,
        lambda: compute(
            (BATCH, 3, 8, 16),
            lambda n, c, y, x: tirx.if_then_else(y < 4, IMAGES[n, c, y, x], tirx.const(0, "float32")),
        ),
        True,
    ),
    "no images": (IMAGES, lambda: te.compute(IMAGES.shape, lambda *at: IMAGES[at] + 1.0), False),
    "a fixed batch": (FIXED, lambda: compute(FIXED.shape, lambda *at: FIXED[at] + 1.0), False),
    "another image": (
        IMAGES,
        lambda: compute(IMAGES.shape, lambda n, *at: IMAGES[(BATCH - 1 - n, *at)]),
        False,
    ),
    "all images": (IMAGES, summed_over_images, False),
    "the first image": (IMAGES, lambda: compute(IMAGES.shape, lambda n, *at: IMAGES[(0, *at)]), False),
    "an image's number": (
        IMAGES,
        lambda: compute(IMAGES.shape, lambda n, *at: IMAGES[(n, *at)] + n.astype("float32")),
        False,
    ),
    "the number of images": (
        IMAGES,
        lambda: compute(IMAGES.shape, lambda n, *at: IMAGES[(n, *at)] / BATCH.astype("float32")),
        False,
    ),
    "images that are no whole vectors": (
        IMAGES,
        lambda: compute((BATCH, 3, 4, 5), lambda n, *at: IMAGES[(n, *at)] + 1.0),
        False,
    ),
    "a second dimension of the batch's size": (
        SQUARE,
        lambda: compute((BATCH, 16), lambda n, x: SQUARE[n, n, x]),
        False,
    ),
    "an image of another batch": (
        (IMAGES, OTHERS),
        lambda: compute(IMAGES.shape, lambda n, *at: IMAGES[(n, *at)] + OTHERS[(0, *at)]),
        False,
    ),
    "images behind another dimension": (
        IMAGES,
        lambda: compute((3, BATCH, 4, 16), lambda c, n, *at: IMAGES[(n, c, *at)]),
        False,
    ),
}


@pytest.mark.parametrize("name", BY_IMAGE)
def test_a_function_of_one_image_needs_no_other_image(name: str) -> None:
    given, kernel, is_by_image = BY_IMAGE[name]
    one = of_one_image(schedule_of(given, kernel()), MACHINE)
    assert (one is not None) is is_by_image
    if one is not None:
        assert all(int(tensor.shape[0]) == 1 for tensor in one.mod["main"].params)


@pytest.mark.parametrize(("threads", "kind"), [(1, tirx.ForKind.SERIAL), (8, tirx.ForKind.PARALLEL)])
def test_threads_divide_images_that_are_too_small_to_divide(threads: int, kind: Any) -> None:
    large = te.placeholder((BATCH, 64, 64, 16), name="large")
    whole = schedule_of(large, compute(large.shape, lambda *at: large[at] + 1.0))
    one = of_one_image(whole, MACHINE)
    assert one is not None
    function = for_each_image(whole, one.mod["main"], replace(MACHINE, threads=threads))
    loop = function.body.block.body
    assert loop.kind == kind
    assert loop.extent.same_as(function.params[0].shape[0])
