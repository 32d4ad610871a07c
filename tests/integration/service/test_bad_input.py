"""Every kind of bad input is reported with advice, and the worker survives it."""

import httpx
import pytest
import torch
from refusals import REFUSALS
from refused_models import Mixed, WithoutInputs, exported
from submitting import Answer, compiled

from bessemer.contract.problem import Problem
from examples.models import EXAMPLES


@pytest.fixture(scope="module")
def worker(api: httpx.Client) -> str:
    """The id of the only worker before any bad input."""
    (worker,) = api.get("/readyz").json()["workers"]
    return str(worker["id"])


@pytest.mark.parametrize("name", REFUSALS)
def test_bad_input_is_reported_with_place_and_advice(
    worker: str, answers: dict[str, Answer], name: str
) -> None:
    row, answer = REFUSALS[name], answers[name]
    assert answer.problem is not None
    assert (answer.problem.code, answer.status) == (row.code, row.status), answer.problem.detail
    text = f"{answer.problem.detail}\n{answer.problem.advice}"
    assert [part for part in row.messages if part not in text] == [], text
    assert row.at is None or row.at in places(answer.problem)
    assert row.line in {None, *(place.line for place in answer.problem.places if place.file == row.at)}
    assert answer.attempts <= 1
    assert answer.problem.status < 500


def test_unusual_models_compile(api: httpx.Client) -> None:
    odd = exported(Mixed(), torch.tensor(1.5), 3, "scaled", None)
    document = compiled(api, odd)
    assert document["verified"], document["problem"]


def test_a_model_without_inputs_is_compiled(api: httpx.Client) -> None:
    assert compiled(api, exported(WithoutInputs()))["verified"]


def test_the_same_worker_compiles_the_mlp_afterwards(
    api: httpx.Client, worker: str, answers: dict[str, Answer]
) -> None:
    example = EXAMPLES["mlp"]
    document = compiled(api, exported(example.build(), *example.example_inputs()))
    assert (document["verified"], document["attempt"], document["worker"]) == (True, 1, worker)


def places(problem: Problem) -> set[str | None]:
    named = {part for place in problem.places for part in (place.file, place.module_path)}
    return named | {error.field for error in problem.errors}
