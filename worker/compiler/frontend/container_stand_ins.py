"""Stand-ins for container classes of inputs and outputs that this worker does not have.

``torch.export`` records the structure of inputs and outputs with the names of registered classes, such as
dataclasses, named tuples, or the outputs of transformers. Only their fields are needed, and the file has
them.
"""

from __future__ import annotations

import json
from collections import namedtuple
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch.utils import _pytree as pytree

NAMED_TUPLE = "collections.namedtuple"


def register_containers(program: bytes) -> bool:
    """Register a stand-in for every container class that torch does not know in this process.

    Args:
        program: the JSON document of an exported program.

    Returns:
        Whether any was registered.
    """
    try:
        document = json.loads(program)["graph_module"]
        nodes = [node for spec in _structures(document) for node in _nodes(spec)]
        fields = document.get("treespec_namedtuple_fields") or {}
        tuples = {node["context"] for node in nodes if node["type"] == NAMED_TUPLE} - _known()
        classes = {node["type"] for node in nodes} - {None, NAMED_TUPLE} - _known()
        for name in sorted(tuples):
            _register_tuple(name, fields[name]["field_names"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False  # torch reports what is wrong with the document
    for name in sorted(classes):
        _register_class(name)
    return bool(tuples or classes)


def _known() -> frozenset[str]:
    return frozenset(map(str, pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE))


def _structures(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for entry in document["module_call_graph"]:
        signature = entry["signature"] or {}
        yield from (json.loads(signature[name])[1] for name in ("in_spec", "out_spec") if signature.get(name))


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node["children_spec"]:
        yield from _nodes(child)


def _register_tuple(name: str, fields: Iterable[str]) -> None:
    kind = namedtuple("StandIn", tuple(fields), rename=True)  # type: ignore[misc]
    pytree._register_namedtuple(kind, serialized_type_name=name)


def _register_class(name: str) -> None:
    kind = type("StandIn", (_StandIn,), {})
    pytree.register_pytree_node(
        kind,
        lambda value: (list(value.children), value.context),
        lambda children, context: kind(children, context),
        serialized_type_name=name,
        to_dumpable_context=json.dumps,
        from_dumpable_context=_context,
    )


class _StandIn:
    def __init__(self, children: Iterable[Any], context: object) -> None:
        self.children = tuple(children)
        self.context = context


def _context(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text
