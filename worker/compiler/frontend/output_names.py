"""The names of a model's outputs, from the structure of what it returns."""

from __future__ import annotations

import re
from collections import defaultdict, namedtuple
from collections.abc import Iterable, Iterator, Sequence

from torch.utils._pytree import TreeSpec

MAX_LENGTH = 128
UNNAMED = "output"
_UNSAFE = re.compile(r"[^A-Za-z0-9_.]")

LeafPath = tuple[int | str, ...]
"""The way from the result to one of its leaves: a position in a sequence, or the text of a key or field."""


def output_names(structure: TreeSpec, present: Sequence[bool]) -> tuple[str, ...]:
    """The names of the leaves that are tensors.

    The keys and fields on the way to a leaf, joined with dots, are its name. A position in a sequence at the
    top reads ``output_0``. If nothing has a name, the outputs are ``output``, or ``output_0``, ``output_1``.

    Args:
        structure: of what the model returns.
        present: for each leaf in order, whether it is an output; None is not.
    """
    paths = [path for path, is_output in zip(leaf_paths(structure), present, strict=True) if is_output]
    if all(isinstance(part, int) for path in paths for part in path):
        return counted_names(len(paths))
    return distinct_names(_joined(path, place) for place, path in enumerate(paths))


def counted_names(count: int) -> tuple[str, ...]:
    """``output``, or ``output_0``, ``output_1``, … where there are several."""
    return (UNNAMED,) if count == 1 else tuple(f"{UNNAMED}_{index}" for index in range(count))


def leaf_paths(structure: TreeSpec) -> Iterator[LeafPath]:
    """The path of every leaf, in pytree order."""
    if structure.is_leaf():
        yield ()
        return
    for key, child in zip(_keys(structure), structure.children(), strict=True):
        yield from ((key, *path) for path in leaf_paths(child))


def distinct_names(names: Iterable[str]) -> tuple[str, ...]:
    """The names, with a number after each that another one has already."""
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
    """A name that is safe as part of an address, a file's name, a comment of C++ and an argument."""
    name = ".".join(_UNSAFE.sub("_", str(part)[:MAX_LENGTH]) or "_" for part in path)
    if not re.search(r"[A-Za-z0-9]", name):
        name = str(place)
    if not re.match(r"[A-Za-z_]", name):
        name = f"{UNNAMED}_{name.lstrip('.')}"
    return name[:MAX_LENGTH]


def _keys(structure: TreeSpec) -> Sequence[int | str]:
    """What leads to each child: its key or field, or its position where it has neither."""
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
    """The fields of a registered class: a list of them, or such a list first, as of torch's dataclasses."""
    given = context if isinstance(context, list | tuple) else ()
    for names in (given, *given[:1]):
        if isinstance(names, list | tuple) and len(names) == count and all(isinstance(n, str) for n in names):
            return names
    return ()
