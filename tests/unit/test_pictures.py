"""The pictures of inputs on the report's page, read by another library."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from bessemer.contract.options import image_channels
from worker.report.pictures import draw_picture

PREFIX = "data:image/png;base64,"


def _pixels(uri: str) -> np.ndarray:
    with Image.open(io.BytesIO(base64.b64decode(uri.removeprefix(PREFIX)))) as image:
        return np.asarray(image)


@pytest.mark.parametrize(
    ("shape", "channels"),
    [
        ((1, 784), 1),
        ((784,), 1),
        ((28, 28), 1),
        ((8, 1, 28, 28), 1),
        ((1, 3, 28, 28), 3),
        ((3, 28, 28), 3),
        ((1, 2, 28, 28), None),
        ((1, 783), None),
        ((), None),
    ],
)
def test_the_shape_decides_how_many_channels_images_have(
    shape: tuple[int, ...], channels: int | None
) -> None:
    assert image_channels(shape, 28, 28) == channels


@pytest.mark.parametrize("shape", [(1, 6), (2, 3), (5, 1, 2, 3)])
def test_a_gray_picture_goes_from_black_to_white(shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    picture = draw_picture("x", values, 2, 3)
    assert _pixels(picture.uri).tolist() == [[0, 51, 102], [153, 204, 255]]


def test_a_color_picture_has_its_planes_as_channels() -> None:
    values = np.zeros((1, 3, 2, 2), np.float32)
    values[0, 0] = 1
    assert _pixels(draw_picture("x", values, 2, 2).uri).tolist() == [[[255, 0, 0]] * 2] * 2


@pytest.mark.parametrize(
    ("values", "gray"),
    [
        pytest.param(np.full((2, 2), 3.0), 0, id="constant"),
        pytest.param(np.full((2, 2), np.nan), 0, id="not-a-number"),
        pytest.param(np.zeros((2, 2), np.bool_), 0, id="booleans"),
    ],
)
def test_a_picture_without_contrast_is_black(values: np.ndarray, gray: int) -> None:
    assert (_pixels(draw_picture("x", values, 2, 2).uri) == gray).all()


def test_a_tensor_without_images_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'x' \[5\] holds no images of 2 by 2 pixels"):
        draw_picture("x", np.zeros(5), 2, 2)
