"""Which scope a request needs: a pure function of its method and path."""

from bessemer.contract.access import Scope

PUBLIC = frozenset({"/", "/docs", "/openapi.json", "/healthz", "/readyz"})
"""Paths that anyone may read: they contain nothing of any tenant."""
OPERATOR = ("/metrics", "/v1/workers", "/v1/keys", "/v1/audit")
READING = frozenset({"GET", "HEAD", "OPTIONS"})


def required_scope(method: str, path: str) -> Scope | None:
    """The least scope that a request needs; None if anyone may send it.

    An unknown path needs the highest scope, so that a route cannot be forgotten.
    """
    if path in PUBLIC:
        return None
    is_operators = any(path == root or path.startswith(f"{root}/") for root in OPERATOR)
    if is_operators or not path.startswith("/v1/"):
        return Scope.ADMIN
    return Scope.READ if method in READING else Scope.COMPILE
