"""Finds the caller of a request from its ``Authorization`` header, or from the console's cookie."""

import hashlib
import time
from collections import OrderedDict
from dataclasses import dataclass
from math import ceil

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from app.http.problems import RefusalError
from app.identity.addresses import is_loopback
from app.identity.caller import ANONYMOUS, Caller
from app.identity.failed_logins import FailedLogins
from app.identity.oidc import IssuerUnavailableError, TokenError, TokenRefusedError, TokenVerifier
from app.identity.scopes import READING
from app.settings import AppSettings, AuthMode
from bessemer.contract.base import now
from bessemer.contract.keys import ApiKey
from bessemer.contract.problem import ErrorCode, make_problem
from bessemer.store.errors import StoreUnavailableError
from bessemer.store.rows.keys import PREFIX, Keys, is_valid

COOKIE = "bessemer_credential"
"""The console's cookie. Browsers send it to this service only, and ``Origins`` refuses other sites' pages."""
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="bessemer"'}
CACHE_SECONDS = 5.0
"""How long a revoked key may still be accepted."""
AWAY_SECONDS = 600.0
"""How long a valid key stays accepted while the database is unavailable, so that metrics stay readable."""
MAX_CACHED = 1024
USED_EVERY_SECONDS = 60.0


@dataclass
class _Cached:
    caller: Caller
    key: ApiKey
    until: float


class Login:
    """Who may call one app. Runs on its event loop."""

    def __init__(self, settings: AppSettings, keys: Keys, tokens: TokenVerifier | None) -> None:
        self._settings = settings
        self._keys = keys
        self._tokens = tokens
        self._failed = FailedLogins()
        self._cached: OrderedDict[str, _Cached] = OrderedDict()
        self._used: dict[str, float] = {}
        self._keys_exist = False

    async def caller(self, request: Request) -> Caller:
        """The caller of a request.

        Raises:
            RefusalError: 401, the caller is unknown; 403, no rule matches its token, or a request that
                changes something has the cookie but no origin; 429, too many logins from its address failed;
                503, its token's issuer is unavailable.
            StoreUnavailableError: the database is unavailable.
        """
        if not await self.asks_for_keys():
            return ANONYMOUS
        caller = await self.caller_of(request, _credential(request))
        if _lacks_origin(request):
            detail = "It changes something with the console's cookie, without `Origin` or `Sec-Fetch-Site`."
            raise RefusalError(make_problem(ErrorCode.ORIGIN_MISSING, detail))
        return caller

    async def caller_of(self, request: Request, credential: str) -> Caller:
        """The owner of a key or a token that a request carries. Raises as ``caller`` does."""
        if not credential:
            raise self._refused(request, "The request has no `Authorization: Bearer` header.")
        if credential.startswith(f"{PREFIX}_"):
            return await self._caller_of_key(request, credential)
        if self._tokens is None:
            raise self._refused(request, "This is not an API key of the service.")
        return await self._caller_of_token(request, credential, self._tokens)

    async def asks_for_keys(self) -> bool:
        """Whether callers must prove who they are.

        Raises:
            StoreUnavailableError: the database is unavailable, and may have got a key in the meantime.
        """
        mode = self._settings.auth
        if mode is not AuthMode.AUTO:
            return mode is AuthMode.REQUIRED
        if self._tokens is not None or not is_loopback(self._settings.host):
            return True
        if not self._keys_exist:
            self._keys_exist = await run_in_threadpool(self._keys.any_exist)
        return self._keys_exist

    async def _caller_of_key(self, request: Request, text: str) -> Caller:
        name = hashlib.sha256(text.encode()).hexdigest()
        cached = self._cached.get(name)
        if cached is not None and time.monotonic() < cached.until:
            return cached.caller
        try:
            key = await run_in_threadpool(self._find, text)
        except StoreUnavailableError:
            if cached is None or not _outlasts_outages(cached):
                raise
            return cached.caller
        if key is None:
            self._cached.pop(name, None)
            raise self._refused(request, "This is not a valid API key of the service.")
        if not is_valid(key, now()):
            self._cached.pop(name, None)
            state = "was revoked" if key.revoked_at is not None else "has expired"
            raise self._refused(request, f"The key {key.id} {state}.")
        caller = Caller(f"key:{key.id}", key.tenant, key.scope)
        self._cached[name] = _Cached(caller, key, time.monotonic() + CACHE_SECONDS)
        if len(self._cached) > MAX_CACHED:
            self._cached.popitem(last=False)
        return caller

    def _find(self, text: str) -> ApiKey | None:
        key = self._keys.find(text)
        if key is not None and is_valid(key, now()):
            moment = time.monotonic()
            if moment - self._used.get(key.id, -USED_EVERY_SECONDS) >= USED_EVERY_SECONDS:
                self._used[key.id] = moment
                self._keys.used(key.id)
        return key

    async def _caller_of_token(self, request: Request, token: str, tokens: TokenVerifier) -> Caller:
        try:
            return await tokens.caller(token)
        except TokenError as error:
            raise self._refused(request, str(error)) from error
        except TokenRefusedError as error:
            raise RefusalError(make_problem(ErrorCode.FORBIDDEN, str(error))) from error
        except IssuerUnavailableError as error:
            detail = "The keys of the token's issuer could not be fetched."
            raise RefusalError(make_problem(ErrorCode.UNAVAILABLE, detail)) from error

    def _refused(self, request: Request, detail: str) -> RefusalError:
        wait_seconds = self._failed.add(request.client.host if request.client else "")
        if wait_seconds is None:
            return RefusalError(make_problem(ErrorCode.UNAUTHENTICATED, detail), CHALLENGE)
        seconds = ceil(wait_seconds)
        detail = f"{detail} Too many requests from this address had no valid key. Wait {seconds} seconds."
        headers = {"Retry-After": str(seconds)}
        return RefusalError(make_problem(ErrorCode.LOGINS_LIMITED, detail), headers)


def _outlasts_outages(cached: _Cached) -> bool:
    return time.monotonic() <= cached.until + AWAY_SECONDS and is_valid(cached.key, now())


def _credential(request: Request) -> str:
    """The key or token of a request; empty if it has none."""
    header = request.headers.get("authorization")
    if header is None:
        return request.cookies.get(COOKIE, "")
    scheme, _, credential = header.partition(" ")
    return credential.strip() if scheme.lower() == "bearer" else ""


def _lacks_origin(request: Request) -> bool:
    """Whether a request changes something with the cookie only, and does not say which page sent it."""
    headers = request.headers
    return (
        request.method not in READING
        and "authorization" not in headers
        and COOKIE in request.cookies
        and not headers.get("origin")
        and not headers.get("sec-fetch-site")
    )
