"""OpenID Connect: CI jobs present the short-lived token that their CI system signs, instead of a stored key.

A policy file says which tokens to accept and whose they are:

```toml
[[issuers]]
url = "https://token.actions.githubusercontent.com"
audience = "bessemer"

[[issuers.rules]]
claims = { repository = "acme/vision", ref = "refs/heads/*" }
tenant = "vision"
scope = "compile"
```

A token is valid if a key that the issuer publishes has signed it, and if its audience and its times are right
(OpenID Connect Core 1.0, section 3.1.3.7). The first rule whose claims all match decides.
"""

import asyncio
import time
import tomllib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import httpx
import jwt
from pydantic import AfterValidator, Field, ValidationError

from app.identity.caller import Caller
from bessemer.contract.access import Scope, Tenant
from bessemer.contract.base import Document
from bessemer.contract.error_words import in_words

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures that need a private key: with `none` or HMAC, anyone could sign."""
REQUIRED_CLAIMS = ("exp", "iat", "iss", "aud", "sub")
LEEWAY_SECONDS = 30
"""How far the issuer's clock may differ from ours."""
MAX_TOKEN_CHARACTERS = 16_384

KEYS_SECONDS = 3600.0
"""How long an issuer's keys are used before they are fetched again."""
STALE_KEYS_SECONDS = 24 * 3600.0
"""How long an issuer's keys stay valid if it cannot be reached."""
REFETCH_SECONDS = 30.0
"""The minimum time between fetches: tokens with unknown keys cause fetches, and anyone can send them."""
FETCH_TIMEOUT_SECONDS = 5.0
MAX_FETCHED_BYTES = 1 << 20
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class TokenError(Exception):
    """A token that is not valid; the message tells its sender why."""


class TokenRefusedError(Exception):
    """A valid token that no rule matches; the message tells its sender why."""


class IssuerUnavailableError(Exception):
    """The issuer's keys cannot be fetched."""


class PolicyError(Exception):
    """The policy file cannot be used."""


def _is_safe(url: str) -> str:
    parts = urlsplit(url)
    if not parts.hostname or (parts.scheme != "https" and parts.hostname not in LOOPBACK):
        raise ValueError("expected a URL that begins with https://")
    return url


SafeUrl = Annotated[str, AfterValidator(_is_safe)]


class Rule(Document):
    """Says which tenant the tokens with certain claims belong to.

    Attributes:
        claims: a pattern for each claim that must match; `*` matches any characters.
        tenant: the tenant of the caller.
        scope: what the caller may do.
    """

    claims: dict[str, str] = Field(min_length=1)
    tenant: Tenant
    scope: Scope = Scope.COMPILE

    def matches(self, claims: Mapping[str, Any]) -> bool:
        """Whether a token has all claims of the rule."""
        return all(_matches(claims.get(name), pattern) for name, pattern in self.claims.items())


class Issuer(Document):
    """A CI system that signs tokens.

    Attributes:
        url: the token's `iss`.
        audience: the token's `aud`; the CI job asks for it, so a token for another service fails.
        jwks_url: where the issuer publishes its keys; by default, its discovery document says where.
        rules: the first that matches decides.
    """

    url: SafeUrl
    audience: str = Field(min_length=1)
    jwks_url: SafeUrl | None = None
    rules: tuple[Rule, ...] = Field(min_length=1)

    @property
    def discovery_url(self) -> str:
        """The URL of the issuer's metadata (OpenID Connect Discovery 1.0, section 4)."""
        return f"{self.url.rstrip('/')}/.well-known/openid-configuration"


class Policy(Document):
    """The issuers whose tokens the app accepts."""

    issuers: tuple[Issuer, ...] = Field(min_length=1)


def read_policy(path: Path) -> Policy:
    """Read a policy file.

    Raises:
        PolicyError: it cannot be read, or is not a valid policy.
    """
    try:
        return Policy.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise PolicyError(f"{path}: {where}: {in_words(first)}") from error
    except (OSError, ValueError) as error:
        raise PolicyError(f"{path}: {error}") from error


class TokenVerifier:
    """Finds the caller of a token. Runs on one event loop."""

    def __init__(
        self, policy: Policy, client: httpx.AsyncClient, refetch_seconds: float = REFETCH_SECONDS
    ) -> None:
        self._issuers = {issuer.url: _Keys(issuer, client, refetch_seconds) for issuer in policy.issuers}

    async def caller(self, token: str) -> Caller:
        """The caller that a token identifies.

        Raises:
            TokenError: the token is not valid.
            TokenRefusedError: the token is valid, but no rule matches it.
            IssuerUnavailableError: the issuer's keys cannot be fetched.
        """
        keys = self._keys_of(token)
        claims = await _verified_claims(token, keys)
        for rule in keys.issuer.rules:
            if rule.matches(claims):
                return Caller(f"oidc:{claims['sub']}", rule.tenant, rule.scope)
        wanted = sorted({name for rule in keys.issuer.rules for name in rule.claims})
        shown = ", ".join(f"{name}={claims.get(name)!r}" for name in wanted)
        raise TokenRefusedError(f"No rule of the service's policy matches this token's claims: {shown}.")

    def _keys_of(self, token: str) -> "_Keys":
        if len(token) > MAX_TOKEN_CHARACTERS:
            raise TokenError("The token is too long.")
        try:
            claims = jwt.decode(token, options={"verify_signature": False})
        except (jwt.PyJWTError, RecursionError) as error:
            raise TokenError("This is not a JSON Web Token.") from error
        issuer = claims.get("iss")
        keys = self._issuers.get(issuer) if isinstance(issuer, str) else None
        if keys is None:
            raise TokenError("The service does not accept tokens of this issuer.")
        return keys


