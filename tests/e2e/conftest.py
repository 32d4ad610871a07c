"""The example models, each written once for all tests."""

import pytest
import torch
from saved_models import Saved


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Seed the random numbers of every test."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    return Saved(tmp_path_factory.mktemp("models"))
