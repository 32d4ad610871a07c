"""Tokens of GitHub Actions instead of a stored API key: they live for minutes, so the client renews them."""

import base64
import json
import os
import time
from collections.abc import AsyncGenerator, Generator

import httpx

from bessemer.errors import InvalidArgumentError

AUDIENCE_VARIABLE = "BESSEMER_OIDC_AUDIENCE"
REQUEST_URL_VARIABLE = "ACTIONS_ID_TOKEN_REQUEST_URL"
REQUEST_TOKEN_VARIABLE = "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
RENEW_SECONDS = 60.0
"""How long before its end a token is renewed."""


class GitHubToken(httpx.Auth):
    """Adds a valid token to each request.

    Args:
        url: the URL that issues tokens.
        request_token: the bearer token for that URL.
        audience: the audience that the server expects.
    """

    def __init__(self, url: str, request_token: str, audience: str) -> None:
        self._asking = httpx.Request(
            "GET",
            httpx.URL(url).copy_merge_params({"audience": audience}),
            headers={"Authorization": f"Bearer {request_token}"},
        )
        self._token = ""
        self._ends = 0.0

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Send a request, after another for a new token if needed."""
        if time.time() > self._ends - RENEW_SECONDS:
            response = yield self._asking
            response.read()
            self._keep(response)
        yield self._signed(request)

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """As ``sync_auth_flow``."""
        if time.time() > self._ends - RENEW_SECONDS:
            response = yield self._asking
            await response.aread()
            self._keep(response)
        yield self._signed(request)

    def _keep(self, response: httpx.Response) -> None:
        if response.is_server_error or response.status_code == httpx.codes.TOO_MANY_REQUESTS:
            raise httpx.RequestError(
                f"GitHub Actions gave no token: status {response.status_code}", request=response.request
            )
        try:
            self._token = response.raise_for_status().json()["value"]
            payload = self._token.split(".")[1]
            claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
            self._ends = float(claims["exp"])
        except (httpx.HTTPStatusError, ValueError, LookupError, TypeError) as error:
            raise InvalidArgumentError(f"GitHub Actions gave no token: {error}") from error

    def _signed(self, request: httpx.Request) -> httpx.Request:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def token_of_environment() -> GitHubToken | None:
    """The tokens that this step of a workflow may request; None without ``BESSEMER_OIDC_AUDIENCE``.

    Raises:
        InvalidArgumentError: the workflow does not have the permission.
    """
    audience = os.environ.get(AUDIENCE_VARIABLE)
    if not audience:
        return None
    url, request_token = os.environ.get(REQUEST_URL_VARIABLE), os.environ.get(REQUEST_TOKEN_VARIABLE)
    if not url or not request_token:
        raise InvalidArgumentError(
            f"{AUDIENCE_VARIABLE} is set, but this is not a workflow of GitHub Actions with the permission "
            "`id-token: write`"
        )
    return GitHubToken(url, request_token, audience)