class _Keys:
    """An issuer's published keys."""

    def __init__(self, issuer: Issuer, client: httpx.AsyncClient, refetch_seconds: float) -> None:
        self.issuer = issuer
        self._refetch_seconds = refetch_seconds
        self._client = client
        self._lock = asyncio.Lock()
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_at: float | None = None
        self._tried_at: float | None = None

    async def get(self, key_id: str) -> jwt.PyJWK:
        """The key with this id.

        Raises:
            TokenError: the issuer has no such key.
            IssuerUnavailableError: its keys were not fetched within a day.
        """
        if self._lacks(key_id):  # a fetch for another key must not delay the tokens of known keys
            async with self._lock:
                if self._lacks(key_id):
                    await self._refetch()
        key = self._keys.get(key_id)
        if key is None:
            raise TokenError("The issuer does not publish the key that signed this token.")
        return key

    def _lacks(self, key_id: str) -> bool:
        return _is_older(self._fetched_at, KEYS_SECONDS) or key_id not in self._keys

    async def _refetch(self) -> None:
        """Fetch the keys, unless that was tried a moment ago; if it fails, keep the known ones for a day."""
        if not _is_older(self._tried_at, self._refetch_seconds):
            if _is_older(self._fetched_at, STALE_KEYS_SECONDS):
                raise IssuerUnavailableError(self.issuer.url)
            return
        self._tried_at = time.monotonic()
        try:
            self._keys = await self._fetch()
        except (httpx.HTTPError, httpx.InvalidURL, jwt.PyJWTError, ValueError) as error:
            if _is_older(self._fetched_at, STALE_KEYS_SECONDS):
                raise IssuerUnavailableError(f"{self.issuer.url}: {error}") from error
            return
        self._fetched_at = time.monotonic()

    async def _fetch(self) -> dict[str, jwt.PyJWK]:
        url = self.issuer.jwks_url or await self._discover()
        keys = jwt.PyJWKSet.from_dict(await self._get_json(url)).keys
        return {key.key_id: key for key in keys if key.key_id is not None}

    async def _discover(self) -> str:
        metadata = await self._get_json(self.issuer.discovery_url)
        url = metadata.get("jwks_uri")
        if metadata.get("issuer") != self.issuer.url or not isinstance(url, str):
            raise ValueError("the discovery document is of another issuer, or names no keys")
        return _is_safe(url)

    async def _get_json(self, url: str) -> dict[str, Any]:
        async with self._client.stream("GET", url, timeout=FETCH_TIMEOUT_SECONDS) as response:
            response.raise_for_status()
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MAX_FETCHED_BYTES:
                    raise ValueError(f"{url} is larger than {MAX_FETCHED_BYTES} bytes")
        document = httpx.Response(200, content=bytes(body)).json()
        if not isinstance(document, dict):
            raise ValueError(f"{url} is not a JSON object")
        return document


async def _verified_claims(token: str, keys: _Keys) -> dict[str, Any]:
    try:
        header = jwt.get_unverified_header(token)
        if header.get("alg") not in ALGORITHMS:
            raise TokenError("The token is not signed with a private key.")
        key_id = header.get("kid")
        if not isinstance(key_id, str):
            raise TokenError("The token does not name the key that signed it.")
        claims: dict[str, Any] = jwt.decode(
            token,
            await keys.get(key_id),
            algorithms=ALGORITHMS,
            audience=keys.issuer.audience,
            issuer=keys.issuer.url,
            leeway=LEEWAY_SECONDS,
            options={"require": [*REQUIRED_CLAIMS]},
        )
    except jwt.ExpiredSignatureError as error:
        raise TokenError("The token has expired.") from error
    except jwt.InvalidAudienceError as error:
        raise TokenError(
            f"The token is for another service: request it with the audience '{keys.issuer.audience}'."
        ) from error
    except jwt.PyJWTError as error:
        raise TokenError(f"The token is not valid: {error}.") from error
    return claims


def _matches(claim: object, pattern: str) -> bool:
    match claim:
        case bool():
            return fnmatchcase(str(claim).lower(), pattern)
        case str() | int():
            return fnmatchcase(str(claim), pattern)
        case list():
            return any(_matches(each, pattern) for each in claim if not isinstance(each, list))
        case _:
            return False


def _is_older(moment: float | None, seconds: float) -> bool:
    return moment is None or time.monotonic() - moment > seconds
