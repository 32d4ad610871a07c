"""Limits failed logins by address.

Secrets are too long to guess, so this only bounds the work and the audit entries that a broken or hostile
client causes. A valid key is never refused, because clients behind a proxy share its address.
"""

import time
from collections import OrderedDict
from dataclasses import dataclass

LIMIT = 20
WINDOW_SECONDS = 60.0
MAX_ADDRESSES = 10_000


@dataclass
class _Failures:
    began: float
    count: int


class FailedLogins:
    """Counts failed logins in windows of a minute, for the addresses that failed last."""

    def __init__(self) -> None:
        self._by_address: OrderedDict[str, _Failures] = OrderedDict()

    def add(self, address: str) -> float | None:
        """Count a failure.

        Returns:
            The seconds until the address may try again; None if it is within the limit.
        """
        moment = time.monotonic()
        found = self._by_address.pop(address, None)
        if found is None or moment - found.began >= WINDOW_SECONDS:
            found = _Failures(moment, 0)
        found.count += 1
        self._by_address[address] = found
        if len(self._by_address) > MAX_ADDRESSES:
            self._by_address.popitem(last=False)
        return None if found.count <= LIMIT else WINDOW_SECONDS - (moment - found.began)
