"""The caller of a request."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from bessemer.contract.access import DEFAULT_TENANT, Scope


@dataclass(frozen=True)
class Caller:
    """Who sent a request.

    Attributes:
        subject: names the caller in the audit log: ``anonymous``, ``key:ID`` or ``oidc:SUBJECT``.
        tenant: the owner of everything that the caller creates, and the only owner whose data it sees.
        scope: what it may do.
    """

    subject: str
    tenant: str
    scope: Scope


ANONYMOUS = Caller("anonymous", DEFAULT_TENANT, Scope.ADMIN)
"""Every caller of a service that asks for no keys."""


async def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


CallerDep = Annotated[Caller, Depends(_caller)]
