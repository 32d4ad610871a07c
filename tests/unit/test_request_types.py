"""A request accepts each field in its own JSON type only."""

from typing import Any

import pytest
from pydantic import ValidationError

from bessemer.contract.request import CompilationRequest

SHAPED = {"name": "x", "shape": ["n", 3]}


def of_dimension(**limits: Any) -> dict[str, Any]:
    return {"inputs": [SHAPED], "dimensions": {"n": limits}}


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"priority": True}, "priority"),
        ({"priority": "5"}, "priority"),
        ({"timeout_seconds": True}, "timeout_seconds"),
        ({"tune": {"trials": True}}, "tune.trials"),
        ({"tune": {"trials": 3.0}}, "tune.trials"),
        ({"tune": {"seconds": "9"}}, "tune.seconds"),
        ({"tune": {"seed": False}}, "tune.seed"),
        ({"tune": {"force": 0}}, "tune.force"),
        ({"verify": {"relative": True}}, "verify.relative"),
        ({"verify": {"absolute": "1e-3"}}, "verify.absolute"),
        ({"verify": {"seed": True}}, "verify.seed"),
        ({"benchmark": {"seconds": True}}, "benchmark.seconds"),
        ({"inspect": {"ir": 1}}, "inspect.ir"),
        ({"inspect": {"assembly": "yes"}}, "inspect.assembly"),
        ({"target": {"mcpu": "znver4", "cores": True}}, "target.ExplicitTarget.cores"),
        ({"target": {"preset": "host", "cores": "2"}}, "target.PresetTarget.cores"),
        ({"inputs": [{"name": "x", "shape": [True, 3]}]}, "inputs.0.shape.0"),
        ({"inputs": [{"name": "x", "shape": ["1", 3]}]}, "inputs.0.shape.0"),
        (of_dimension(minimum=True), "dimensions.n.minimum"),
        (of_dimension(maximum="8"), "dimensions.n.maximum"),
        (of_dimension(example=True), "dimensions.n.example"),
    ],
)
def test_a_wrong_json_type_is_refused_at_its_field(fields: dict[str, Any], place: str) -> None:
    with pytest.raises(ValidationError) as caught:
        CompilationRequest.model_validate({"model": "0" * 64, "target": "host", **fields})
    assert place in {".".join(map(str, error["loc"])) for error in caught.value.errors()}


def test_a_whole_number_is_a_number() -> None:
    request = CompilationRequest.model_validate(
        {"model": "0" * 64, "target": "host", "timeout_seconds": 60, "verify": {"relative": 0}}
    )
    assert (request.timeout_seconds, request.verify.relative) == (60.0, 0.0)


@pytest.mark.parametrize(
    ("fields", "searches"),
    [
        ({}, False),
        ({"tune": {"seconds": 9}}, True),
        ({"tune": {"seconds": 9, "trials": 0}}, False),
        ({"tune": {"seconds": 9}, "stop_after": "translate"}, False),
        ({"tune": {"trials": 9}, "stop_after": "tune"}, True),
    ],
)
def test_a_request_searches_if_it_has_trials_and_reaches_tune(fields: dict[str, Any], searches: bool) -> None:
    request = CompilationRequest.model_validate({"model": "0" * 64, "target": "host", **fields})
    assert request.searches is searches
