"""How long one function may take to compile: pure functions over the time that the job has left.

Shares are processor time, so that a busy machine does not make a function late.
"""

LEAST_SECONDS = 10.0
"""A function of an ordinary model takes a tenth of a second, the slowest known a few seconds."""

MOST_SECONDS = 20.0

_PART_OF_JOB = 0.5

_LEAST_GROUPS = 32
_LARGEST_GROUP = 8


def share_seconds(left_seconds: float, steps: int, all_steps: int) -> float:
    """The share of a function that can be split: in proportion to its steps, within bounds.

    Args:
        left_seconds: what the job has left of its time.
        steps: of the function.
        all_steps: of all functions together.
    """
    fair = _PART_OF_JOB * left_seconds * steps / all_steps
    return min(max(fair, LEAST_SECONDS), MOST_SECONDS, last_share_seconds(left_seconds))


def last_share_seconds(left_seconds: float) -> float:
    """The share of a function that cannot be split: it fails with a reason before the job ends."""
    return max(_PART_OF_JOB * left_seconds, 1.0)


def group_size(functions: int) -> int:
    """How many functions to compile at a time, so that there are enough groups to show progress."""
    return min(_LARGEST_GROUP, max(1, functions // _LEAST_GROUPS))


def group_seconds(shares: tuple[float, ...]) -> float:
    """The time of functions that are compiled together: short, for each gets its own share if it is late."""
    return shares[0] if len(shares) == 1 else min(*shares, MOST_SECONDS)
