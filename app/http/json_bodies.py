"""JSON bodies of requests. Duplicate fields are refused: the second would silently win."""

import json
from collections import Counter
from typing import Any

from app.http.problems import RefusalError, invalid_problem
from app.http.validation import MAX_ERRORS, clean
from bessemer.contract.problem import FieldError


def read_json(data: bytes | bytearray) -> Any:
    """The value of a document.

    Raises:
        RefusalError: 422, an object has duplicate fields.
        ValueError: it is not JSON.
        RecursionError: it is nested too deeply.
    """
    return json.loads(data, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        errors = (
            FieldError(field=clean(name)[:64], message=f"given {count} times; it takes one value")
            for name, count in counts.items()
            if count > 1
        )
        raise RefusalError(invalid_problem(tuple(errors)[:MAX_ERRORS]))
    return document
