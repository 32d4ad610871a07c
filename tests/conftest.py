"""Fixtures that more than one folder of tests needs."""

import functools
import gc
import ssl
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings

from examples.environment import forget_settings
from examples.local_service import local_service
from worker.job.huge_pages import collapse_memory
from worker.quick_stack import quick_stack

# the same examples every time, without a deadline on a busy machine
settings.register_profile("suite", deadline=None, derandomize=True)
# `make fuzz`: new examples every time
settings.register_profile("fuzz", deadline=None, max_examples=1000, suppress_health_check=list(HealthCheck))
settings.load_profile("suite")

SAMPLE_STEP = 5
"""A sample has the first case, the sixth, the eleventh: so it varies each of several parameters."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let ``make test`` run a sample, which ends in half the time."""
    parser.addoption(
        "--sample",
        action="store_true",
        help=f"skip tests marked slow, and run every {SAMPLE_STEP}th case of those marked sampled",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Forget an operator's settings, which may name a database that is in use, and save processor time.

    TVM parses TVMScript with ``inspect.stack``, and every client of HTTP reads the certificates of all
    authorities.
    """
    forget_settings()
    patches = ExitStack()
    patches.enter_context(quick_stack())
    patches.enter_context(
        patch.object(ssl, "create_default_context", functools.cache(ssl.create_default_context))
    )
    config.add_cleanup(patches.close)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the sample if the run asks for it."""
    if not config.getoption("--sample"):
        return
    earlier_cases = Counter[str]()
    sample = [item for item in items if _in_sample(item, earlier_cases)]
    config.hook.pytest_deselected(items=list(set(items) - set(sample)))
    items[:] = sample


def _in_sample(item: pytest.Item, earlier_cases: Counter[str]) -> bool:
    function = item.nodeid.partition("[")[0]
    earlier_cases[function] += 1
    if item.get_closest_marker("slow") is not None:
        return False
    sampled = item.get_closest_marker("sampled") is not None
    return not sampled or earlier_cases[function] % SAMPLE_STEP == 1


def pytest_collection_finish() -> None:
    """Freeze imported objects: collecting garbage among them takes a tenth of the time.

    Tests fork often, and a fork copies an entry for every page of memory: huge pages have fewer.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    collapse_memory()


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of one running service: app, supervisor, zygote, on SQLite and a folder."""
    with local_service(tmp_path_factory.mktemp("service")) as url:
        yield url
