"""Reads the type of a pickle's outermost object from its opcodes, without running the pickle."""

import io
import pickle
import pickletools
from collections.abc import Iterator
from dataclasses import dataclass

DICT = "dict"
LIST = "list"
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
"""The first pickle in a file of ``torch.save`` from before torch 1.6, which introduced zip files."""

_BUILDERS = {"EMPTY_DICT": DICT, "DICT": DICT, "EMPTY_LIST": LIST, "LIST": LIST}
_SILENT = {"PROTO", "FRAME", "MARK", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"}
_TEXTS = {"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"}


@dataclass(frozen=True)
class Root:
    """The outermost object of a pickle: a container, or an object made by the named global."""

    module: str
    name: str

    @property
    def is_container(self) -> bool:
        """Whether it is a dictionary or a list."""
        return not self.module or (self.module, self.name) == ("collections", "OrderedDict")

    def __str__(self) -> str:
        return f"{self.module}.{self.name}" if self.module else self.name


def pickle_root(data: bytes) -> Root | None:
    """The outermost object of the pickle at the start of ``data``, which may be truncated.

    Returns:
        None if the bytes are not a pickle, or begin with a plain value.
    """
    try:
        return _first_object(pickletools.genops(io.BytesIO(data)))
    except (ValueError, EOFError, UnicodeDecodeError, pickle.UnpicklingError):
        return None


def legacy_root(data: bytes) -> Root | None:
    """The outermost object of a file that ``torch.save`` wrote before torch 1.6.

    Such a file is a sequence of pickles: a magic number, a version, a description of the machine, and the
    object.
    """
    stream = io.BytesIO(data)
    try:
        operations = [list(pickletools.genops(stream)) for _ in range(3)]
    except (ValueError, EOFError, UnicodeDecodeError):
        return None
    if not any(argument == LEGACY_MAGIC for _, argument, _ in operations[0]):
        return None
    return pickle_root(data[stream.tell() :])


Operations = Iterator[tuple[pickletools.OpcodeInfo, object, int | None]]


def _first_object(operations: Operations) -> Root | None:
    texts: list[str] = []
    for operation, argument, _ in operations:
        if operation.name in _BUILDERS:
            return Root("", _BUILDERS[operation.name])
        if operation.name == "GLOBAL":
            module, _, name = str(argument).partition(" ")
            return Root(module, name)
        if operation.name == "STACK_GLOBAL" and len(texts) == 2:
            return Root(*texts)
        if operation.name in _TEXTS:
            texts.append(str(argument))
        elif operation.name not in _SILENT:
            return None
    return None
