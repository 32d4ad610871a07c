"""What makes two requests the same: every field that changes the result, and no other."""

from dataclasses import replace
from typing import Any

import pytest

from bessemer.contract.identity import WITHOUT_EFFECT, WorkerKind, identity_of
from bessemer.contract.request import CompilationRequest

KIND = WorkerKind(compiler="c" * 64, mcpu="znver4", processor="AMD EPYC 9R14", cores=2)
FIRST, SECOND = "1" * 64, "2" * 64
FIELDS: dict[str, Any] = {
    "model": FIRST,
    "target": "host",
    "inputs": [{"name": "x", "shape": [1, 4]}],
    "extensions": [FIRST],
}
WITH_EFFECT: dict[str, Any] = {
    "model": SECOND,
    "inputs": [{"name": "x", "shape": [2, 4]}],
    "dimensions": {"batch": {"minimum": 1, "maximum": 4}},
    "constants": {"n": 1},
    "entries": {"decode": {}},
    "extensions": [SECOND],
    "extension_names": {FIRST: "mine.py"},
    "stateless": True,
    "translate": {"level": "tensor_expressions"},
    "optimize": {"fusion": "none"},
    "parameters": "separate",
    "static_library": True,
    "verification": "none",
    "device": "laptop",
    "kernels": {"linear": "auto"},
    "tune": {"trials": 4},
    "verify": {"seed": 1},
    "benchmark": {"seconds": 1.0},
    "inspect": {"assembly": True},
    "stop_after": "build",
}
NO_EFFECT: dict[str, Any] = {
    "name": "mine",
    "labels": {"team": "vision"},
    "priority": 1,
    "timeout_seconds": 9.0,
    "cache": False,
}


def identity(kind: WorkerKind = KIND, names: dict[str, str | None] | None = None, **fields: Any) -> str:
    request = CompilationRequest.model_validate({**FIELDS, **fields})
    return identity_of(request, names or {}, kind)


def test_every_field_of_a_request_is_one_of_both_kinds() -> None:
    assert WITH_EFFECT.keys() | NO_EFFECT.keys() | {"target"} == CompilationRequest.model_fields.keys()
    assert NO_EFFECT.keys() | {"target"} == WITHOUT_EFFECT


@pytest.mark.parametrize("field", WITH_EFFECT)
def test_a_field_with_an_effect_changes_the_identity(field: str) -> None:
    before: dict[str, Any] = {}
    if field == "dimensions":
        before = {"inputs": [{"name": "x", "shape": ["batch", 4]}], field: {"batch": {"maximum": 8}}}
    assert identity(**{**before, field: WITH_EFFECT[field]}) != identity(**before)


@pytest.mark.parametrize("field", NO_EFFECT)
def test_a_field_without_an_effect_does_not_change_the_identity(field: str) -> None:
    assert identity(**{field: NO_EFFECT[field]}) == identity()


@pytest.mark.parametrize(
    "change", [{"compiler": "d" * 64}, {"mcpu": "znver5"}, {"processor": "another"}, {"cores": 4}], ids=str
)
def test_another_kind_of_worker_makes_another_result(change: dict[str, Any]) -> None:
    assert identity(replace(KIND, **change)) != identity()


@pytest.mark.parametrize(
    ("target", "same"),
    [
        ({"preset": "host", "cores": 2}, True),
        ({"preset": "host", "cores": 1}, False),
        ("znver4", False),
        ({"preset": "x86-64-v3"}, False),
    ],
    ids=str,
)
def test_the_resolved_target_stands_for_the_requested_one(target: Any, same: bool) -> None:
    assert (identity(target=target) == identity()) is same


def test_the_name_of_an_extension_counts_because_schedules_refer_to_it() -> None:
    assert identity(names={FIRST: "a.py"}) != identity(names={FIRST: "b.py"})


def test_the_order_of_entries_counts_because_the_first_is_the_default() -> None:
    assert identity(entries={"a": {}, "b": {}}) != identity(entries={"b": {}, "a": {}})


def test_a_stored_request_has_the_same_identity() -> None:
    request = CompilationRequest.model_validate({**FIELDS, "tune": {"seconds": 5}})
    stored = CompilationRequest.read(request.model_dump(mode="json"))
    assert identity_of(stored, {}, KIND) == identity_of(request, {}, KIND)
