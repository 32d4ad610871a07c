"""A pipeline's gate against a whole service: the base's inputs run through a new library."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parents[2]


class Net(torch.nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = torch.nn.Linear(width, 64), torch.nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(x)))


class Named(Net):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:  # type: ignore[override]
        return {"logits": super().forward(x)}


class FourTimes(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        runs = [super(FourTimes, self).forward(factor * x) for factor in (1, 2, 3, 4)]
        return torch.stack(runs).sum(0)


class Drawing(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + torch.rand(10)


def with_zeros() -> Net:
    net = Net()
    for parameter in net.parameters():
        parameter.data.zero_()
    return net


MODELS: dict[str, tuple[Callable[[], Net], int]] = {
    "base": (Net, 32),
    "named": (Named, 32),
    "four": (FourTimes, 32),
    "zeros": (with_zeros, 32),
    "drawing": (Drawing, 32),
    "wider": (lambda: Net(48), 48),
}


UNTIL_STEADY = ("--repeat-unsteady", "9")
"""On a busy machine a first measurement may be unsteady, and decides nothing."""


@pytest.fixture(scope="module")
def folder(service: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, and the base that a gate has saved."""
    folder = tmp_path_factory.mktemp("gate")
    for name, (make, width) in MODELS.items():
        program = torch.export.export(make().eval(), (torch.zeros(2, width),))
        torch.export.save(program, folder / f"{name}.pt2")
    ran = gate(service, folder, "base", "--report", "reports/base.json", *UNTIL_STEADY)
    assert ran.returncode == 0, ran.stderr
    assert "warning" not in ran.stderr
    return folder


def gate(service: str, folder: Path, model: str, *options: str) -> subprocess.CompletedProcess[str]:
    quick = ("--option", "benchmark.seconds=0.1", "--option", "benchmark.baselines=")
    return subprocess.run(
        [sys.executable, "-m", "bessemer.cli", "gate", f"{model}.pt2", *quick, *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "BESSEMER_URL": service},
        capture_output=True,
        text=True,
        check=False,
    )


COMPARE = ("--compare", "reports/base.json")
GOLDEN = ("--golden", "reports/base.npz")
INPUTS_DIFFER = "The inputs do not match the model: input 'x' has the shape (2, 32), expected (2, 48)"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("model", "options", "status", "message"),
    [
        ("zeros", COMPARE, 0, "warning: outputs changed by 100.0 %"),
        ("zeros", (*COMPARE, "--max-output-change", "99"), 4, "wrong: outputs changed by 100.0 %"),
        ("zeros", GOLDEN, 4, "wrong: outputs changed by 100.0 %"),
        ("four", COMPARE, 0, "warning: outputs changed by "),
        ("four", ("--max-latency-ms", "0", *UNTIL_STEADY), 5, "slower: latency p50 is "),
        ("base", ("--max-memory", "1kB", "--max-size", "1kB"), 6, "larger: peak memory is "),
        (
            "named",
            (*COMPARE, "--max-output-change", "1"),
            0,
            "warning: the outputs are logits, expected output: compared by position",
        ),
        ("named", GOLDEN, 4, "wrong: outputs do not match: the outputs are logits, expected output"),
        ("wider", COMPARE, 0, f"warning: the outputs were not compared with the base's: {INPUTS_DIFFER}"),
        ("wider", GOLDEN, 4, f"wrong: outputs do not match: {INPUTS_DIFFER}"),
    ],
)
def test_a_bound_catches_a_change_and_without_one_the_gate_warns(
    service: str, folder: Path, model: str, options: tuple[str, ...], status: int, message: str
) -> None:
    ran = gate(service, folder, model, *options)
    assert ran.returncode == status, ran.stderr
    assert [line.startswith(message) for line in ran.stderr.splitlines()].count(True) == 1, ran.stderr


def test_the_base_itself_changes_no_output(service: str, folder: Path) -> None:
    ran = gate(service, folder, "base", *COMPARE, "--max-output-change", "0.01", "--summary", "summary.md")
    assert ran.returncode == 0, ran.stderr
    (row,) = (line for line in (folder / "summary.md").read_text().splitlines() if "| outputs |" in line)
    assert row.endswith("| 0.01 % (`--max-output-change`) |") and "not compared" not in row


def test_a_golden_file_is_made_with_numpy(service: str, folder: Path) -> None:
    x = np.random.default_rng(3).standard_normal((2, 32)).astype(np.float32)
    y = Net().eval()(torch.from_numpy(x)).detach().numpy()
    np.savez(folder / "golden.npz", **{"inputs/x": x, "outputs/output": y})  # type: ignore[arg-type]
    for model, status in (("base", 0), ("zeros", 4)):
        ran = gate(service, folder, model, "--golden", "golden.npz")
        assert ran.returncode == status, ran.stderr


@pytest.mark.slow
def test_a_golden_file_of_random_numbers_needs_their_seed(service: str, folder: Path) -> None:
    ran = gate(service, folder, "drawing", "--report", "drawing.json")
    assert ran.returncode == 0, ran.stderr
    with np.load(folder / "drawing.npz") as base:
        arrays = dict(base)
    assert gate(service, folder, "drawing", "--golden", "drawing.npz").returncode == 0
    del arrays["inputs/seed"]
    np.savez(folder / "seedless.npz", **arrays)  # type: ignore[arg-type]
    ran = gate(service, folder, "drawing", "--golden", "seedless.npz")
    assert ran.returncode == 4
    assert "random numbers, and seedless.npz has no seed: add 'inputs/seed', an int64 scalar" in ran.stderr


def test_a_base_without_its_inputs_gives_a_warning(service: str, folder: Path) -> None:
    (folder / "alone.json").write_bytes((folder / "reports" / "base.json").read_bytes())
    ran = gate(service, folder, "base", "--compare", "alone.json")
    assert ran.returncode == 0
    assert "warning: alone.npz not found beside the base: the outputs were not compared" in ran.stderr


def test_a_gate_that_fails_does_not_replace_its_own_base(service: str, folder: Path) -> None:
    for end in ("json", "npz"):
        (folder / f"own.{end}").write_bytes((folder / "reports" / f"base.{end}").read_bytes())
    own = ("--compare", "own.json", "--report", "./own.json", "--max-output-change", "5")
    before = [(folder / f"own.{end}").read_bytes() for end in ("json", "npz")]
    ran = gate(service, folder, "zeros", *own)
    assert ran.returncode == 4, ran.stderr
    assert "own.json was not replaced: only a gate that passes replaces its own base" in ran.stderr
    assert [(folder / f"own.{end}").read_bytes() for end in ("json", "npz")] == before
    ran = gate(service, folder, "base", *own)
    assert ran.returncode == 0, ran.stderr
    is_kept = "own.json was not replaced: a base must be steady" in ran.stderr
    assert ((folder / "own.json").read_bytes() == before[0]) == is_kept


def test_a_target_that_no_worker_takes_fails_at_once(service: str, folder: Path) -> None:
    ran = gate(
        service, folder, "base", "--option", "target.mcpu=bdver4"
    )  # XOP: no processor since 2015 has it
    assert ran.returncode == 1
    assert (
        "error: no live worker can run this compilation: it waits for a worker whose processor can run"
        in ran.stderr
    )
