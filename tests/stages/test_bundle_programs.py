"""Bundles run as their README describes: from Python threads and by the C++ program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from bundle_samples import NEEDS_COMPILER, execute, paste_program, printed
from package_samples import compile_to_bundle
from stage_samples import Function, capture_module

from bessemer.bundle.manifest import Manifest
from bessemer.contract.dynamic import DynamicAxis, DynamicDimension, DynamicShapes
from bessemer.contract.tensor import DType, TensorSpec
from worker.compiler.values import StageContext
from worker.package.program import program

CALLS = Path(__file__).parents[1] / "call_from_threads.py"
RUN = "  Tensors outputs = session.Run(inputs);\n"
FORKED = """
import os, sys
import numpy as np
from run import load

model = load(".")
inputs = model.reference_inputs()
expected = model.run(inputs)
child = os.fork()
if child == 0:
    loaded = load(".")
    outputs = [model.run(inputs), model.session().run(inputs), loaded.run(inputs)]
    equal = [np.array_equal(each[name], expected[name]) for each in outputs for name in expected]
    os._exit(0 if all(equal) else 3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
THREADS = """\
  std::atomic<int> wrong{0};
  Tensors expected = session.Run(inputs);
  auto call = [&] {
    Session own(library{argument});
    for (int run = 0; run < 1000; ++run) {
      Tensors outputs = own.Run(inputs);
      for (size_t i = 0; i < outputs.size(); ++i) {
        size_t size = ffi::GetDataSize(expected[i]);
        wrong += std::memcmp(outputs[i].data_ptr(), expected[i].data_ptr(), size) != 0;
      }
    }
  };
  std::thread first(call), second(call);
  first.join();
  second.join();
  std::cout << "wrong: " << wrong << "\\n";
"""


def two_results(self: torch.nn.Module, x: torch.Tensor, shift: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """One output of floats, one of integers."""
    features = self.convolution(x).relu().flatten(1)
    return self.linear(features) + shift, self.linear(features).argmax(dim=1)


def module() -> torch.nn.Module:
    torch.manual_seed(0)
    convolution, linear = torch.nn.Conv2d(3, 32, 3), torch.nn.Linear(32 * 36, 7)
    return Function(two_results, convolution=convolution, linear=linear).eval()


@pytest.fixture(params=["bound", "separate"])
def bundle(request: pytest.FixtureRequest, context: StageContext, tmp_path: Path) -> Path:
    """The bundle of a small network, unpacked."""
    inputs = torch.randn(1, 3, 8, 8), torch.randn(7)
    captured = capture_module(module(), *inputs, parameters=request.param)
    return compile_to_bundle(captured, context)


def check_outputs(folder: Path, ran: subprocess.CompletedProcess[str]) -> None:
    assert ran.returncode == 0, ran.stderr
    shown = printed(ran.stdout)
    with np.load(folder / "reference" / "outputs.npz") as references:
        for name, reference in references.items():
            np.testing.assert_allclose(shown[name], reference.ravel(), rtol=1e-4, atol=1e-5)


@pytest.mark.sampled
def test_concurrent_calls_from_eight_threads_keep_their_outputs_apart(bundle: Path) -> None:
    ran = execute([sys.executable, CALLS, bundle, "8", "1000"], bundle)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {"calls": 8000, "wrong": 0}


@pytest.mark.sampled
def test_a_forked_process_runs_the_bundle_that_its_parent_ran(bundle: Path) -> None:
    ran = execute(["timeout", "60", sys.executable, "-c", FORKED], bundle)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.sampled
@NEEDS_COMPILER
def test_the_program_of_the_readme_runs_as_pasted_and_from_any_folder(bundle: Path, tmp_path: Path) -> None:
    check_outputs(bundle, execute(["bash", "-e", "-c", paste_program(bundle)], bundle))

    manifest = json.loads((bundle / "manifest.json").read_text())
    files = [bundle / "inputs" / f"{spec['name']}.npy" for spec in manifest["inputs"]]
    check_outputs(bundle, execute([bundle / "main", *files], tmp_path))
    for wrong, says in {
        (): f"usage: main {files[0].name} {files[1].name}\n",
        (files[0], bundle / "README.md"): f"{bundle / 'README.md'} is not a .npy file\n",
        (files[0], tmp_path / "absent.npy"): f"cannot open {tmp_path / 'absent.npy'}\n",
        (files[1], files[0]): f"{files[1]} has the shape (7,), expected input_0=1x3x8x8:float32\n",
    }.items():
        ran = execute([bundle / "main", *wrong], tmp_path)
        assert ran.returncode == 1
        assert says in ran.stderr


@pytest.mark.sampled
@NEEDS_COMPILER
def test_two_threads_of_the_program_run_in_sessions_of_their_own(bundle: Path) -> None:
    commands = paste_program(bundle)
    text = (bundle / "main.cc").read_text()
    assert text.count(RUN) == 1
    calls = THREADS.replace("{argument}", ", parameters" if "Prepare" in text else "")
    text = "#include <atomic>\n#include <thread>\n" + text.replace(RUN, calls + RUN)
    (bundle / "main.cc").write_text(text)
    ran = execute(["bash", "-e", "-c", commands], bundle)
    assert ran.returncode == 0, ran.stderr
    assert "wrong: 0\n" in ran.stdout


@pytest.mark.sampled
@NEEDS_COMPILER
def test_the_program_compiles_for_every_dtype_and_for_dynamic_sizes(bundle: Path, tmp_path: Path) -> None:
    manifest = Manifest.model_validate_json((bundle / "manifest.json").read_bytes())
    specs = tuple(TensorSpec(name=f"of.{dtype}", shape=(2, 3), dtype=dtype) for dtype in DType)
    axes = (DynamicAxis(tensor=specs[0].name, axis=0, dimension="n"),)
    dynamic = DynamicShapes(dimensions=(DynamicDimension(name="n", minimum=1),), inputs=axes, outputs=axes)
    (tmp_path / "main.cc").write_text(
        program(manifest.model_copy(update={"inputs": specs, "outputs": specs, "dynamic": dynamic}))
    )
    command = "g++ -Wall -fsyntax-only main.cc $(tvm-ffi-config --cxxflags)"
    ran = execute(["bash", "-e", "-c", command], tmp_path)
    assert ran.returncode == 0, ran.stderr
