"""What inputs need of memory, before any of it is taken."""

from __future__ import annotations

import math
import resource

from bessemer.contract.problem import ErrorCode
from bessemer.contract.tensor import TensorSpec
from worker.errors import JobError

COPIES = 3
"""Of every input at once: as it was drawn, as the model gets it, as an array for the library."""

_MEBIBYTE = 1 << 20


def data_limit_bytes() -> int | None:
    """The memory that this process may take; None where nothing limits it."""
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return None if limit == resource.RLIM_INFINITY else limit


def refuse_oversized(specs: tuple[TensorSpec, ...], limit_bytes: int | None) -> None:
    """Refuse inputs that cannot fit into memory, whatever the model does with them.

    Raises:
        JobError: ``limit-memory`` with the estimate and the largest input.
    """
    needed_bytes = COPIES * sum(map(input_bytes, specs))
    if limit_bytes is None or needed_bytes <= limit_bytes:
        return
    largest = max(specs, key=input_bytes)
    raise JobError(
        ErrorCode.LIMIT_MEMORY,
        f"the inputs alone would take {needed_bytes // _MEBIBYTE} MiB ({COPIES} copies) of "
        f"{limit_bytes // _MEBIBYTE} MiB; the largest is {largest}",
    )


def input_bytes(spec: TensorSpec) -> int:
    """The bytes of one tensor."""
    return math.prod(spec.shape) * spec.dtype.size_bytes
