"""How a model's arguments and its result are made of named tensors.

A library takes and returns tensors by name. The model itself takes lists, dictionaries and objects of them.
A structure is a tree: its leaves are tensors and constants, its other nodes are containers. In JSON, the
argument ``batch={"image": x, "masks": [m, None]}`` is::

    {"container": "dict", "keys": ["image", "masks"], "items": [
        {"tensor": "batch.image"},
        {"container": "list", "items": [{"tensor": "batch.masks.0"}, {"constant": null}]}]}
"""

import math
from collections.abc import Iterator
from typing import Union

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr

from bessemer.contract.base import Document, GrowingEnum
from bessemer.contract.tensor import TensorName

Key = StrictBool | StrictInt | StrictFloat | StrictStr


class ContainerKind(GrowingEnum):
    """What a container is in the model. An ``object`` has fields, such as a dataclass."""

    LIST = "list"
    TUPLE = "tuple"
    DICT = "dict"
    NAMED_TUPLE = "named_tuple"
    OBJECT = "object"


class NotFinite(GrowingEnum):
    """A float that JSON does not have."""

    INFINITY = "inf"
    NEGATIVE_INFINITY = "-inf"
    NAN = "nan"


class TensorLeaf(Document):
    """A tensor that the library takes or returns."""

    tensor: TensorName = Field(description="The name of the input or output.")


class ConstantLeaf(Document):
    """A value that is not a tensor. The library is compiled for it."""

    constant: Key | None = Field(description="The number, boolean, text or null.")
    not_finite: NotFinite | None = Field(
        default=None, description="The float, if it is one that JSON does not have; `constant` is null then."
    )

    @classmethod
    def of(cls, value: Key | None) -> "ConstantLeaf":
        """The leaf of a value."""
        if isinstance(value, float) and not math.isfinite(value):
            return cls(constant=None, not_finite=NotFinite(str(value)))
        return cls(constant=value)

    @property
    def value(self) -> Key | None:
        """The value itself."""
        return self.constant if self.not_finite is None else float(self.not_finite.value)


class Container(Document):
    """A list, a tuple, a dictionary, a named tuple, or an object with fields such as a dataclass."""

    container: ContainerKind = Field(description="What `run.py` makes of it.")
    keys: tuple[Key, ...] = Field(
        default=(),
        description="The keys of a dictionary, or the names of the fields of a named tuple or an object, in "
        "the order of `items`; empty for a list or a tuple.",
    )
    items: tuple["Structure", ...] = Field(default=(), description="What it contains.")


Structure = Union[TensorLeaf, ConstantLeaf, Container]  # noqa: UP007 - Container refers to it by name


class ArgumentStructure(Document):
    """One argument of the model."""

    name: str = Field(description="The model's own name for it.")
    type: str | None = Field(
        default=None,
        description="Its type, as TorchScript writes it; null for other formats.",
        examples=["List[Tensor]"],
    )
    structure: Structure | None = Field(
        default=None,
        description="What it is made of. Null if the inputs of a request decide: those of a `List[Tensor]` "
        "named `images` are `images.0`, `images.1`, and so on. Null, too, if a constant has no value yet.",
    )
    keyword_only: bool = Field(default=False, description="Whether a call passes it by name only.")

    def covers(self, name: str) -> bool:
        """Whether it can contain a tensor or a constant of this name, although its structure is open."""
        return self.structure is None and name.startswith(f"{self.name}.")

    def __str__(self) -> str:
        return f"{self.name}: {self.type or 'any'}" if self.structure is None else _shown_argument(self)


class CallStructure(Document):
    """The arguments and the result of the model itself."""

    arguments: tuple[ArgumentStructure, ...] = Field(
        default=(), description="The arguments, in the model's order."
    )
    returns: Structure | None = Field(
        default=None, description="The result; null while only the arguments are known."
    )

    @property
    def is_flat(self) -> bool:
        """Whether the model takes tensors, and returns one or a tuple of them, as far as that is known."""
        returned = self.returns
        is_tuple = isinstance(returned, Container) and returned.container is ContainerKind.TUPLE
        results = returned.items if isinstance(returned, Container) and is_tuple else (returned,)
        leaves = (*(argument.structure for argument in self.arguments), *results)
        return all(leaf is None or isinstance(leaf, TensorLeaf) for leaf in leaves)

    def __str__(self) -> str:
        """As Python might write it: ``(images: [images.0], *, mask: None) -> {'scores': scores}``."""
        returned = "" if self.returns is None else f" -> {shown(self.returns)}"
        texts = list(map(str, self.arguments))
        by_name = [index for index, argument in enumerate(self.arguments) if argument.keyword_only]
        if by_name:
            texts.insert(by_name[0], "*")
        return f"({', '.join(texts)}){returned}"


def shown(structure: Structure) -> str:
    """A structure as Python might write it, with the names of the tensors as its leaves."""
    match structure:
        case TensorLeaf(tensor=name):
            return name
        case ConstantLeaf():
            return repr(structure.value)
        case Container(container=kind, keys=keys, items=items):
            texts = list(map(shown, items))
            match kind:
                case ContainerKind.LIST:
                    return f"[{', '.join(texts)}]"
                case ContainerKind.TUPLE:
                    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
                case ContainerKind.DICT:
                    return (
                        f"{{{', '.join(f'{key!r}: {text}' for key, text in zip(keys, texts, strict=True))}}}"
                    )
            return f"({', '.join(f'{key}={text}' for key, text in zip(keys, texts, strict=True))})"
    raise TypeError(f"{structure} is not a structure")


def tensor_names(structure: Structure) -> Iterator[str]:
    """The names of the tensors, in order."""
    match structure:
        case TensorLeaf(tensor=name):
            yield name
        case Container(items=items):
            for item in items:
                yield from tensor_names(item)


def _shown_argument(argument: ArgumentStructure) -> str:
    assert argument.structure is not None
    text = shown(argument.structure)
    return text if text == argument.name else f"{argument.name}: {text}"
