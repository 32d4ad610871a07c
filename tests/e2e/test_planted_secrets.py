"""Secrets planted in settings and requests appear in no output, no stored data and no job's process."""

from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path

import httpx
import psutil
import psycopg
from saved_models import Saved

from bessemer.client import Client, Job
from bessemer.contract.access import Scope
from bessemer.contract.keys import KeyRequest
from bessemer.store.settings import StoreSettings
from bessemer.store.store import open_store
from examples.local_postgresql import postgresql_server
from examples.local_service import local_service
from examples.models.save import SavedAs
from tests.integration.malicious_models import malicious_model
from tests.integration.otlp_collector import collecting

DATABASE_PASSWORD = "planted-database-password"
VARIABLES = {
    "AWS_SECRET_ACCESS_KEY": "planted-storage-secret",
    "OTEL_EXPORTER_OTLP_HEADERS": "authorization=planted-collector-token",
    "CI_JOB_TOKEN": "planted-shell-variable",
}
SIGNED_TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJodHRwczovL2NpIn0.planted-signature"
PLANTED = (DATABASE_PASSWORD, "planted-storage", "planted-collector", "planted-shell", "planted-signature")
LOUD = {"BESSEMER_LOG_LEVEL": "debug", "BESSEMER_ACCESS_LOG": "true", "BESSEMER_LOG_FORMAT": "json"}
OPERATORS_PROGRAMS = ("-m\0app", "-m\0worker\0", "-m\0bessemer.cli", "postgres")
PRINTS_WHAT_IT_READS = """
    import glob, sys
    found = dict(os.environ)
    for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
        try:
            found[path] = open(path, "rb").read()
        except OSError as error:
            found[path] = type(error).__name__
    print("the model read", found, file=sys.stderr, flush=True)
"""


def test_no_secret_leaves_the_programs_that_need_it(tmp_path: Path, saved: Saved) -> None:
    telling = tmp_path / "telling.pt"
    telling.write_bytes(malicious_model(PRINTS_WHAT_IT_READS))
    data = tmp_path / "data"
    with postgresql_server() as server, collecting() as collector:
        database = with_password(server.url)
        with closing(open_store(StoreSettings(data=data, database_url=database))) as store:
            key = store.keys.create(KeyRequest(tenant="vision", scope=Scope.ADMIN)).key
        settings = {"BESSEMER_DATABASE_URL": database, "BESSEMER_API_KEY": key, **VARIABLES, **LOUD}
        with (
            local_service(data, settings | collector.environment) as url,
            Client(url, api_key=key) as client,
        ):
            jobs = (
                client.submit(saved.path("mlp", SavedAs.PT2), target="host"),
                client.submit(telling, target="host", inputs={"input": (2, 3)}),
            )
            processes = dict(seen_until_all_end(jobs))
            assert [job.document.verified for job in jobs] == [True, True]
            assert "the model read" in jobs[1].logs()
            misplaced(url, key)
            answers = dict(everything_readable(url, key, [job.id for job in jobs]))
        places = {
            **processes,
            **answers,
            **{str(path): path.read_bytes() for path in data.rglob("*") if path.is_file()},
            **rows(server.url),
            "traces": repr(collector.spans).encode(),
        }
    assert any(name.startswith("process of a job") for name in places)
    secrets = (*PLANTED, key.split("_", 2)[2])
    assert [
        (secret, place) for place, text in places.items() for secret in secrets if secret.encode() in text
    ] == []


def with_password(url: str) -> str:
    """The server's URL with a new user who has a password."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE planted SUPERUSER LOGIN PASSWORD '{DATABASE_PASSWORD}'")
    return url.replace("//postgres@", f"//planted:{DATABASE_PASSWORD}@")


def seen_until_all_end(jobs: tuple[Job, ...]) -> Iterator[tuple[str, bytes]]:
    """The command line of each process below this one; of those that serve jobs also the environment."""
    while not all(job.refresh().state.final for job in jobs):
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error, OSError):
                command = "\0".join((*process.cmdline(), ""))
                if any(program in command for program in OPERATORS_PROGRAMS):
                    yield f"operator's process {process.pid}", command.encode()
                else:
                    environment = Path(f"/proc/{process.pid}/environ").read_bytes()
                    yield f"process of a job {process.pid}", command.encode() + b"\0" + environment


def misplaced(url: str, key: str) -> None:
    """Send secrets where they do not belong."""
    with httpx.Client(base_url=url, timeout=30) as api:
        for authorization in (f"Bearer {SIGNED_TOKEN}", f"Bearer {key}x", f"Basic {key}", key):
            assert api.get("/v1/models", headers={"Authorization": authorization}).status_code == 401
        api.headers["Authorization"] = f"Bearer {key}"
        for path in (f"/{key}", f"/v1/compilations/{key}", f"/v1/models?name={key}", f"/v1/keys/{key}"):
            api.get(path)
            api.delete(path)


def everything_readable(url: str, key: str, jobs: list[str]) -> Iterator[tuple[str, bytes]]:
    """The answer, with its head, of every route that reads."""
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=30) as api:
        routes = api.get("/openapi.json").json()["paths"]
        for job in jobs:
            document = api.get(f"/v1/compilations/{job}").json()
            known = {"{id}": job, "{digest}": document["request"]["model"]}
            paths = {
                filled(route, known | {"{name}": artifact["name"]})
                for artifact in document["artifacts"]
                for route, methods in routes.items()
                if "get" in methods
            }
            for path in paths:
                answer = api.get(path)
                yield f"answer of {path}", repr(answer.headers).encode() + answer.content


def filled(route: str, known: Mapping[str, str]) -> str:
    for name, value in known.items():
        route = route.replace(name, value)
    return route.replace("{step}", "1")


def rows(url: str) -> dict[str, bytes]:
    """Every row of every table."""
    with psycopg.connect(url) as connection:
        tables = connection.execute(
            "SELECT quote_ident(table_schema) || '.' || quote_ident(table_name) "
            "FROM information_schema.tables WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"
        ).fetchall()
        return {
            f"table {table}": repr(connection.execute(f"SELECT * FROM {table}").fetchall()).encode()
            for (table,) in tables
        }
