"""Ports for servers that are told theirs."""

import random
import socket

PORTS = range(20_000, 32_000)
"""Below those that the kernel gives to whoever asks for any: none is taken again before a server starts."""


def free_port() -> int:
    """A port of this machine on which nobody listens.

    Raises:
        OSError: there is none.
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
