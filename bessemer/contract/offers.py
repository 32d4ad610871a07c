"""Names that requests may use because a worker knows them: rewrites, search strategies, spaces, kernels."""

from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from pydantic import Field

from bessemer.contract.base import Document
from bessemer.contract.error_codes import ErrorCode
from bessemer.contract.names import did_you_mean
from bessemer.contract.request import AUTO, OURS, Submission


class Offers(Document):
    """What a worker offers by name: its own and what its installed packages add."""

    rewrites: tuple[str, ...] = Field(
        default=(), description="Rewrites, for `optimize.enable` and `optimize.disable`."
    )
    strategies: tuple[str, ...] = Field(default=(), description="Search strategies, for `tune.strategy`.")
    spaces: tuple[str, ...] = Field(default=(), description="Search spaces, for `tune.spaces`.")
    kernels: dict[str, tuple[str, ...]] = Field(
        default={}, description="Kernel libraries by the operators that they have, for `kernels`."
    )


def joined_offers(offers: Iterable[Offers]) -> Offers:
    """What at least one of several workers offers."""
    each = tuple(offers)
    operators = _each_once(one.kernels for one in each)
    return Offers(
        rewrites=_each_once(one.rewrites for one in each),
        strategies=_each_once(one.strategies for one in each),
        spaces=_each_once(one.spaces for one in each),
        kernels={
            operator: _each_once(one.kernels.get(operator, ()) for one in each) for operator in operators
        },
    )


class UnknownName(NamedTuple):
    """A name of a request that a worker does not offer.

    Attributes:
        code: the error's code.
        field: the place in the request, such as ``tune.strategy``.
        message: the name, the nearest one that the worker offers, and all of them.
    """

    code: ErrorCode
    field: str
    message: str


def unknown_name(request: Submission, offers: Offers) -> UnknownName | None:
    """The first name of a request that is not offered, or None if all are."""
    return next(_unknown_names(request, offers), None)


def operator_of(key: str) -> str:
    """The operator of a key of ``kernels``, which may include the shapes of its operands."""
    return key.partition("[")[0]


def _unknown_names(request: Submission, offers: Offers) -> Iterator[UnknownName]:
    optimize, tune = request.optimize, request.tune
    places = [(f"optimize.enable[{index}]", name) for index, name in enumerate(optimize.enable)]
    places += [(f"optimize.disable[{index}]", name) for index, name in enumerate(optimize.disable)]
    for field, name in places:
        if name not in offers.rewrites:
            yield UnknownName(ErrorCode.REWRITE_UNKNOWN, field, _message("rewrite", name, offers.rewrites))
    for key, name in request.kernels.items():
        known = offers.kernels.get(operator_of(key), ())
        if not known or name not in (AUTO, OURS, *known):
            yield UnknownName(ErrorCode.KERNEL_UNKNOWN, f"kernels.{key}", _kernel_message(key, name, offers))
    for pattern, name in tune.spaces.items():
        if name not in offers.spaces:
            message = _message("space", name, offers.spaces)
            yield UnknownName(ErrorCode.SPACE_UNKNOWN, f"tune.spaces.{pattern}", message)
    if tune.strategy not in offers.strategies:
        message = _message("strategy", tune.strategy, offers.strategies)
        yield UnknownName(ErrorCode.STRATEGY_UNKNOWN, "tune.strategy", message)


def _each_once(names: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(names)))


def _message(kind: str, name: str, known: Collection[str]) -> str:
    hint = did_you_mean(name, known, cutoff=0.5)
    return f"unknown {kind} '{name}'{hint} (known: {', '.join(sorted(known))})"


def _kernel_message(key: str, name: str, offers: Offers) -> str:
    operator = operator_of(key)
    names = offers.kernels.get(operator)
    hint = did_you_mean(name, (AUTO, OURS, *names)) if names else did_you_mean(operator, offers.kernels)
    known = "; ".join(f"{each}: {', '.join(libraries)}" for each, libraries in offers.kernels.items())
    return f"unknown kernel '{name}' for '{operator}'{hint} (known: {known})"
