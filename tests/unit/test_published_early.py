"""The bundles that a job publishes before it ends."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from worker.supervisor.early_bundles import EarlyBundles


def test_bundles_beyond_the_limit_of_the_earlier_ones_are_refused() -> None:
    runner = SimpleNamespace(settings=SimpleNamespace(limit_disk_bytes=100))
    unused = cast(Any, None)
    early = EarlyBundles(cast(Any, runner), unused, unused, unused, unused, made=2, stored_bytes=101)

    taken = asyncio.run(early.publish(unused))

    assert taken.refusal == "the earlier ones have more than 100 bytes together"
