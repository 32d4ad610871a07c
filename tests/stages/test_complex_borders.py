"""Models with complex inputs and outputs: real parts in the library, complex arrays for its users."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from bundle_samples import NEEDS_COMPILER, execute, paste_program, printed
from capture_samples import capture_file, exported, refusal, scripted, traced
from package_samples import compile_to_bundle
from stage_samples import optimized
from torch import Tensor, nn

from bessemer.bundle.manifest import Manifest
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import Report
from worker.compiler.values import Captured, StageContext


class Spectral(nn.Module):
    """Filters a spectrum; returns complex and real tensors, an input, a conjugate and a scalar."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4, dtype=torch.complex64))

    def forward(self, z: Tensor, x: Tensor) -> dict[str, Tensor]:
        filtered = torch.fft.fft(z) @ self.weight.conj() + x
        return {"y": filtered, "size": z.abs(), "mirrored": z.conj(), "same": z, "total": z.sum()}


class Turning(nn.Module):
    """Keeps a complex phase, and draws noise."""

    phase: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("phase", torch.ones(3, dtype=torch.complex128))

    def forward(self, z: Tensor) -> Tensor:
        self.phase *= z / z.abs()
        return self.phase + torch.rand(3, dtype=torch.float64)


INPUTS = (torch.randn(2, 4, dtype=torch.complex64), torch.randn(2, 4))
OUTPUTS = [
    "y=2x4:complex64",
    "size=2x4:float32",
    "mirrored=2x4:complex64",
    "same=2x4:complex64",
    "total=scalar:complex64",
]

Save = Callable[..., Path]


@pytest.fixture
def bundled(context: StageContext, tmp_path: Path) -> Callable[[Captured], Path]:
    return lambda captured: compile_to_bundle(captured, context)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("save", "given"),
    [(exported, ()), (scripted, ("z=2x4:complex64", "x=2x4")), (traced, ())],
    ids=["exported", "scripted", "traced"],
)
def test_a_bundle_takes_and_returns_complex_arrays(
    bundled: Callable[[Captured], Path], tmp_path: Path, save: Save, given: tuple[str, ...]
) -> None:
    module = Spectral().eval()
    folder = bundled(capture_file(save(module, tmp_path / "model", *INPUTS), *given))
    manifest = Manifest.model_validate_json((folder / "manifest.json").read_text())
    report = Report.model_validate_json((folder / "report.json").read_text())
    for document in (manifest, report):
        assert list(map(str, document.inputs)) == ["z=2x4:complex64", "x=2x4:float32"]
        assert list(map(str, document.outputs)) == OUTPUTS
    np.save(folder / "z.npy", INPUTS[0].numpy())
    np.save(folder / "x.npy", INPUTS[1].numpy())
    command = [sys.executable, "run.py", "--input", "z=z.npy", "--input", "x=x.npy", "--output", "out.npz"]
    assert execute([sys.executable, "run.py"], folder).returncode == 0
    ran = execute(command, folder)
    assert ran.returncode == 0, ran.stderr
    with np.load(folder / "out.npz") as found, torch.no_grad():
        for name, expected in module(*INPUTS).items():
            reference = expected.resolve_conj().numpy()
            assert found[name].dtype == reference.dtype
            np.testing.assert_allclose(found[name], reference, rtol=1e-4, atol=1e-5)


@NEEDS_COMPILER
def test_the_program_in_cpp_reads_complex_files_and_prints_parts(
    bundled: Callable[[Captured], Path], tmp_path: Path
) -> None:
    folder = bundled(capture_file(exported(Spectral().eval(), tmp_path / "model", *INPUTS)))
    ran = execute(["sh", "-e", "-c", paste_program(folder)], folder)
    assert ran.returncode == 0, ran.stderr
    with np.load(folder / "reference/outputs.npz") as arrays:
        parts = arrays["y"].view(np.float32).ravel()
    np.testing.assert_allclose(printed(ran.stdout.replace(" ...", ""))["y"], parts, rtol=1e-3, atol=1e-4)


def test_complex_state_and_a_seed_go_together(bundled: Callable[[Captured], Path], tmp_path: Path) -> None:
    z = torch.randn(3, dtype=torch.complex128)
    folder = bundled(capture_file(exported(Turning(), tmp_path / "model", z)))
    manifest = Manifest.model_validate_json((folder / "manifest.json").read_text())
    assert list(map(str, manifest.inputs)) == ["z=3:complex128", "seed=scalar:int64"]
    assert list(map(str, manifest.state)) == ["state.phase=3:complex128"]
    program = """
import json
import numpy as np
from run import load
model = load(".")
z = np.exp(1j * np.arange(3))
for _ in range(2):
    model.run({"z": z})
print(json.dumps(np.angle(model.state["state.phase"]).tolist()))
"""
    ran = execute([sys.executable, "-c", program], folder)
    assert ran.returncode == 0, ran.stderr
    np.testing.assert_allclose(json.loads(ran.stdout), np.angle(np.exp(2j * np.arange(3))), atol=1e-9)


def test_sizes_of_complex_inputs_may_be_dynamic(tmp_path: Path) -> None:
    path = scripted(Spectral().eval(), tmp_path / "model")
    captured = capture_file(path, "z=batchx4:complex64", "x=batchx4", dimensions=("batch=1..8",))
    assert captured.samples
    assert all(sample.inputs[0].shape[1:] == (4, 2) for sample in captured.samples)


class Unturned(nn.Module):
    """Holds a complex buffer that it does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("phase", torch.ones(3, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        return x * 2


@pytest.mark.parametrize("save", [exported, scripted])
def test_an_unused_complex_buffer_is_left_out(save: Save, context: StageContext, tmp_path: Path) -> None:
    given = ("x=3",) if save is scripted else ()
    captured = capture_file(save(Unturned().eval(), tmp_path / "model", torch.ones(3)), *given)
    assert not captured.program.state_dict
    assert optimized(captured, context)


class Halving(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.to(torch.complex32)


@pytest.mark.filterwarnings("ignore:ComplexHalf support:UserWarning")
def test_complex32_is_refused(tmp_path: Path) -> None:
    error = refusal(exported(Halving(), tmp_path / "model", torch.ones(3)))
    assert error.code is ErrorCode.MODEL_TENSORS_UNSUPPORTED
    assert "'output' is of dtype complex32" in error.detail
