"""What TVM says of a schedule primitive that does not apply, without the function that it prints."""

from __future__ import annotations

import re

from worker.errors import short_message

_PRIMITIVE = re.compile(r"schedule primitive '([^']+)'")
_MESSAGE = "Error message:"


def refusal(error: BaseException) -> str:
    """The primitive, and the first and the last line of the reason; other errors' short messages."""
    head, marker, reason = str(error).partition(_MESSAGE)
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    primitive = _PRIMITIVE.search(head)
    if not (marker and lines and primitive):
        return short_message(error)
    return f"{primitive.group(1)}: {' … '.join(dict.fromkeys((lines[0], lines[-1])))}"
