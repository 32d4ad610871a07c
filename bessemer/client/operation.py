"""Methods that block in ``Client`` and ``Job``, and are coroutines in ``AsyncClient`` and ``AsyncJob``.

Each such method is written once, as a function that returns the steps of an operation.
"""

from collections.abc import Callable, Coroutine
from functools import wraps
from inspect import signature
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, get_args, overload

from bessemer.client.steps import Flow
from bessemer.client.transport import AsyncTransport, Transport

P = ParamSpec("P")
T = TypeVar("T")


class Blocking:
    """Base class of the objects whose operations block."""

    _transport: Transport


class Asynchronous:
    """Base class of the objects whose operations are coroutines."""

    _transport: AsyncTransport


class operation(Generic[P, T]):  # noqa: N801 - a decorator
    """Makes a method of a function that returns steps: its object's transport performs them."""

    def __init__(self, flow: Callable[Concatenate[Any, P], Flow[T]]) -> None:
        @wraps(flow)
        def block(owner: Blocking, *args: P.args, **options: P.kwargs) -> T:
            return owner._transport.run(flow(owner, *args, **options))

        @wraps(flow)
        async def wait(owner: Asynchronous, *args: P.args, **options: P.kwargs) -> T:
            return await owner._transport.run(flow(owner, *args, **options))

        given = signature(flow)
        *_, result = get_args(given.return_annotation)
        for method in (block, wait):
            vars(method)["__signature__"] = given.replace(return_annotation=result)
        self._block, self._wait = block, wait

    @overload
    def __get__(self, owner: None, kind: type) -> Callable[..., Any]: ...

    @overload
    def __get__(self, owner: Blocking, kind: type) -> Callable[P, T]: ...

    @overload
    def __get__(self, owner: Asynchronous, kind: type) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(self, owner: Any, kind: type) -> Callable[..., Any]:
        method: Callable[..., Any] = self._wait if issubclass(kind, Asynchronous) else self._block
        return method if owner is None else MethodType(method, owner)
