"""Other runtimes in processes of their own, on a small network."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from bessemer.contract.model import ModelFormat
from bessemer.contract.options import Peer
from worker.candidates.client import CandidateClient, LibraryCrashedError
from worker.compiler.peers.ceiling import CeilingProbe
from worker.compiler.peers.executors import EAGER, PeerExecutor, PeerModel, Runtime, missing_package
from worker.compiler.values import WHOLE

X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.hidden = torch.nn.Linear(8, 16)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.relu(self.hidden(x))
        return hidden, hidden.sum(dim=1)


def saved(folder: Path) -> PeerModel:
    path = folder / "net.pt2"
    torch.export.save(torch.export.export(Net().eval(), (torch.from_numpy(X),)), path)
    return PeerModel(path, WHOLE, ModelFormat.PT2, threads=2, folder=folder)


@pytest.mark.parametrize("runtime", [EAGER, Peer.ONNX_RUNTIME, Peer.OPENVINO])
def test_a_runtime_computes_what_the_model_does_and_is_timed(
    runtime: Runtime, server: CandidateClient, tmp_path: Path
) -> None:
    if isinstance(runtime, Peer) and missing_package(runtime):
        pytest.skip(f"{runtime.value} is not installed")
    with torch.inference_mode():
        expected = [tensor.numpy() for tensor in Net().eval()(torch.from_numpy(X))]
    with server.open_original(partial(PeerExecutor, runtime, saved(tmp_path))) as process:
        outputs = process.run((X,))
        seconds = process.time(3)
    assert len(outputs) == 2
    for ours, theirs in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert len(seconds) == 3 and min(seconds) > 0


def test_a_runtime_that_cannot_run_the_model_says_why(server: CandidateClient, tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    torch.jit.script(Net().eval()).save(str(path))
    model = PeerModel(path, WHOLE, ModelFormat.TORCHSCRIPT, threads=2, folder=tmp_path)
    with (
        server.open_original(partial(PeerExecutor, Peer.TORCH_COMPILE, model)) as process,
        pytest.raises(LibraryCrashedError, match="does not compile TorchScript"),
    ):
        process.run((X,))


def test_the_machines_ceiling_is_measured(server: CandidateClient) -> None:
    with server.open_original(partial(CeilingProbe, 1)) as probe:
        ((flops, memory),) = probe.run(())
    assert flops > 1e8
    assert memory > 1e7
