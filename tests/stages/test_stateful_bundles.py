"""Bundles of models that keep state: from Python, from the command line and from C++."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from bundle_samples import ENVIRONMENT, NEEDS_COMPILER, execute, paste_program, printed
from capture_samples import capture_file
from package_samples import compile_to_bundle
from torch import nn

from bessemer.bundle.manifest import Manifest
from worker.compiler.values import StageContext

RUNS = 8
IN_PYTHON = """
import json, sys
import numpy as np
from run import InputError, load

model = load(".")
calls = [{"x": x} for x in np.load("calls.npy")]
run = lambda session: [session.run(call)["output"].ravel().tolist() for call in calls]
first = run(model)
again = model.state
model.reset()
second = run(model)
sessions = [model.session(), model.session()]
together = [[session.run(call)["output"].ravel().tolist() for session in sessions] for call in calls]
model.state = again
continued = model.run(calls[0])["output"].ravel().tolist()
try:
    model.state = {"state.other": again["state.hidden"]}
except InputError as error:
    refused = str(error)
print(json.dumps({"first": first, "second": second, "together": together, "continued": continued,
                  "names": sorted(again), "refused": refused}))
"""


class Streaming(nn.Module):
    """A recurrent cell that makes its state in the first run."""

    hidden: torch.Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(12, 8)
        self.hidden = None

    def forward(self, x: torch.Tensor, rate: int) -> torch.Tensor:
        hidden = self.hidden
        if hidden is None:
            hidden = torch.zeros(x.size(0), 8)
        hidden = torch.tanh(self.cell(torch.cat([x / rate, hidden], 1)))
        self.hidden = hidden
        return hidden.sum(1)


def script() -> torch.jit.ScriptModule:
    torch.manual_seed(0)
    return torch.jit.script(Streaming().eval())


Bundled = Callable[..., Path]


@pytest.fixture
def bundled(context: StageContext, tmp_path: Path) -> Bundled:
    """Compiles the model, verified over a sequence, with further fields of the request."""

    def compiled(**request: object) -> Path:
        torch.jit.save(script(), tmp_path / "model")
        captured = capture_file(tmp_path / "model", "x=3x4", constants={"rate": 2}, **request)
        return compile_to_bundle(captured, context)

    return compiled


def sequence() -> tuple[np.ndarray, list[list[float]]]:
    """Inputs of several runs, and the original's outputs."""
    calls = torch.randn(RUNS, 3, 4, generator=torch.Generator().manual_seed(3))
    original = script()
    with torch.no_grad():
        return calls.numpy(), [original(x, 2).tolist() for x in calls]


@pytest.mark.sampled
@pytest.mark.parametrize("parameters", ["bound", "separate"])
def test_the_runner_keeps_state_from_run_to_run_in_each_session(bundled: Bundled, parameters: str) -> None:
    folder = bundled(parameters=parameters)
    calls, expected = sequence()
    np.save(folder / "calls.npy", calls)
    ran = execute([sys.executable, "-c", IN_PYTHON], folder)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    np.testing.assert_allclose(found["first"], expected, rtol=1e-4, atol=1e-5)
    assert found["second"] == found["first"]
    assert found["together"] == [[output, output] for output in found["first"]]
    assert found["continued"] != found["first"][0]
    assert found["names"] == ["state.hidden"]
    assert found["refused"] == "unknown state 'state.other': the model keeps state.hidden"


def test_a_result_on_the_command_line_is_the_state_of_the_next_run(bundled: Bundled) -> None:
    folder = bundled()
    calls, expected = sequence()
    given: tuple[str, ...] = ()
    for number, call in enumerate(calls):
        np.save(folder / "x.npy", call)
        ran = execute([sys.executable, "run.py", "--input", "x=x.npy", *given, "--output", "out.npz"], folder)
        assert ran.returncode == 0, ran.stderr
        with np.load(folder / "out.npz") as result:
            np.testing.assert_allclose(result["output"], expected[number], rtol=1e-4, atol=1e-5)
            np.save(folder / "hidden.npy", result["state.hidden"])
        given = ("--input", "state.hidden=hidden.npy")


def test_a_stateless_bundle_takes_and_returns_its_state(bundled: Bundled) -> None:
    folder = bundled(stateless=True)
    manifest = Manifest.model_validate_json((folder / "manifest.json").read_text())
    assert [spec.name for spec in manifest.inputs] == ["x", "state.hidden"]
    assert [spec.name for spec in manifest.outputs] == ["output", "state.hidden"]
    assert manifest.state == ()
    ran = execute([sys.executable, "run.py"], folder)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@NEEDS_COMPILER
def test_the_program_of_the_readme_keeps_state(bundled: Bundled) -> None:
    folder = bundled()
    calls, _ = sequence()
    commands = paste_program(folder).splitlines()
    source = (folder / "main.cc").read_text()
    run = "  Tensors outputs = session.Run(inputs);\n"
    assert source.count(run) == 1
    repeated = f"  for (int run = 1; run < {RUNS}; ++run) session.Run(inputs);\n{run}"
    (folder / "main.cc").write_text(source.replace(run, repeated))
    np.save(folder / "x.npy", calls[0])
    subprocess.run(["bash", "-c", "\n".join(commands[:-2])], cwd=folder, env=ENVIRONMENT, check=True)
    ran = execute(["./main", "x.npy"], folder)
    original = script()
    with torch.no_grad():
        last = [original(torch.from_numpy(calls[0]), 2) for _ in range(RUNS)][-1]
    assert ran.returncode == 0, ran.stderr
    np.testing.assert_allclose(printed(ran.stdout)["output"], last.numpy(), rtol=1e-4, atol=1e-5)
