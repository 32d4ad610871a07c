"""A CI system's token issuer on loopback: it publishes keys over HTTP and signs tokens."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

AUDIENCE = "bessemer"


class Issuer:
    """One issuer.

    Attributes:
        url: its URL, and the `iss` of its tokens.
        keys: its private keys by id; it publishes all of them.
        fetches: how often the keys were fetched.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.keys = {"first": new_key()}
        self.fetches = 0

    def token(
        self, key_id: str | None = "first", key: Any = None, algorithm: str = "RS256", **claims: Any
    ) -> str:
        """A token for the repository acme/vision, with some claims changed; None removes one."""
        now = int(time.time())
        usual = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "repo:acme/vision:ref:refs/heads/main",
            "iat": now,
            "exp": now + 300,
            "repository": "acme/vision",
            "ref": "refs/heads/main",
        }
        payload = {name: value for name, value in (usual | claims).items() if value is not None}
        headers = {} if key_id is None else {"kid": key_id}
        signer = key or self.keys[key_id or "first"]
        return jwt.encode(payload, signer, algorithm="RS256", headers=headers)

    def document(self, path: str) -> dict[str, Any] | None:
        if path == "/.well-known/openid-configuration":
            return {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
        if path == "/keys":
            self.fetches += 1
            return {"keys": [public_key(key_id, key) for key_id, key in self.keys.items()]}
        return None


def new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def public_key(key_id: str, key: rsa.RSAPrivateKey) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
    return document | {"kid": key_id, "use": "sig", "alg": "RS256"}


@contextmanager
def running_issuer() -> Iterator[Issuer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            document = issuer.document(self.path)
            body = json.dumps(document).encode()
            self.send_response(404 if document is None else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer = Issuer(f"http://127.0.0.1:{server.server_address[1]}")
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
