"""This release reads the documents of later ones, which only add fields."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from bessemer.client.steps import parse
from bessemer.contract.base import Document
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
