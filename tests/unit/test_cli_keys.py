"""``bessemer keys`` on a folder's database."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from bessemer.cli.application import application
from bessemer.store.database import Database
from bessemer.store.rows.audit import Audit
from bessemer.store.settings import StoreSettings

REFUSED = {
    "a tenant's name": (["--tenant", "Vision"], "'Vision' is not a tenant's name"),
    "a blank name": (["--name", " "], "name: a name must have only printable characters"),
    "too many days": (["--expires-days", "5000"], "expires_days: expected at most 3650"),
    "a name that mentions tenants": (["--name", "tenant\n"], "name: a name must have only printable"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_key_is_explained_in_one_line(case: str, tmp_path: Path) -> None:
    arguments, reason = REFUSED[case]
    result = CliRunner().invoke(application, ["keys", "create", *arguments, "--data", str(tmp_path / "data")])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert reason in result.stderr


def test_a_key_of_a_new_folder_comes_with_a_note(tmp_path: Path) -> None:
    for says in (True, False):
        ran = CliRunner().invoke(application, ["keys", "create", "--data", str(tmp_path / "new")])
        assert ran.exit_code == 0
        assert ran.stdout.startswith("bsm_") and ran.stdout.count("\n") == 1
        assert (f"bessemer serve --data {tmp_path / 'new'}" in ran.stderr) == says


@pytest.mark.parametrize("scope", ["compile", "admin"])
def test_the_first_key_comes_with_a_note_that_the_service_now_asks_for_keys(
    scope: str, tmp_path: Path
) -> None:
    create = ["keys", "create", "--scope", scope, "--data", str(tmp_path)]
    first, second = (CliRunner().invoke(application, create) for _ in range(2))
    assert "this is the first key. From now on, the service asks every caller for a key" in first.stderr
    assert ("create one next with `bessemer keys create --scope admin`" in first.stderr) == (scope != "admin")
    assert (second.exit_code, second.stderr) == (0, "")


def test_revoking_a_key_says_so(tmp_path: Path) -> None:
    key = CliRunner().invoke(application, ["keys", "create", "--data", str(tmp_path)]).stdout.strip()
    revoked = CliRunner().invoke(application, ["keys", "revoke", key, "--data", str(tmp_path)])
    assert (revoked.exit_code, revoked.stdout) == (0, "")
    assert revoked.stderr == f"{key.split('_')[1]}: revoked\n"


def test_revoking_a_key_again_succeeds_and_is_not_audited(tmp_path: Path) -> None:
    key = CliRunner().invoke(application, ["keys", "create", "--data", str(tmp_path)]).stdout.strip()
    revoke = ["keys", "revoke", key, "--data", str(tmp_path)]
    _, again = (CliRunner().invoke(application, revoke) for _ in range(2))
    assert (again.exit_code, again.stderr) == (0, f"{key.split('_')[1]}: already revoked\n")
    database = Database(StoreSettings(data=tmp_path).database)
    actions = [entry.action for entry in Audit(database).page(10).items]
    database.close()
    assert actions == ["keys revoke", "keys create"]


@pytest.mark.parametrize("command", ["revoke", "rotate"])
def test_an_absent_key_is_not_found_like_any_other_resource(command: str, tmp_path: Path) -> None:
    CliRunner().invoke(application, ["keys", "create", "--data", str(tmp_path)])
    ran = CliRunner().invoke(application, ["keys", command, "zzz", "--data", str(tmp_path)])
    assert ran.exit_code == 1
    assert "key 'zzz' not found" in ran.stderr
