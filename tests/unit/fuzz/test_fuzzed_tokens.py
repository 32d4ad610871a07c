"""Only a token that the issuer signed for the service stands for a caller."""

import asyncio
import base64
import json
import time
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from json_values import edited
from mutations import mutated

from app.identity.caller import Caller
from app.identity.oidc import Policy, TokenError, TokenRefusedError, TokenVerifier
from bessemer.contract.access import Scope

pytestmark = [pytest.mark.fuzz, pytest.mark.filterwarnings("ignore")]

URL = "https://ci.example"
RULES = [{"claims": {"repository": "acme/*"}, "tenant": "vision", "scope": "compile"}]
POLICY = Policy.model_validate({"issuers": [{"url": URL, "audience": "bessemer", "rules": RULES}]})
KEY, OTHER_KEY = (Ed25519PrivateKey.from_private_bytes(seed * 32) for seed in (b"1", b"2"))
HEADER = {"alg": "EdDSA", "kid": "first", "typ": "JWT"}
PUBLIC = json.loads(jwt.algorithms.OKPAlgorithm.to_jwk(KEY.public_key())) | {"kid": "first", "alg": "EdDSA"}
DOCUMENTS = {
    "/.well-known/openid-configuration": {"issuer": URL, "jwks_uri": f"{URL}/keys"},
    "/keys": {"keys": [PUBLIC]},
}
CLAIMS = {
    "iss": URL,
    "aud": "bessemer",
    "sub": "repo:acme/vision",
    "iat": int(time.time()),
    "exp": int(time.time()) + 10**6,
    "repository": "acme/vision",
}
HEADERS = edited(st.just(HEADER)) | st.sampled_from([{**HEADER, "alg": "none"}, {**HEADER, "alg": "HS256"}])


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def signed(header: Any, claims: Any, key: Ed25519PrivateKey = KEY) -> str:
    text = f"{encoded(json.dumps(header).encode())}.{encoded(json.dumps(claims).encode())}"
    return f"{text}.{encoded(key.sign(text.encode()))}"


SIGNED = signed(HEADER, CLAIMS)


def caller(token: str) -> Caller | None:
    """The caller of a token; None if it is refused."""

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=DOCUMENTS[request.url.path])

    async def find() -> Caller | None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
            try:
                return await TokenVerifier(POLICY, client).caller(token)
            except (TokenError, TokenRefusedError) as refusal:
                str(refusal).encode()
                return None

    return asyncio.run(find())


def test_the_unchanged_token_is_accepted() -> None:
    assert caller(SIGNED) is not None


@given(st.builds(signed, HEADERS, edited(st.just(CLAIMS))))
def test_a_token_of_the_issuer_stands_for_the_caller_that_the_policy_names(token: str) -> None:
    found = caller(token)
    assert found is None or (found.tenant, found.scope) == ("vision", Scope.COMPILE)


@given(
    st.builds(signed, HEADERS, edited(st.just(CLAIMS)), st.just(OTHER_KEY))
    | mutated(st.just(SIGNED.encode())).map(lambda token: token.decode("latin-1"))
    | st.text(max_size=50)
)
def test_a_token_that_the_issuer_did_not_sign_is_refused(token: str) -> None:
    found = caller(token)
    assert found is None or token.rpartition(".")[0] == SIGNED.rpartition(".")[0]
