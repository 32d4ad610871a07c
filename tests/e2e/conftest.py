"""The example models, each written once for all tests, and a client of the service."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from saved_models import Saved

from bessemer.client import Client
from examples.models import EXAMPLES


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Seed the random numbers of every test."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    return Saved(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported MLP of one row."""
    path = tmp_path_factory.mktemp("model") / "mlp.pt2"
    torch.export.save(torch.export.export(EXAMPLES["mlp"].build().eval(), (torch.zeros(1, 784),)), path)
    return path


@pytest.fixture(scope="module")
def client(service: str) -> Iterator[Client]:
    with Client(service) as client:
        yield client
