"""Invocations of a library for another platform, whose program runs under emulation."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bessemer.client import Client, Job
from bessemer.errors import InvocationFailedError
from examples.models import EXAMPLES


@pytest.fixture(scope="module")
def job(client: Client, model: Path) -> Job:
    if not any("aarch64" in worker.capability.programs for worker in client.workers().items):
        pytest.skip("the worker runs no programs for aarch64; see ci/emulators")
    return client.submit(model, target="aarch64", name="elsewhere").wait()


def test_an_invocation_runs_the_bundles_program(job: Job, tmp_path: Path) -> None:
    x = torch.randn(1, 784, generator=torch.Generator().manual_seed(7))

    invocation = job.invoke({"x": x.numpy()}, runs=3)

    assert invocation.latency is None
    job.download_outputs(invocation, tmp_path / "outputs.npz")
    with np.load(tmp_path / "outputs.npz") as outputs:
        (found,) = outputs.values()
    expected = EXAMPLES["mlp"].build().eval()(x).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, "missing input x"),
        ({"y": np.zeros((1, 784), np.float32)}, "unknown input 'y'"),
        ({"x": np.zeros((1, 783), np.float32)}, "has the shape (1, 783)"),
        ({"x": np.zeros((1, 784), np.float64)}, "has the dtype float64"),
    ],
)
def test_wrong_inputs_are_refused_in_words(job: Job, inputs: dict[str, np.ndarray], words: str) -> None:
    with pytest.raises(InvocationFailedError) as caught:
        job.invoke(inputs)

    assert words in str(caught.value)
