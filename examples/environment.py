"""What a service that is started for a demo, a test or a benchmark takes from the environment."""

import os
from collections.abc import Mapping

PREFIX = "BESSEMER_"
OF_THE_MACHINE = frozenset({"BESSEMER_SANDBOX", "BESSEMER_SLOT_UID_BASE"})
"""Settings that say what this machine can do, not where an operator's things are."""


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without an operator's settings: nothing in it names a database that is in use."""
    return {
        name: value
        for name, value in environment.items()
        if name in OF_THE_MACHINE or not name.startswith(PREFIX)
    }


def forget_settings() -> None:
    """Remove them from this process's environment, and so from that of its children."""
    for name in os.environ.keys() - without_settings(os.environ).keys():
        del os.environ[name]
