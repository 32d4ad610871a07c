"""The contract's transition table, read backward: what a compare-and-set compares with."""

from bessemer.contract.job import TRANSITIONS, JobState


def sources(target: JobState) -> tuple[JobState, ...]:
    """The states from which a job may move to ``target``."""
    return tuple(state for state, targets in TRANSITIONS.items() if target in targets)
