"""The files of a gate: its base, and what it keeps for the next one."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from typer.testing import CliRunner

from bessemer.cli.application import application
from bessemer.cli.gate_files import Expected, keep_reference, split_entries
from bessemer.contract.job import REFERENCE
from bessemer.errors import UnreachableError


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("a.py b.py", ["a.py", "b.py"]),
        ("a.py\n  b.py c.py\n", ["a.py", "b.py", "c.py"]),
        ("'my rules.py' b.py", ["my rules.py", "b.py"]),
        ('"my rules.py"\n"x=a b" \'it\\\'s.py\'', ["my rules.py", "x=a b", "it\\'s.py"]),
        ('x="5" y={"a":1}', ['x="5"', 'y={"a":1}']),
        ('"not closed', ['"not', "closed"]),
        ('"a b"c', ['"a', 'b"c']),
        (" \n", []),
        ("", []),
    ],
)
def test_a_variables_entries_are_separated_by_blanks_outside_of_quotes(text: str, entries: list[str]) -> None:
    assert split_entries(text) == entries


def test_a_gate_reads_entries_with_spaces_from_its_variables() -> None:
    ran = CliRunner().invoke(application, ["gate", "net.pt2"], env={"BESSEMER_GATE_LABELS": '"x=a b" x=2'})
    assert (ran.exit_code, "--label x is given twice" in ran.stderr) == (2, True)


class Finished:
    """A job with two entry points, whose reference cannot be downloaded."""

    def __init__(self, *artifacts: str) -> None:
        named = [SimpleNamespace(name=name) for name in artifacts]
        request = SimpleNamespace(entries={"small": None, "large": None})
        self.document = SimpleNamespace(artifacts=named, request=request)

    def download_artifact(self, _name: str, _path: Path) -> None:
        raise UnreachableError("connection reset")


def test_a_failed_download_leaves_the_bases_outputs(tmp_path: Path) -> None:
    kept = tmp_path / "base.npz"
    kept.write_bytes(b"outputs")
    with pytest.raises(UnreachableError):
        keep_reference(cast(Any, Finished(REFERENCE)), tmp_path / "base.json")
    assert kept.read_bytes() == b"outputs"
    keep_reference(cast(Any, Finished()), tmp_path / "base.json")
    assert not kept.exists()


def test_a_damaged_base_is_a_note_for_each_entry_point(tmp_path: Path) -> None:
    path = tmp_path / "base.npz"
    np.savez(path, x=np.zeros(1000))
    path.write_bytes(path.read_bytes()[:500])
    job: Any = Finished()
    job.report = lambda: SimpleNamespace(entries=(), seed=None)
    changes, notes = Expected(path, is_golden=False).compare(job)
    assert changes == {}
    assert [note.split(":")[0] for note in notes] == ["small", "large"]
