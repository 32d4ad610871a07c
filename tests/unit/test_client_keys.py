"""How the client proves who it is."""

import asyncio
import base64
import json
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from bessemer.client import AsyncClient, Client
from bessemer.client.ci_token import RENEW_SECONDS
from bessemer.errors import InvalidArgumentError, UnreachableError

KEY = "bsm_00000000000a_" + "a" * 43
ISSUER = "http://127.0.0.1:9/token?v=1"


def token(seconds: float) -> str:
    payload = (
        base64.urlsafe_b64encode(json.dumps({"exp": time.time() + seconds}).encode()).decode().rstrip("=")
    )
    return f"header.{payload}.signature"


class Server:
    """Answers the server's and GitHub's requests, and keeps them."""

    def __init__(self, token_seconds: float = 300, refusals: int = 0) -> None:
        self.seen: list[httpx.Request] = []
        self.token = token(token_seconds)
        self.refusals = refusals

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        if request.url.path == "/token" and self.refusals:
            self.refusals -= 1
            return httpx.Response(502)
        if request.url.path == "/token":
            return httpx.Response(200, json={"value": self.token})
        return httpx.Response(200, json={"items": [], "next": None})

    @property
    def keys(self) -> list[str | None]:
        return [request.headers.get("authorization") for request in self.seen]


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BESSEMER_API_KEY", "BESSEMER_API_KEY_FILE", "BESSEMER_OIDC_AUDIENCE"):
        monkeypatch.delenv(name, raising=False)


def list_models(server: Server, key: str | None = None, times: int = 1) -> None:
    with Client("http://localhost", transport=httpx.MockTransport(server), api_key=key) as client:
        for _ in range(times):
            list(client.models())


def from_file(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    (folder / "key").write_text(f"{KEY}\n")
    monkeypatch.setenv("BESSEMER_API_KEY_FILE", str(folder / "key"))


@pytest.mark.parametrize(
    ("prepare", "given", "sent"),
    [
        (lambda _monkeypatch, _folder: None, None, None),
        (lambda _monkeypatch, _folder: None, KEY, f"Bearer {KEY}"),
        (lambda monkeypatch, _folder: monkeypatch.setenv("BESSEMER_API_KEY", KEY), None, f"Bearer {KEY}"),
        (from_file, None, f"Bearer {KEY}"),
    ],
    ids=["no key", "an argument", "a variable", "a file"],
)
def test_the_client_sends_its_key(
    prepare: Callable[[pytest.MonkeyPatch, Path], None],
    given: str | None,
    sent: str | None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    prepare(monkeypatch, tmp_path)
    server = Server()
    list_models(server, given)
    assert server.keys == [sent]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BESSEMER_API_KEY", "two words"),
        ("BESSEMER_API_KEY_FILE", "/not/there"),
        ("BESSEMER_OIDC_AUDIENCE", "bessemer"),
    ],
)
def test_a_key_that_cannot_be_sent_is_refused(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidArgumentError):
        Client("http://localhost")


@pytest.fixture
def workflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BESSEMER_OIDC_AUDIENCE", "bessemer")
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_URL", ISSUER)
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "step")


@pytest.mark.usefixtures("workflow")
@pytest.mark.parametrize(("seconds", "asked"), [(300, 1), (RENEW_SECONDS - 1, 3)])
def test_a_workflow_asks_for_tokens_and_renews_them(seconds: float, asked: int) -> None:
    server = Server(seconds)
    list_models(server, times=3)
    asking = [request for request in server.seen if request.url.path == "/token"]
    assert len(asking) == asked
    assert str(asking[0].url) == f"{ISSUER}&audience=bessemer"
    assert asking[0].headers["authorization"] == "Bearer step"
    assert server.keys.count(f"Bearer {server.token}") == 3


@pytest.mark.usefixtures("workflow")
def test_a_token_that_github_does_not_give_at_once_is_asked_for_again() -> None:
    server = Server(refusals=2)
    list_models(server)
    assert server.keys == ["Bearer step"] * 3 + [f"Bearer {server.token}"]
    with pytest.raises(UnreachableError, match="GitHub Actions gave no token: status 502"):
        list_models(Server(refusals=9))


@pytest.mark.usefixtures("workflow")
def test_the_asynchronous_client_does_the_same() -> None:
    server = Server()

    async def list_them() -> None:
        async with AsyncClient("http://localhost", transport=httpx.MockTransport(server)) as client:
            async for _ in client.models():
                pass

    asyncio.run(list_them())
    assert server.keys == ["Bearer step", f"Bearer {server.token}"]
