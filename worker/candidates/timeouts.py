"""How long a library's process may take to answer: pure functions over what is expected of it.

The limits are generous. They are there so that a library that hangs ends its stage with the stage's own
error, not the job at its last limit.
"""

from dataclasses import dataclass

_SLOWER = 20
"""A run may take this many times as long as the first: the machine may be busy."""


@dataclass(frozen=True)
class Timeouts:
    """Seconds that are given to loading a library, to its first run, and to answering besides running."""

    load_seconds: float = 120.0
    first_run_seconds: float = 300.0
    slack_seconds: float = 30.0

    def for_runs(self, runs: int, run_seconds: float | None) -> float:
        """How long ``runs`` runs may take.

        Args:
            runs: how many.
            run_seconds: how long a run took before; None where there was none.
        """
        if run_seconds is None:
            return self.first_run_seconds
        return self.slack_seconds + _SLOWER * runs * run_seconds


DEFAULT_TIMEOUTS = Timeouts()
