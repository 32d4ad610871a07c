"""Fixtures that more than one folder of tests needs."""

from collections.abc import Iterator

import pytest

from examples.local_service import local_service


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of one running service: app, supervisor, zygote, on SQLite and a folder."""
    with local_service(tmp_path_factory.mktemp("service")) as url:
        yield url
