"""What made a bundle: the packages of this worker."""

import platform
from functools import cache
from importlib.metadata import version

from worker.machine import processor

PACKAGES = ("bessemer", "torch", "apache-tvm", "apache-tvm-ffi", "numpy", "ziglang")


@cache
def versions() -> dict[str, str]:
    """The versions of the packages that have a part in a library, and of Python."""
    return {name: version(name) for name in PACKAGES} | {"python": platform.python_version()}


def remember() -> None:
    """Read all of this now: a confined job has no ``/proc``."""
    versions()
    processor()
