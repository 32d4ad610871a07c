"""Which scope a request needs: a pure function of its method and path."""

import re

from bessemer.contract.access import Scope

PUBLIC = frozenset({"/", "/console", "/console/", "/docs", "/openapi.json", "/healthz", "/readyz"})
"""Paths that anyone may read: they contain no tenant's data."""
CONSOLE = "/console/"
PUBLIC_CONSOLE = ("/console/sign-in", "/console/sign-out", "/console/static/")
"""Prefixes of the console's paths that anyone may use."""
GUIDE = "/guide"
OPERATOR = ("/console/admin", "/metrics", "/v1/workers", "/v1/keys", "/v1/audit")
READING = frozenset({"GET", "HEAD", "OPTIONS"})


DEVICES = "/v1/devices"
UNRECORDED = re.compile(r"/v1/devices/[0-9a-f]+/(task|tasks/[0-9a-f]+/lease)")
"""The paths of heartbeats, which are sent every few seconds and change no user's data."""


def is_audited(method: str, path: str) -> bool:
    """Whether the audit log keeps a request."""
    return method not in READING and UNRECORDED.fullmatch(path) is None


def required_scope(method: str, path: str) -> Scope | None:
    """The lowest scope that a request needs; None if anyone may send it.

    An unknown path needs the highest scope, so that a forgotten route stays closed.
    """
    if path in PUBLIC or path.startswith(PUBLIC_CONSOLE) or _is_below(path, GUIDE):
        return None
    if any(_is_below(path, root) for root in OPERATOR):
        return Scope.ADMIN
    if path.startswith(CONSOLE):
        return Scope.READ if method in READING else Scope.COMPILE
    if not path.startswith("/v1/"):
        return Scope.ADMIN
    if path.startswith(f"{DEVICES}/") or (path == DEVICES and method not in READING):
        return Scope.DEVICE
    return Scope.READ if method in READING else Scope.COMPILE


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root}/")
