"""Disk space that neither file sizes nor the kernel's file limit reveals."""

import errno
from typing import Any

RESERVE = """
    import ctypes, os
    libc = ctypes.CDLL(None, use_errno=True)
    with open("reserved", "wb") as file:
        answers = {}
        for mode in (0, 1):
            result = libc.fallocate(file.fileno(), mode, ctypes.c_long(0), ctypes.c_long(4096))
            answers[str(mode)] = [result, ctypes.get_errno() if result else 0]
    return answers
"""


def test_space_cannot_be_reserved_beyond_the_end_of_a_file(rig: Any) -> None:
    assert rig.confined(RESERVE).did == {"0": [0, 0], "1": [-1, errno.EOPNOTSUPP]}
