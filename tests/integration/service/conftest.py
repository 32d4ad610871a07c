"""All bad input at once: the rows wait in the queue of one worker."""

from collections.abc import Iterator

import httpx
import pytest
from refusals import REFUSALS
from submitting import Answer, answer_of, ask, upload


@pytest.fixture(scope="session")
def api(service: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def answers(api: httpx.Client) -> dict[str, Answer]:
    """The answer to every row of the table."""
    uploads = {name: upload(api, row) for name, row in REFUSALS.items()}
    replies = {name: ask(api, REFUSALS[name], reply) for name, reply in uploads.items()}
    return {name: answer_of(api, reply) for name, reply in replies.items()}
