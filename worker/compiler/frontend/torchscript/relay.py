"""Lets a call appear, in every stack that torch records, to stand where the model's author wrote it."""

from collections.abc import Callable
from types import FunctionType
from typing import Any

from bessemer.contract.problem import SourcePlace


def call_at(place: SourcePlace, function: Callable[..., Any], *arguments: object) -> Any:
    """Call a function through a frame of the place's file and line.

    ``torch.export`` keeps the stack of every operator, and so the compiler can say which line of the model an
    operator comes from though it was interpreted here.
    """
    if place.file is None or place.line is None:
        return function(*arguments)
    code = _relay.__code__.replace(co_filename=place.file, co_firstlineno=place.line, co_name="forward")
    return FunctionType(code, {})(function, arguments)


_relay: Any = lambda function, arguments: function(*arguments)  # noqa: E731 - on one line, that of the place
