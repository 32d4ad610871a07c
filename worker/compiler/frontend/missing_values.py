"""Advice for models that read more of a container than the names of a request put into it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from bessemer.contract.problem import ErrorCode
from bessemer.contract.structure import (
    CallStructure,
    ConstantLeaf,
    Container,
    ContainerKind,
    Structure,
    TensorLeaf,
)
from worker.errors import JobError

_SCRIPT_KEY = re.compile(r"^RuntimeError: KeyError: (.+)$", re.M)
_SHORT_LIST = re.compile(r"list index out of range|Expected \d+ elements in a list but found \d+")


def with_missing_values(raised: JobError, error: Exception, call: CallStructure) -> JobError:
    """The model's error; if the model looked for a value that a request may name, with the option to name it.

    Args:
        raised: the error for the user.
        error: what the model raised.
        call: the model's arguments, with the values that the request names.
    """
    containers = [
        found
        for argument in call.arguments
        if argument.structure is not None
        for found in _containers(argument.name, argument.structure)
    ]
    key = _missing_key(error)
    if key is not None:
        options = [
            missing_option(name, key, container.items)
            for name, container in containers
            if container.container is ContainerKind.DICT and _lacks(container, key)
        ]
        if options:
            detail = f"the model reads the key '{key}', which the request does not name: pass {_any(options)}"
            return JobError(ErrorCode.INPUTS_MISMATCH, f"{detail} ({raised.detail})", raised.places)
    elif _SHORT_LIST.search(str(error)):
        options = [
            missing_option(name, len(container.items), container.items)
            for name, container in containers
            if container.container is ContainerKind.LIST
        ]
        if options:
            detail = f"{raised.detail}; if a list that the request names is too short, pass {_any(options)}"
            return JobError(raised.code, detail, raised.places)
    return raised


def missing_option(name: str, key: str | int, like: Sequence[Structure]) -> str:
    """The command line's option that names a value in a container.

    Args:
        name: the container's name.
        key: the key, position or field of the value.
        like: other values of the container, which are of the same type.
    """
    path, structure = f"{name}.{key}", like[0] if like else TensorLeaf(tensor="tensor")
    while isinstance(structure, Container) and structure.items:
        path, structure = f"{path}.{structure.keys[0] if structure.keys else 0}", structure.items[0]
    is_constant = isinstance(structure, ConstantLeaf)
    return f"`--constant {path}=VALUE`" if is_constant else f"`--input {path}=SHAPE`"


def _containers(name: str, structure: Structure) -> Iterator[tuple[str, Container]]:
    if isinstance(structure, Container):
        yield name, structure
        for key, item in zip(structure.keys or range(len(structure.items)), structure.items, strict=True):
            yield from _containers(f"{name}.{key}", item)


def _lacks(container: Container, key: str) -> bool:
    """Whether a dictionary could have the key, but does not."""
    has_texts = any(isinstance(each, str) for each in container.keys)
    return key not in map(str, container.keys) and (has_texts or not key.isidentifier())


def _missing_key(error: Exception) -> str | None:
    """The key that a dictionary does not have; None for other errors."""
    if isinstance(error, KeyError) and error.args:
        return str(error.args[0])
    found = _SCRIPT_KEY.search(str(error))
    return found[1] if found else None


def _any(options: Sequence[str]) -> str:
    return " or ".join(options)
