"""docker-compose.yml and the images' health check, without a container engine."""

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic_settings import BaseSettings

from app.settings import AppSettings
from bessemer.store.settings import StoreSettings
from bessemer.telemetry.logs import LogSettings
from worker.settings import WorkerSettings

ROOT = Path(__file__).parents[2]
COMPOSE = (ROOT / "docker-compose.yml").read_text()
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE)["services"]
PAGE = (ROOT / "docs" / "containers.md").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
VARIABLE = r"\b(?:BESSEMER|OTEL)_[A-Z_]+\b"
SETTINGS: dict[str, tuple[type[BaseSettings], ...]] = {
    "app": (StoreSettings, LogSettings, AppSettings),
    "worker": (StoreSettings, LogSettings, WorkerSettings),
}


def variables(service: str) -> set[str]:
    return {
        (settings.model_config.get("env_prefix", "") + name).upper()
        for settings in SETTINGS[service]
        for name in settings.model_fields
    }


def handed_on(service: str) -> set[str]:
    """Variables that a service gets from .env: those without a value or with a reference to themselves."""
    environment: dict[str, str | None] = SERVICES[service]["environment"]
    return {
        name
        for name, value in environment.items()
        if value is None or value.startswith((f"${{{name}:-", f"${{{name}:?"))
    }


@pytest.mark.parametrize("service", SETTINGS)
def test_a_setting_is_passed_on_or_documented_as_fixed(service: str) -> None:
    (row,) = re.findall(r"^\| everything else \|.*$", PAGE, re.MULTILINE)
    decided = set(re.findall(VARIABLE, row))
    assert variables(service) - handed_on(service) == decided & variables(service)


def test_every_variable_that_the_page_names_does_something() -> None:
    read = set(re.findall(r"\$\{([A-Z_]+)", COMPOSE)) | set.union(*map(handed_on, SETTINGS))
    decided = {name for service in SETTINGS for name in SERVICES[service]["environment"]}
    images = set(re.findall(VARIABLE, DOCKERFILE)) | {"BESSEMER_WORKER_ID", "BESSEMER_API_KEY"}
    assert set(re.findall(VARIABLE, PAGE)) - read - decided - images == set()


def test_only_services_that_need_a_secret_get_it() -> None:
    for secret, services in {
        "POSTGRES_PASSWORD": {"app", "worker", "database"},
        "OBJECTS_SECRET_KEY": {"app", "worker", "objects"},
        "BESSEMER_ADMIN_KEY": {"app", "prometheus"},
    }.items():
        assert {name for name, service in SERVICES.items() if secret in str(service)} == services
    assert "env_file" not in COMPOSE


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_is_bounded_and_confined(service: str) -> None:
    has = SERVICES[service]
    assert set(has["logging"]["options"]) == {"max-size", "max-file"}
    assert has["mem_limit"] == has["memswap_limit"] and has["pids_limit"] > 0
    assert has["read_only"] and has["cap_drop"] == ["ALL"]
    assert has["security_opt"] == ["no-new-privileges:true"]
    assert has["restart"] == "unless-stopped"


def test_files_the_dockerfile_copies_are_not_ignored() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--)(.*) \S+$", DOCKERFILE, re.MULTILINE)
    assert {source for sources in copied for source in sources.split()} - kept == set()


class _Answering(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response({"/healthz": 200}.get(self.path, 503))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Suppress the log."""


@pytest.fixture
def port() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), _Answering) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def health(port: int, path: str) -> int:
    command = [ROOT / "ci" / "containers" / "answers", "BESSEMER_PORT", path]
    environment = {**os.environ, "BESSEMER_PORT": str(port)}
    return subprocess.run(command, env=environment, capture_output=True, check=False, timeout=10).returncode


def test_the_health_check_is_whether_200_is_answered(port: int) -> None:
    assert [health(port, "/healthz"), health(port, "/readyz")] == [0, 1]


def test_without_a_listener_the_health_check_fails() -> None:
    with HTTPServer(("127.0.0.1", 0), _Answering) as gone:
        unused = gone.server_port
    assert health(unused, "/healthz") == 1


def test_both_images_check_an_address_their_program_serves() -> None:
    asked = re.findall(r'^HEALTHCHECK .* CMD \["answers", "(\w+)", "(\S+)"\]$', DOCKERFILE, re.MULTILINE)
    assert asked == [("BESSEMER_PORT", "/healthz"), ("BESSEMER_METRICS_PORT", "/readyz")]
