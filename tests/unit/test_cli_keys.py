"""``bessemer keys`` on a folder's database."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from bessemer.cli.application import application

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
