"""Validation errors in words for users."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import pytest
from pydantic import AwareDatetime, BaseModel, Field, TypeAdapter, ValidationError

from bessemer.contract.error_words import TEXT_FORMS, in_words
from bessemer.contract.keys import KeyRequest
from bessemer.contract.options import Baseline
from bessemer.contract.request import Submission
from bessemer.contract.target import WORD_PATTERN
from bessemer.contract.tensor import parse_input_spec


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (int, "abc", "expected a whole number"),
        (int, 1.5, "expected a whole number"),
        (int, "9" * 5000, "expected a whole number of fewer digits"),
        (Annotated[float, Field(gt=0)], 0, "expected more than 0"),
        (Annotated[float, Field(le=2.0)], 3, "expected at most 2"),
        (Annotated[int, Field(le=3650)], "5000", "expected at most 3650"),
        (bool, "perhaps", "expected true or false"),
        (Annotated[str, Field(max_length=3)], "four", "expected at most 3 characters"),
        (Annotated[str, Field(pattern=WORD_PATTERN)], "No such", f"expected {TEXT_FORMS[WORD_PATTERN]}"),
        (Annotated[str, Field(pattern="^[a-c]$")], "d", "expected text of the form ^[a-c]$"),
        (Annotated[list[int], Field(min_length=1)], [], "expected 1 entry at least"),
        (dict[str, int], "linear", "expected fields with values"),
        (Literal["full", "none"], "nnone", "expected 'full' or 'none'; did you mean 'none'?"),
        (Baseline, "torch-eagr", "expected 'torch-eager'"),
        (AwareDatetime, "2026-11-01T00:00:00", "expected a time with a time zone"),
    ],
)
def test_an_error_says_what_was_expected(kind: Any, value: object, words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(kind).validate_python(value)
    said = in_words(refused.value.errors()[0])
    assert said.startswith(words) and ".0" not in said
    assert "Input should" not in said and "String should" not in said


@pytest.mark.parametrize(
    ("given", "meant"),
    [("float", "float32"), ("Double", "float64"), ("int", "int64"), ("float31", "float32")],
)
def test_a_dtype_is_suggested_by_what_torch_calls_it(given: str, meant: str) -> None:
    with pytest.raises(ValidationError) as refused:
        parse_input_spec(f"x=1x3:{given}")
    assert in_words(refused.value.errors()[0]).endswith(f"; did you mean '{meant}'?")


def patterns_in(schema: Any) -> Iterator[str]:
    """The patterns of texts and of the keys of mappings."""
    if isinstance(schema, dict):
        yield from (schema["pattern"],) if isinstance(schema.get("pattern"), str) else ()
        yield from schema.get("patternProperties", ())
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from patterns_in(part)


@pytest.mark.parametrize("document", [Submission, KeyRequest])
def test_the_patterns_of_what_users_write_are_described(document: type[BaseModel]) -> None:
    found = set(patterns_in(document.model_json_schema()))
    assert found and found <= set(TEXT_FORMS)
