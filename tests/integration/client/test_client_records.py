"""Tuning records by the client and the command line."""

import json
from pathlib import Path

import pytest
from test_cli_server import bessemer

from bessemer.client import Client
from bessemer.errors import InvalidArgumentError, RequestRefusedError

WORKLOADS = '["1844530", "AgAAAAAAAAB7fQ=="]\n'
RECORD = '[0, [[[], []], [1e-5], {"kind": "llvm", "mcpu": "znver4", "num-cores": 4}, []]]\n'


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A bundle with two records, of which one failed."""
    folder = tmp_path / "bundle" / "records"
    folder.mkdir(parents=True)
    (folder / "database_workload.json").write_text(WORKLOADS)
    (folder / "database_tuning_record.json").write_text(RECORD + RECORD.replace("[1e-5]", "null"))
    return folder.parent


def test_the_client_imports_lists_exports_and_deletes(client: Client, database: Path, tmp_path: Path) -> None:
    imported = client.import_records(database, shared=True)
    assert (imported.imported, imported.functions, imported.failed) == (1, 1, 1)
    (record,) = client.records(target="znver4", won=False)
    assert (record.threads, record.seconds, record.shared) == (4, 1e-5, True)
    assert list(client.records(won=True)) == []
    assert client.export_records(tmp_path / "out", threads=4) == 1
    assert json.loads((tmp_path / "out" / "database_tuning_record.json").read_text()) == json.loads(RECORD)
    assert client.import_records(tmp_path / "out").imported == 1
    assert client.delete_records(workload="2").deleted == 0
    assert client.delete_records().deleted == 1


def test_files_that_are_missing_or_wrong_are_refused(client: Client, database: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="does not contain"):
        client.import_records(tmp_path)
    (database / "records" / "database_workload.json").write_text("{")
    with pytest.raises(RequestRefusedError, match=r"database_workload\.json, line 1"):
        client.import_records(database)


def test_the_command_line_does_the_same(server: str, database: Path, tmp_path: Path) -> None:
    def run(*arguments: str | Path) -> str:
        done = bessemer(server, "records", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("import", database) == "1 records of 1 functions; left out 1 without times\n"
    assert "x86_64 znver4" in run("list", "--target", "znver4")
    assert json.loads(run("list", "--json"))["items"][0]["workload"] == "1844530"
    assert run("export", tmp_path / "out").endswith("out: 1 records\n")
    assert bessemer(server, "records", "delete").returncode == 2
    assert run("delete", "--all") == "1 records deleted\n"
    assert run("list") == "no records\n"
    missing = bessemer(server, "records", "model")
    assert missing.returncode != 0
    assert "No cost model has learned from your searches yet" in missing.stderr
