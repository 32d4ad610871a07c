"""Reads the supervisor's answers, which the job waits for."""

from __future__ import annotations

import os


def read_answer(answers: int) -> bytes:
    """Wait for a line of the supervisor.

    Args:
        answers: a descriptor on which one line arrives for each question.

    Raises:
        EOFError: the supervisor is gone.
    """
    line = bytearray()
    while not line.endswith(b"\n"):
        part = os.read(answers, 1 << 16)
        if not part:
            raise EOFError("the supervisor is gone")
        line += part
    return bytes(line)
