"""This release reads the documents of later ones, which only add fields."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from bessemer.client.steps import parse
from bessemer.contract.base import Document
from bessemer.contract.job import JobState
from bessemer.contract.problem import ErrorCode, Problem, make_problem
from bessemer.errors import AnswerInvalidError
from tests.unit.gate_samples import a_job, a_report

DOCUMENTS = (a_job(), a_report())
NAMES = a_report().versions.keys()
"""The mapping of packages has no fields; the other mappings in these documents are empty."""


def with_news(value: Any) -> Any:
    """The same document with an extra field in every object."""
    if isinstance(value, list):
        return [with_news(item) for item in value]
    if isinstance(value, dict) and value.keys() - NAMES:
        return {name: with_news(item) for name, item in value.items()} | {"of-a-later-release": 1}
    return value


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: type(document).__name__)
def test_unknown_fields_of_a_response_are_ignored(document: Document) -> None:
    later = json.dumps(with_news(document.model_dump(mode="json")))
    assert type(document).read_json(later) == document
    assert parse(type(document), later.encode()) == document


def test_unknown_fields_of_a_request_are_refused() -> None:
    with pytest.raises(ValidationError, match="trails"):
        type(a_job().request).model_validate({"model": "0" * 64, "target": {"preset": "host"}, "trails": 1})


VALUES: dict[str, tuple[str, ...]] = {
    "the state of a compilation": ("state",),
    "the stage of a compilation": ("stage",),
    "the stage of a request": ("request", "stop_after"),
    "the type of an input": ("request", "inputs", "0", "dtype"),
}


@pytest.mark.parametrize("path", VALUES.values(), ids=VALUES)
def test_unknown_values_of_a_response_are_kept(path: tuple[str, ...]) -> None:
    later = a_job().model_dump(mode="json")
    later["request"]["inputs"] = [{"name": "x", "shape": [1], "dtype": "float32"}]
    *outer, last = path
    owner = later
    for step in outer:
        owner = owner[int(step) if step.isdigit() else step]
    owner[last] = "of-a-later-release"
    job = parse(type(a_job()), json.dumps(later).encode())
    assert job.model_dump(mode="json") == later
    assert not job.model_copy(update={"state": JobState.RUNNING}).state.final


def test_an_unknown_code_of_a_problem_is_kept_with_its_advice() -> None:
    problem = make_problem(ErrorCode.INTERNAL, "Something.").model_dump(mode="json")
    read = Problem.read({**problem, "code": "of-a-later-release"})
    assert (read.code, read.title) == ("of-a-later-release", problem["title"])
    assert "of-a-later-release" not in list(ErrorCode)


def test_unknown_values_of_a_request_are_refused() -> None:
    request = {"model": "0" * 64, "target": {"preset": "host"}, "stop_after": "of-a-later-release"}
    with pytest.raises(ValidationError, match="stop_after"):
        type(a_job().request).model_validate(request)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"<html>", "not JSON"),
        (b"[]", "expected"),
        (b'{"status": "ok"}', "id: required"),
        (b'{"id": 5}', "id: expected a string"),
    ],
)
def test_a_response_of_another_kind_is_refused_in_one_short_line(body: bytes, reason: str) -> None:
    with pytest.raises(AnswerInvalidError) as refused:
        parse(type(a_job()), body)
    said = str(refused.value)
    assert reason in said and "\n" not in said and "pydantic" not in said and len(said) < 400
