"""Fixtures that more than one folder of tests needs."""

import gc
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, settings

from examples.environment import forget_settings
from examples.local_service import local_service
from worker.quick_stack import quick_stack

# the same examples every time, without a deadline on a busy machine
settings.register_profile("suite", deadline=None, derandomize=True)
# `make fuzz`: new examples every time
settings.register_profile("fuzz", deadline=None, max_examples=1000, suppress_health_check=list(HealthCheck))
settings.load_profile("suite")


def pytest_configure(config: pytest.Config) -> None:
    """Forget settings: an operator's shell may name a database that is in use. Let TVMScript parse quickly."""
    forget_settings()
    patched = ExitStack()
    patched.enter_context(quick_stack())
    config.add_cleanup(patched.close)


def pytest_collection_finish() -> None:
    """Freeze imported objects: collecting garbage among them takes a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of one running service: app, supervisor, zygote, on SQLite and a folder."""
    with local_service(tmp_path_factory.mktemp("service")) as url:
        yield url
