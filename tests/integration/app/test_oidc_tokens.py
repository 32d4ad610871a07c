import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from oidc_issuer import AUDIENCE, Issuer, new_key, running_issuer

from app.identity.caller import Caller
from app.identity.oidc import (
    IssuerUnavailableError,
    Policy,
    PolicyError,
    TokenError,
    TokenRefusedError,
    TokenVerifier,
    read_policy,
)
from bessemer.contract.access import Scope

RULES = [
    {"claims": {"repository": "acme/vision", "ref": "refs/heads/*"}, "tenant": "vision", "scope": "compile"},
    {"claims": {"repository": "acme/*"}, "tenant": "guests", "scope": "read"},
]


@pytest_asyncio.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient() as client:
        yield client


def policy_of(issuer: Issuer) -> Policy:
    return Policy.model_validate({"issuers": [{"url": issuer.url, "audience": AUDIENCE, "rules": RULES}]})


def with_header(issuer: Issuer, header: dict[str, str], secret: bytes) -> str:
    """A token that no library signs: with another header, and an HMAC or no signature."""
    payload = issuer.token().split(".")[1]
    text = f"{encoded(json.dumps(header).encode())}.{payload}"
    signature = hmac.new(secret, text.encode(), hashlib.sha256).digest() if secret else b""
    return f"{text}.{encoded(signature)}"


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def unsigned(issuer: Issuer) -> str:
    return with_header(issuer, {"alg": "none", "kid": "first"}, b"")


