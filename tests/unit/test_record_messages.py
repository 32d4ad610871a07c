"""What a job may tell of its trials."""

from typing import Any

import pytest
from pydantic import ValidationError

from bessemer.contract.options import MAX_TRIALS
from worker.protocol.messages import TrialsMeasured


@pytest.mark.parametrize(
    "changed",
    [
        {"first": -1},
        {"first": MAX_TRIALS + 1},
        {"elapsed_seconds": float("inf")},
        {"workloads": {"x": "packed"}},
        {"workloads": {"1": "packed", "2": "packed"}},
    ],
)
def test_numbers_that_no_database_stores_are_refused(changed: dict[str, Any]) -> None:
    given = {"first": 0, "trials": [], "elapsed_seconds": 1.0}
    TrialsMeasured.model_validate(given)
    with pytest.raises(ValidationError):
        TrialsMeasured.model_validate(given | changed)
