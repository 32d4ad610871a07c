"""The OpenAPI document describes everything in it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.main import create_app
from app.settings import AppSettings

Described = tuple[str, dict[str, Any]]
DATA = frozenset({"default", "example", "examples"})


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app(AppSettings(data=Path("never-opened"))).openapi()


def fields(node: Any, place: str = "") -> Iterator[Described]:
    """The fields of every schema in the document, including nested ones."""
    if isinstance(node, dict):
        for name, field in node.get("properties", {}).items():
            yield f"{place}.{name}", field
        for key, child in node.items():
            if key not in DATA:
                yield from fields(child, f"{place}/{key}")


def parts(document: dict[str, Any]) -> Iterator[Described]:
    """Schemas, and operations with their inputs and outputs."""
    yield from document["components"]["schemas"].items()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            place = f"{method} {path}"
            yield place, operation
            yield from ((f"{place} {given['name']}", given) for given in operation.get("parameters", ()))
            if "requestBody" in operation:
                yield f"{place} body", operation["requestBody"]
            for status, response in operation["responses"].items():
                yield f"{place} {status}", response
                headers = response.get("headers", {})
                yield from ((f"{place} {status} {name}", header) for name, header in headers.items())


def test_every_field_of_every_document_is_described(document: dict[str, Any]) -> None:
    assert [place for place, field in fields(document) if not field.get("description")] == []


def test_every_nullable_field_says_when_it_is_null(document: dict[str, Any]) -> None:
    nullable = [
        (place, field) for place, field in fields(document) if {"type": "null"} in field.get("anyOf", ())
    ]
    assert [place for place, field in nullable if "null" not in field["description"].lower()] == []
    assert len(nullable) > 30


def test_no_description_only_repeats_the_name_of_its_field(document: dict[str, Any]) -> None:
    def words(text: str) -> str:
        return text.lower().replace("_", " ").removeprefix("the ").strip(" .`")

    assert [
        place
        for place, field in fields(document)
        if words(field.get("description", "")) == words(place.rpartition(".")[2])
    ] == []


def test_every_schema_operation_parameter_body_answer_and_header_is_described(
    document: dict[str, Any],
) -> None:
    assert [place for place, part in parts(document) if not part.get("description")] == []
