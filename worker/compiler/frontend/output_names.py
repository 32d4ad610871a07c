"""Names a model's outputs by the structure of its result."""

from __future__ import annotations

import re
from collections import defaultdict, namedtuple
from collections.abc import Iterable, Iterator, Sequence

from torch.utils._pytree import TreeSpec

MAX_LENGTH = 128
UNNAMED = "output"
_UNSAFE = re.compile(r"[^A-Za-z0-9_.]")

LeafPath = tuple[int | str, ...]
"""The path from the result to a leaf: positions in sequences, and the text of keys and fields."""


def output_names(structure: TreeSpec, present: Sequence[bool]) -> tuple[str, ...]:
    """The names of the leaves that are tensors.

    A leaf's name joins the keys and fields on its path with dots. A name that would begin with a position
    begins with ``output_``. If no output has a key or field, the names are ``output``, or ``output_0``,
    ``output_1``, and so on.

    Args:
        structure: the structure of the result.
        present: for each leaf in order, whether it is an output; None is not.
    """
    paths = [path for path, is_output in zip(leaf_paths(structure), present, strict=True) if is_output]
    if all(isinstance(part, int) for path in paths for part in path):
        return counted_names(len(paths))
    return distinct_names(_joined(path, place) for place, path in enumerate(paths))


def counted_names(count: int) -> tuple[str, ...]:
    """``output``, or ``output_0``, ``output_1``, … for several outputs."""
    return (UNNAMED,) if count == 1 else tuple(f"{UNNAMED}_{index}" for index in range(count))


def leaf_paths(structure: TreeSpec) -> Iterator[LeafPath]:
    """The path of every leaf, in pytree order."""
    if structure.is_leaf():
        yield ()
        return
    for key, child in zip(_keys(structure), structure.children(), strict=True):
        yield from ((key, *path) for path in leaf_paths(child))


def distinct_names(names: Iterable[str]) -> tuple[str, ...]:
    """The names, with a number appended to each that is already taken."""
    wanted = tuple(names)
    others, taken, found = frozenset(wanted), set[str](), []
    for name in wanted:
        chosen, number = name, 1
        while chosen in taken or (number > 1 and chosen in others):
            number += 1
            suffix = f"_{number}"
            chosen = name[: MAX_LENGTH - len(suffix)] + suffix
        taken.add(chosen)
        found.append(chosen)
    return tuple(found)


def _joined(path: LeafPath, place: int) -> str:
    """A name that is safe in a URL, a file name, a C++ comment and a command-line argument."""
    name = ".".join(_UNSAFE.sub("_", str(part)[:MAX_LENGTH]) or "_" for part in path)
    if not re.search(r"[A-Za-z0-9]", name):
        name = str(place)
    if not re.match(r"[A-Za-z_]", name):
        name = f"{UNNAMED}_{name.lstrip('.')}"
    return name[:MAX_LENGTH]


def _keys(structure: TreeSpec) -> Sequence[int | str]:
    """The key or field of each child, or its position if it has neither."""
    names, count = _names(structure), structure.num_children
    return [str(name) for name in names] if len(names) == count else range(count)


def _names(structure: TreeSpec) -> Sequence[object]:
    kind, context = structure.type, structure.context
    if kind is namedtuple:
        return context._fields
    if kind is defaultdict:
        return context[1]
    if issubclass(kind, dict):
        return context
    return _fields(context, structure.num_children) or getattr(kind, "__match_args__", ())


def _fields(context: object, count: int) -> Sequence[str]:
    """The fields of a registered class: its context, or the context's first element as for dataclasses."""
    given = context if isinstance(context, list | tuple) else ()
    for names in (given, *given[:1]):
        if isinstance(names, list | tuple) and len(names) == count and all(isinstance(n, str) for n in names):
            return names
    return ()