def signed_with_the_public_key(issuer: Issuer) -> str:
    public = issuer.keys["first"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return with_header(issuer, {"alg": "HS256", "kid": "first"}, public)


def tampered(issuer: Issuer) -> str:
    header, _, signature = issuer.token(repository="evil/fork").split(".")
    return f"{header}.{issuer.token().split('.')[1]}.{signature}"


INVALID: dict[str, tuple[Callable[[Issuer], str], str]] = {
    "for another audience": (lambda it: it.token(aud="other"), "audience 'bessemer'"),
    "without an audience": (lambda it: it.token(aud=None), "aud"),
    "expired": (lambda it: it.token(exp=int(time.time()) - 60), "expired"),
    "that never expires": (lambda it: it.token(exp=None), "exp"),
    "not valid yet": (lambda it: it.token(nbf=int(time.time()) + 300), "not yet valid"),
    "signed by an unknown key": (lambda it: it.token("second", new_key()), "does not publish"),
    "that names no key": (lambda it: it.token(None), "does not name the key"),
    "signed by another key of the same name": (lambda it: it.token("first", new_key()), "Signature"),
    "without a signature": (unsigned, "not signed"),
    "signed with the public key": (signed_with_the_public_key, "not signed"),
    "with changed claims": (tampered, "Signature"),
    "of another issuer": (lambda it: it.token(iss="https://evil.example"), "issuer"),
    "of an issuer that is a list": (lambda it: it.token().replace(".", ".x", 1), "not a JSON Web Token"),
    "that is no token": (lambda _: "eyJ.x.y", "not a JSON Web Token"),
    "that is too long": (lambda it: it.token(padding="x" * 20_000), "too long"),
}


@pytest.mark.parametrize("case", INVALID)
async def test_a_token_is_refused(case: str, issuer: Issuer, client: httpx.AsyncClient) -> None:
    make, reason = INVALID[case]
    with pytest.raises(TokenError, match=reason):
        await TokenVerifier(policy_of(issuer), client).caller(make(issuer))


@pytest.mark.parametrize(
    ("claims", "tenant", "scope"),
    [
        ({}, "vision", Scope.COMPILE),
        ({"ref": "refs/pull/7/merge"}, "guests", Scope.READ),
        ({"repository": "acme/audio"}, "guests", Scope.READ),
        ({"aud": ["other", AUDIENCE]}, "vision", Scope.COMPILE),
    ],
)
async def test_the_first_rule_that_matches_names_the_tenant(
    claims: dict[str, str], tenant: str, scope: Scope, issuer: Issuer, client: httpx.AsyncClient
) -> None:
    caller = await TokenVerifier(policy_of(issuer), client).caller(issuer.token(**claims))
    assert caller == Caller("oidc:repo:acme/vision:ref:refs/heads/main", tenant, scope)


async def test_a_token_that_no_rule_matches_is_refused_with_its_claims(
    issuer: Issuer, client: httpx.AsyncClient
) -> None:
    with pytest.raises(TokenRefusedError, match="repository='evil/fork'"):
        await TokenVerifier(policy_of(issuer), client).caller(issuer.token(repository="evil/fork"))


async def test_keys_are_fetched_once_and_again_when_they_rotate(
    issuer: Issuer, client: httpx.AsyncClient
) -> None:
    verifier = TokenVerifier(policy_of(issuer), client, refetch_seconds=0.0)
    for _ in range(3):
        await verifier.caller(issuer.token())
    assert issuer.fetches == 1
    old = issuer.token()
    issuer.keys = {"second": new_key()}
    await verifier.caller(issuer.token("second"))
    assert issuer.fetches == 2
    with pytest.raises(TokenError, match="does not publish"):
        await verifier.caller(old)


async def test_unknown_keys_do_not_cause_a_fetch_each(issuer: Issuer, client: httpx.AsyncClient) -> None:
    verifier = TokenVerifier(policy_of(issuer), client)
    for number in range(5):
        with pytest.raises(TokenError):
            await verifier.caller(issuer.token(f"unknown-{number}", new_key()))
    assert issuer.fetches == 1


async def test_known_keys_serve_while_the_issuer_is_away(client: httpx.AsyncClient) -> None:
    with running_issuer() as issuer:
        verifier = TokenVerifier(policy_of(issuer), client, refetch_seconds=0.0)
        await verifier.caller(issuer.token())
    with pytest.raises(TokenError, match="does not publish"):
        await verifier.caller(issuer.token("second", new_key()))
    await verifier.caller(issuer.token())


async def test_a_known_key_does_not_wait_for_a_fetch_of_an_unknown_one(issuer: Issuer) -> None:
    stalled, ended = asyncio.Event(), asyncio.Event()

    async def answer(request: httpx.Request) -> httpx.Response:
        if issuer.fetches:
            stalled.set()
            await ended.wait()
        return httpx.Response(200, json=issuer.document(request.url.path))

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        verifier = TokenVerifier(policy_of(issuer), client, refetch_seconds=0.0)
        await verifier.caller(issuer.token())
        unknown = asyncio.create_task(verifier.caller(issuer.token("unknown", new_key())))
        await stalled.wait()
        async with asyncio.timeout(5):
            assert (await verifier.caller(issuer.token())).tenant == "vision"
        ended.set()
        with pytest.raises(TokenError, match="does not publish"):
            await unknown


async def test_a_discovery_document_with_a_bad_url_makes_the_issuer_unavailable(issuer: Issuer) -> None:
    document = {"issuer": issuer.url, "jwks_uri": "https://ci.example/\0"}
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=document))
    async with httpx.AsyncClient(transport=transport) as client:
        with pytest.raises(IssuerUnavailableError):
            await TokenVerifier(policy_of(issuer), client).caller(issuer.token())


async def test_an_issuer_that_was_never_reached_is_unavailable(client: httpx.AsyncClient) -> None:
    with running_issuer() as issuer:
        pass
    with pytest.raises(IssuerUnavailableError):
        await TokenVerifier(policy_of(issuer), client).caller(issuer.token())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "issuers"),
        ("issuers = 1", "issuers"),
        ("[[issuers]]\nurl = 'http://ci.example'\naudience = 'x'\nrules = []", "https://"),
        ("[[issuers]]\nurl = 'https://ci.example'\naudience = 'x'\nrules = []", "rules"),
        (
            "[[issuers]]\nurl = 'https://ci.example'\naudience = 'x'\nrules = [{claims = {}, tenant = 'a'}]",
            "claims",
        ),
        (
            "[[issuers]]\nurl='https://ci.example'\naudience='x'\nrules=[{claims={a='b'}, tenant='A B'}]",
            "tenant",
        ),
        ("not toml", "="),
    ],
)
def test_a_policy_that_cannot_be_used_is_named_with_its_fault(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(PolicyError, match=reason):
        read_policy(path)
