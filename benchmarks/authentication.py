"""How much longer a read takes with a key."""

import time
from contextlib import closing
from pathlib import Path

import httpx

from benchmarks.figure import Figure, summarize
from bessemer.contract.access import Scope
from bessemer.contract.keys import KeyRequest
from bessemer.store.settings import StoreSettings
from bessemer.store.store import open_store
from examples.local_service import local_app
from worker.measure.statistics import percentile

ROUNDS, READS = 20, 200
PATH = "/v1/models"
AIM_MS = 2.0


def measure_authentication(folder: Path) -> list[Figure]:
    """Read in turns from two apps on one store: one requires keys, the other serves every caller."""
    data = folder / "authentication"
    with closing(open_store(StoreSettings(data=data))) as store:
        key = store.keys.create(KeyRequest(tenant="default", scope=Scope.READ)).key
    login = {"Authorization": f"Bearer {key}"}
    with (
        local_app(data, {"BESSEMER_AUTH": "off"}) as serving_all,
        local_app(data, {"BESSEMER_AUTH": "required"}) as asking,
        httpx.Client(base_url=serving_all.url) as without_key,
        httpx.Client(base_url=asking.url, headers=login) as with_key,
    ):
        rounds = [_round(without_key, with_key) for _ in range(ROUNDS)]
    return [
        summarize("a read without a key, p99", "ms", [without for without, _ in rounds]),
        summarize("a read with a key, p99", "ms", [having for _, having in rounds]),
        summarize("what a key adds to p99", "ms", [having - without for without, having in rounds], AIM_MS),
    ]


def _round(without_key: httpx.Client, with_key: httpx.Client) -> tuple[float, float]:
    """The p99 of both, in milliseconds; the reads alternate."""
    pairs = [(_read(without_key), _read(with_key)) for _ in range(READS)]
    without, having = ([pair[which] for pair in pairs] for which in (0, 1))
    return percentile(without, 99), percentile(having, 99)


def _read(api: httpx.Client) -> float:
    start = time.perf_counter()
    api.get(PATH).raise_for_status()
    return (time.perf_counter() - start) * 1000
