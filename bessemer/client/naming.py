"""What a model is called, where its user gives it no name."""

import os
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from bessemer.client.exporting import torch_kind
from bessemer.client.inputs import validation_message
from bessemer.client.sources import ModelSource
from bessemer.contract.base import is_digest
from bessemer.contract.names import Name, as_name, name_of_file
from bessemer.errors import InvalidArgumentError

__all__ = ["checked_name", "name_of_model"]

_NAME: TypeAdapter[str] = TypeAdapter(Name)


def checked_name(name: str | None) -> str | None:
    """The name that a user gave, if any.

    Raises:
        InvalidArgumentError: it is not valid.
    """
    try:
        return None if name is None else _NAME.validate_python(name)
    except ValidationError as error:
        raise InvalidArgumentError(f"name: {validation_message(error)}") from error


def name_of_model(model: ModelSource) -> str | None:
    """A file's name, or the class of a module; None of bytes, of a digest, and of an exported program."""
    if isinstance(model, str | os.PathLike):
        return None if is_digest(model) else name_of_file(Path(model).name)
    kind = torch_kind(model)
    if kind in (None, "program"):
        return None
    return as_name(str(getattr(model, "original_name", type(model).__name__)))
