"""The example models, each written once for all tests."""

import pytest
from saved_models import Saved


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    return Saved(tmp_path_factory.mktemp("models"))
