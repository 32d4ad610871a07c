"""The environment of services for demos, tests and benchmarks."""

import os
from collections.abc import Mapping

PREFIX = "BESSEMER_"
OF_THE_MACHINE = frozenset({"BESSEMER_SANDBOX", "BESSEMER_SLOT_UID_BASE"})
"""Settings that describe the machine instead of an operator's service."""


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Remove an operator's settings, which may name a production database."""
    return {
        name: value
        for name, value in environment.items()
        if name in OF_THE_MACHINE or not name.startswith(PREFIX)
    }


def forget_settings() -> None:
    """Remove an operator's settings from the environment of this process and its children."""
    for name in os.environ.keys() - without_settings(os.environ).keys():
        del os.environ[name]
