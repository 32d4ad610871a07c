"""Requests with one target and with several."""

import pytest
from pydantic import ValidationError

from bessemer.contract.request import MAX_TARGETS, CompilationRequest, Submission
from bessemer.contract.target import ExplicitTarget, PresetTarget, Target, target_name

DIGEST = "0" * 64
HOST, ARM = PresetTarget(preset="host"), PresetTarget(preset="aarch64")


def submission(target: object, **fields: object) -> Submission:
    return Submission.model_validate({"model": DIGEST, "target": target, **fields})


@pytest.mark.parametrize(
    ("given", "targets"),
    [
        ("host", (HOST,)),
        ({"preset": "host"}, (HOST,)),
        (["host"], (HOST,)),
        (["host", "aarch64"], (HOST, ARM)),
        (["host", {"preset": "host", "cores": 4}], (HOST, PresetTarget(preset="host", cores=4))),
        (["cascadelake", {"mcpu": "cascadelake", "features": ["-avx512f"]}], None),
    ],
)
def test_a_submission_has_one_target_or_several(given: object, targets: tuple[Target, ...] | None) -> None:
    found = submission(given)
    assert isinstance(found.target, tuple) == isinstance(given, list)
    assert found.targets == targets or (targets is None and len(found.targets) == 2)


@pytest.mark.parametrize(
    ("target", "place", "message"),
    [
        ([], (), "expected at least one target"),
        (["host", "aarch64", "host"], (), "the target 'host' is given twice"),
        (["znver4", {"mcpu": "znver4"}], (), "the target 'znver4' is given twice"),
        (["aarch64", {"mcpu": "generic", "triple": "aarch64-unknown-linux-gnu"}], (), "given twice"),
        ([{"preset": "host", "cores": n} for n in range(1, MAX_TARGETS + 2)], (), "at most 16 items"),
        (["unknown"] * 5000, (), "at most 16 items"),
        (["host", "x86-64-v9"], (1,), "unknown target 'x86-64-v9'"),
        ([["host"]], (0,), "expected one target, not a list"),
    ],
)
def test_targets_that_cannot_be_a_group_are_refused(
    target: object, place: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValidationError) as refusal:
        submission(target)
    (error,) = refusal.value.errors()
    assert error["loc"] == ("target", "Targets", *place)
    assert message in error["msg"]


def test_a_compilation_has_one_target() -> None:
    with pytest.raises(ValidationError, match="expected one target, not a list"):
        CompilationRequest.model_validate({"model": DIGEST, "target": ["host", "aarch64"]})


def test_each_target_gets_the_same_request() -> None:
    inputs = [{"name": "x", "shape": [1, 784]}]
    requests = submission(
        ["host", "cascadelake"], inputs=inputs, tune={"trials": 3}, name="mlp"
    ).for_each_target()
    alone = [
        CompilationRequest.model_validate(
            {"model": DIGEST, "target": name, "inputs": inputs, "tune": {"trials": 3}, "name": "mlp"}
        )
        for name in ("host", "cascadelake")
    ]
    assert list(requests) == alone
    assert [target_name(request.target) for request in requests] == ["host", "cascadelake"]
    assert isinstance(requests[1].target, ExplicitTarget)
    assert requests[0].model_fields_set == alone[0].model_fields_set
