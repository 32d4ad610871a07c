"""An operator's settings in the shell do not reach the tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples.environment import without_settings

ROOT = Path(__file__).parents[2]
OF_AN_OPERATOR = {
    "BESSEMER_DATABASE_URL": "postgresql://operator@127.0.0.1:1/in-use",
    "BESSEMER_ENGINE_URL": "postgresql://operator@127.0.0.1:1/in-use",
    "BESSEMER_ARTIFACTS_URL": "s3://in-use",
    "BESSEMER_DATA": "/in-use",
}


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (OF_AN_OPERATOR, {}),
        ({"BESSEMER_ANYTHING": "1", "PATH": "/bin"}, {"PATH": "/bin"}),
        ({"BESSEMER_SANDBOX": "off", "BESSEMER_SLOT_UID_BASE": "7"}, None),
    ],
)
def test_only_variables_about_the_machine_are_kept(
    given: dict[str, str], left: dict[str, str] | None
) -> None:
    assert without_settings(given) == (given if left is None else left)


def test_the_suite_forgets_an_operators_settings() -> None:
    claim = "tests/unit/test_store_settings.py::test_the_defaults_need_only_a_folder"
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", claim)
    ran = subprocess.run(
        command, cwd=ROOT, env=os.environ | OF_AN_OPERATOR, capture_output=True, text=True, check=False
    )
    assert "1 passed" in ran.stdout, ran.stdout
