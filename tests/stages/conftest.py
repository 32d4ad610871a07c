"""The server of candidates that a file of tests runs its libraries in."""

from collections.abc import Iterator

import pytest

from worker.candidates.client import CandidateClient
from worker.candidates.server import fork_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CandidateClient]:
    with fork_server(tmp_path_factory.mktemp("server")) as client:
        yield client
