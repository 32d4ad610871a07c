"""Time limits for compiling one function: pure functions of the time that the job has left.

Limits are processor time, so a busy machine does not make a function late. Emits no code.
"""

LEAST_SECONDS = 10.0
"""Typical functions take a tenth of a second; the slowest known take a few seconds."""

MOST_SECONDS = 20.0

_PART_OF_JOB = 0.5

_LEAST_GROUPS = 32
_LARGEST_GROUP = 8


def share_seconds(left_seconds: float, steps: int, all_steps: int) -> float:
    """The limit of a function that can be split: in proportion to its steps, within bounds.

    Args:
        left_seconds: the time that the job has left.
        steps: the steps of the function.
        all_steps: the steps of all functions.
    """
    fair = _PART_OF_JOB * left_seconds * steps / all_steps
    return min(max(fair, LEAST_SECONDS), MOST_SECONDS, last_share_seconds(left_seconds))


def last_share_seconds(left_seconds: float) -> float:
    """The limit of a function that cannot be split, so that it fails before the job runs out of time."""
    return max(_PART_OF_JOB * left_seconds, 1.0)


def group_size(functions: int) -> int:
    """How many functions to compile together while leaving enough groups to show progress."""
    return min(_LARGEST_GROUP, max(1, functions // _LEAST_GROUPS))


def group_seconds(shares: tuple[float, ...]) -> float:
    """The limit of a group: short, since each function of a late group gets its own share."""
    return shares[0] if len(shares) == 1 else min(*shares, MOST_SECONDS)
