"""The files of a gate: its base, and what it keeps for the next one."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from bessemer.cli.gate_files import Expected, keep_reference
from bessemer.contract.job import REFERENCE
from bessemer.errors import UnreachableError


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
