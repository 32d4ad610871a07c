"""Loading a library moves its parameters to huge pages."""

import numpy as np

from bessemer.bundle import run

BYTES = 16 << 20


def test_memory_keeps_its_content_on_huge_pages() -> None:
    with run.on_huge_pages():
        array = np.arange(BYTES // 8)
    assert np.array_equal(array, np.arange(BYTES // 8))


def test_the_memory_of_an_array_is_found() -> None:
    array = np.zeros(BYTES, np.uint8)
    assert any(low <= array.ctypes.data < high for low, high in run._anonymous_memory())
