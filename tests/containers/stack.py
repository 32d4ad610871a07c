"""The compose file, brought up under a project name of its own."""

import json
import os
import secrets
import shutil
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from examples.environment import without_settings

ROOT = Path(__file__).parents[2]
NO_SETTINGS = Path(__file__).parent / "empty.env"
PROJECT = "bessemer-test"
VERSION = "latest"
IMAGES = ("bessemer-app", "bessemer-worker", "bessemer-device")
LABEL = f"label=com.docker.compose.project={PROJECT}"
KINDS = ("container", "volume", "network")

NO_ENGINE = """\
no container engine answers: {reason}
These tests need docker with BuildKit, and docker compose: start the engine, or set DOCKER_HOST.
On a Debian machine that reaches no image registry: ci/containers/offline make test-containers"""


def missing() -> str | None:
    """What these tests miss on this machine, or None."""
    if shutil.which("docker") is None:
        return NO_ENGINE.format(reason="there is no docker command")
    found = subprocess.run(["docker", "version"], capture_output=True, text=True)
    if found.returncode:
        return NO_ENGINE.format(reason=found.stderr.strip().splitlines()[-1])
    if _compose_command() is None:
        return NO_ENGINE.format(reason="there is neither `docker compose` nor `docker-compose`")
    return None


def docker(*arguments: str) -> str:
    """The output of a docker command."""
    return subprocess.run(["docker", *arguments], check=True, capture_output=True, text=True).stdout.strip()


def inspect(kind: str, name: str) -> dict[str, Any]:
    """The engine's description of an image or a container."""
    (found,) = json.loads(docker(kind, "inspect", name))
    return dict(found)


@dataclass(frozen=True)
class Stack:
    """The service as containers, with new secrets and a new port each time."""

    port: int = field(default_factory=lambda: _free_port())
    password: str = field(default_factory=lambda: secrets.token_hex(16))
    key: str = field(default_factory=lambda: f"bsm_{secrets.token_hex(6)}_{secrets.token_hex(32)}")

    @property
    def url(self) -> str:
        """The URL of the app."""
        return f"http://127.0.0.1:{self.port}"

    def compose(self, *arguments: str) -> str:
        """The output of a compose command.

        COMPOSE_FILE may name further files. Neither ``.env`` nor ``docker-compose.override.yml`` is read.
        """
        environment = {
            "COMPOSE_FILE": "docker-compose.yml",
            **without_settings(os.environ),
            "COMPOSE_PROJECT_NAME": PROJECT,
            "COMPOSE_PROFILES": "",
            "BESSEMER_VERSION": VERSION,
            "BESSEMER_LISTEN": f"127.0.0.1:{self.port}",
            "POSTGRES_PASSWORD": self.password,
            "OBJECTS_SECRET_KEY": self.password,
            "BESSEMER_ADMIN_KEY": self.key,
        }
        command = [*(_compose_command() or ()), "--env-file", str(NO_SETTINGS), *arguments]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(command)}:\n{done.stderr}"
        return done.stdout.strip()

    def down(self) -> None:
        """Stop everything and remove it, volumes too."""
        self.compose("down", "--volumes", "--remove-orphans")

    def containers(self, service: str) -> tuple[str, ...]:
        """The ids of a service's containers."""
        return tuple(self.compose("ps", "--quiet", service).split())

    def left(self) -> dict[str, list[str]]:
        """The project's remaining resources in the engine, by kind."""
        found = {
            "container": docker("container", "ls", "--all", "--quiet", "--filter", LABEL),
            "volume": docker("volume", "ls", "--quiet", "--filter", LABEL),
            "network": docker("network", "ls", "--quiet", "--filter", LABEL),
        }
        return {kind: names.split() for kind, names in found.items() if names}


def _compose_command() -> tuple[str, ...] | None:
    if subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0:
        return ("docker", "compose")
    return ("docker-compose",) if shutil.which("docker-compose") else None


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
