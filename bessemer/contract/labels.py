"""Labels: what a client calls its compilations by."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import StringConstraints

MAX_LABELS = 32

LABEL_KEY = r"[a-z0-9](?:[a-z0-9._/-]{0,61}[a-z0-9])?"
LABEL_VALUE = r"[ -~]{0,128}"
LabelKey = Annotated[str, StringConstraints(pattern=f"^{LABEL_KEY}$")]
LabelValue = Annotated[str, StringConstraints(pattern=f"^{LABEL_VALUE}$")]
LabelSelector = Annotated[str, StringConstraints(pattern=f"^{LABEL_KEY}(?:={LABEL_VALUE})?$")]
"""``team=vision``, or ``team`` alone for any value."""


def shown_labels(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Each label as the command line reads it; a key alone where its value is empty."""
    return tuple(f"{key}={value}" if value else key for key, value in labels.items())
