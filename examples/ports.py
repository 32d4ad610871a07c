"""Free ports for servers."""

import random
import socket

PORTS = range(20_000, 32_000)
"""Below the kernel's ephemeral range, so that no other process takes a port before the server starts."""


def free_port() -> int:
    """Return a free port of this machine.

    Raises:
        OSError: no port is free.
    """
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        if _is_free(port):
            return port
    raise OSError("every port is taken")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
