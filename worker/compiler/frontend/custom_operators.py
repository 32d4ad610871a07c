"""Finds the custom operators of a model that this worker does not know."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any

import torch

from bessemer.contract.problem import ErrorCode, SourcePlace
from worker.compiler.source_locations import author_frame
from worker.errors import JobError

_OPERATORS = "torch.ops."
_OF_TORCH = frozenset({"aten", "higher_order", "prim", "prims"})
"""Namespaces of torch itself: an unknown operator of these is one of another version of torch."""

MAX_PLACES = 10


def refuse_unknown_operators(programs: Iterable[bytes]) -> None:
    """Refuse programs that call custom operators that nothing in this process defines.

    Args:
        programs: the JSON documents of exported programs.

    Raises:
        JobError: ``model-operator-unavailable`` with the first places.
    """
    refuse_unknown_calls(place for program in programs for place in _calls_of(program))


def refuse_unknown_calls(calls: Iterable[SourcePlace]) -> None:
    """Refuse calls of custom operators that nothing in this process defines.

    Args:
        calls: the operators, such as ``mylib::scaled``, and where the model calls them.

    Raises:
        JobError: ``model-operator-unavailable`` with the first places.
    """
    places = tuple(dict.fromkeys(call for call in calls if not _is_known(call.operator or "")))
    if places:
        listed = ", ".join(map(str, places[:MAX_PLACES]))
        detail = f"the model calls custom operators that this worker does not know: {listed}"
        raise JobError(ErrorCode.MODEL_OPERATOR_UNAVAILABLE, detail, places[:MAX_PLACES])


def _calls_of(program: bytes) -> list[SourcePlace]:
    try:
        return [_place(call) for call in _calls(json.loads(program)["graph_module"]["graph"])]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []  # torch reports what is wrong with the document


def _calls(part: object) -> Iterator[dict[str, Any]]:
    """The calls of operators in a graph, also in the graphs of its branches and loops."""
    if isinstance(part, list):
        for item in part:
            yield from _calls(item)
    elif isinstance(part, dict):
        if str(part.get("target")).startswith(_OPERATORS):
            yield part
        for item in part.values():
            yield from _calls(item)


def _is_known(operator: str) -> bool:
    if operator.partition("::")[0] in _OF_TORCH:
        return True
    try:
        attrgetter(operator.replace("::", "."))(torch.ops)
    except AttributeError:
        return False
    return True


def _place(call: dict[str, Any]) -> SourcePlace:
    namespace, _, name = call["target"].removeprefix(_OPERATORS).partition(".")
    file, line = author_frame(call["metadata"].get("stack_trace") or "")
    return SourcePlace(operator=f"{namespace}::{name.removesuffix('.default')}", file=file, line=line)
