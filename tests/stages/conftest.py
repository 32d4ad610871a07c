"""What a file of tests runs its libraries in: a server of candidates, or a workshop with one of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from stage_samples import make_workshop

from worker.candidates.client import CandidateClient
from worker.candidates.server import fork_server
from worker.pipeline.types import Workshop


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CandidateClient]:
    with fork_server(tmp_path_factory.mktemp("server")) as client:
        yield client


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    with fork_server(tmp_path) as candidates:
        yield make_workshop(tmp_path, candidates)
