"""Stand-ins for container classes of inputs and outputs that this worker does not have.

``torch.export`` records the structure of inputs and outputs with the names of registered classes, such as
dataclasses, named tuples, or the outputs of transformers. Only their fields are needed, and the file has
them.
"""

from __future__ import annotations

import io
import json
import pickle
from collections import namedtuple
from collections.abc import Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._pytree import TreeSpec

from worker.compiler.frontend.structures import keys_of

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


class _Instance(dict[Any, Any]):
    """Stands in for an object whose class is missing: its constructor's arguments, items and fields."""

    arguments: tuple[object, ...]

    def __new__(cls, *arguments: object) -> _Instance:
        made = super().__new__(cls)
        made.arguments = arguments
        return made

    def __init__(self, *arguments: object) -> None:
        super().__init__()

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return super().find_class(module, name)
        except (ImportError, AttributeError):
            return type(name, (_Instance,), {})


def read_samples(data: bytes) -> object:
    """Unpickle sample inputs, with stand-ins for the classes that this worker does not have.

    Raises:
        Exception: any error of unpickling.
    """
    modules = SimpleNamespace(__name__="pickle", Unpickler=_Unpickler, load=pickle.load)
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=False, pickle_module=modules)


def sample_leaves(value: Any, structure: TreeSpec) -> list[Any]:
    """The leaves of sample inputs, in the order of their structure in the program.

    Raises:
        LookupError, AttributeError, TypeError, ValueError: a value does not have this structure.
    """
    if structure.is_leaf():
        return [value]
    parts = zip(_parts(value, structure), structure.children(), strict=True)
    return [leaf for part, child in parts for leaf in sample_leaves(part, child)]


def _parts(value: Any, structure: TreeSpec) -> list[Any]:
    keys = keys_of(structure)
    if not keys:
        return list(value)
    if isinstance(value, _Instance) and len(value.arguments) == len(keys):
        return list(value.arguments)
    if isinstance(value, tuple):
        return list(value)
    return [value[key] if isinstance(value, dict) and key in value else getattr(value, key) for key in keys]
