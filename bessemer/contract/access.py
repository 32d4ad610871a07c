"""Who may call the service: tenants and scopes."""

from enum import StrEnum
from typing import Annotated

from pydantic import StringConstraints

DEFAULT_TENANT = "default"
"""The tenant of every caller while the service requires no keys."""

TENANT_PATTERN = r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$"
Tenant = Annotated[str, StringConstraints(pattern=TENANT_PATTERN)]
"""The name of a tenant: 1 to 63 lower-case letters, digits and inner hyphens."""


class Scope(StrEnum):
    """What a caller may do. ``includes`` says which scopes contain others."""

    READ = "read"
    COMPILE = "compile"
    DEVICE = "device"
    SHARED_DEVICE = "shared-device"
    ADMIN = "admin"

    def includes(self, other: "Scope") -> bool:
        """Whether a caller with this scope may do what the other allows."""
        return other is self or other in _INCLUDED[self]


_INCLUDED: dict[Scope, frozenset[Scope]] = {
    Scope.READ: frozenset(),
    Scope.COMPILE: frozenset({Scope.READ, Scope.DEVICE}),
    Scope.DEVICE: frozenset(),
    Scope.SHARED_DEVICE: frozenset({Scope.DEVICE}),
    Scope.ADMIN: frozenset(Scope),
}
