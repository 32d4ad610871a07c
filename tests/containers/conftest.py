"""Builds the images, brings the compose file up and takes it down, for `make test-containers`."""

import os
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from bessemer.client import Client
from bessemer.errors import BessemerError
from tests.containers.stack import IMAGES, ROOT, VERSION, Stack, docker, inspect, missing

START_SECONDS = 300.0
POLL_SECONDS = 0.1
FIGURES = pytest.StashKey[list[str]]()


@dataclass(frozen=True)
class Started:
    """A stack whose app and workers are up."""

    stack: Stack
    client: Client


def pytest_sessionstart(session: pytest.Session) -> None:
    if (reason := missing()) is not None:
        pytest.exit(reason, returncode=3)
    session.config.stash[FIGURES] = []


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    terminalreporter.section("sizes and start times")
    for line in config.stash[FIGURES]:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def figures(request: pytest.FixtureRequest) -> list[str]:
    """Lines to print at the end of the run."""
    return request.config.stash[FIGURES]


@pytest.fixture(scope="session")
def images(figures: list[str]) -> tuple[str, ...]:
    """All images, built from the working tree unless IMAGES_BUILT is set."""
    if "IMAGES_BUILT" not in os.environ:
        environment = {**os.environ, "BESSEMER_VERSION": VERSION}
        subprocess.run([ROOT / "ci" / "containers" / "build"], check=True, env=environment)
    figures.extend(f"{image}: {int(inspect('image', image)['Size']) / 2**20:.0f} MiB" for image in IMAGES)
    return IMAGES


@pytest.fixture(scope="session")
def started(images: tuple[str, ...], figures: list[str]) -> Iterator[Started]:
    """The compose file, up, with two workers alive."""
    stack = Stack()
    stack.down()
    try:
        stack.compose("up", "--detach", "--no-build")
        with Client(stack.url, api_key=stack.key) as client:
            _wait_until_up(stack, client, figures)
            yield Started(stack, client)
    finally:
        stack.down()


def _wait_until_up(stack: Stack, client: Client, figures: list[str]) -> None:
    deadline = time.monotonic() + START_SECONDS
    (app,) = stack.containers("app")
    while workers_alive(client) is None and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    figures.append(f"app: answers {_since_start(app):.1f} s after its container's start")
    seen: set[str] = set()
    while len(seen) < 2 and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        new = (workers_alive(client) or set()) - seen
        figures.extend(
            f"worker: takes jobs {_since_start(host):.1f} s after its container's start" for host in new
        )
        seen |= new
    assert len(seen) == 2, stack.compose("logs", "--tail", "30")


def workers_alive(client: Client) -> set[str] | None:
    """The hosts of live workers (short container ids), or None without an answer."""
    try:
        return {worker.host for worker in client.readiness().workers}
    except BessemerError:
        return None


def wait_until_healthy(containers: Iterable[str]) -> None:
    """Wait until every health check passes."""
    deadline = time.monotonic() + START_SECONDS
    for container in containers:
        while (health := inspect("container", container)["State"]["Health"])["Status"] != "healthy":
            assert time.monotonic() < deadline, health["Log"][-1:]
            time.sleep(POLL_SECONDS)


def _since_start(container: str) -> float:
    """Seconds since a container was started."""
    started = datetime.fromisoformat(
        docker("inspect", "--format", "{{.State.StartedAt}}", container)[:26] + "+00:00"
    )
    return (datetime.now(UTC) - started).total_seconds()
