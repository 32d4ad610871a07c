"""TorchScript runs no Python, but some of its operators read and write files."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from worker_samples import submit

from bessemer.contract.job import JobState
from tests.tenant_data import own

Rig = Any


class Reads(nn.Module):
    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def forward(self, input: Tensor) -> Tensor:
        return input + torch.from_file(self.path, False, 8, dtype=torch.uint8)


class Writes(nn.Module):
    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def forward(self, input: Tensor) -> Tensor:
        return input + torch.from_file(self.path, True, 8, dtype=torch.uint8)


@pytest.mark.parametrize(("kind", "name"), [(Reads, "secret"), (Writes, "planted")])
def test_a_script_reads_and_writes_nothing_outside_its_folder(
    rig: Rig, tmp_path: Path, kind: type[nn.Module], name: str
) -> None:
    tmp_path.chmod(0o777)
    (tmp_path / "secret").write_text("the key!")
    script = torch.jit.script(kind(str(tmp_path / name)))
    assert script(torch.zeros(8)).shape == (8,), "the attack is real"
    (tmp_path / "planted").unlink(missing_ok=True)
    torch.jit.save(script, tmp_path / "model")
    digest = own(rig.store).artifacts.put_file(tmp_path / "model").digest
    row = rig.handle(submit(rig.store, f"script-{name}", digest))
    assert row.state is JobState.FAILED
    assert "ermission denied" in row.problem.detail
    assert not (tmp_path / "planted").exists()
