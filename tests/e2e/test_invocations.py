"""Invocations on workers return what the bundle returns."""

import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
from safetensors.numpy import save

from bessemer.client import Client, Job
from bessemer.errors import InvocationFailedError
from examples.models import EXAMPLES

BATCH = torch.export.Dim("batch", min=1, max=8)


@pytest.fixture(scope="module")
def job(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """An MLP of up to eight rows, compiled with its parameters beside the library."""
    path = tmp_path_factory.mktemp("invocations") / "mlp.pt2"
    module = EXAMPLES["mlp"].build().eval()
    program = torch.export.export(module, (torch.zeros(2, 784),), dynamic_shapes=({0: BATCH},))
    torch.export.save(program, path)
    return client.submit(path, parameters="separate").wait()


def test_an_invocation_returns_the_models_outputs_and_times_runs(job: Job, tmp_path: Path) -> None:
    (name,) = (spec.name for spec in job.report().inputs)
    values = np.random.default_rng(7).standard_normal((3, 784), dtype=np.float32)
    invocation = job.invoke({name: values}, runs=5)
    assert invocation.latency is not None
    assert invocation.latency.runs == 5
    with np.load(job.download_outputs(invocation, tmp_path / "outputs.npz")) as outputs:
        (output,) = (outputs[spec.name] for spec in invocation.outputs)
    expected = EXAMPLES["mlp"].build().eval()(torch.from_numpy(values)).detach().numpy()
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)


def test_concurrent_invocations_keep_their_outputs_apart(service: str, job: Job, tmp_path: Path) -> None:
    (name,) = (spec.name for spec in job.report().inputs)
    values = [np.random.default_rng(seed).standard_normal((3, 784), dtype=np.float32) for seed in range(8)]

    def invoke(index: int) -> np.ndarray:
        with Client(service) as client:
            own = client.job(job.id)
            path = own.download_outputs(own.invoke({name: values[index]}), tmp_path / f"{index}.npz")
        with np.load(path) as outputs:
            (output,) = outputs.values()
        return output

    with ThreadPoolExecutor(8) as pool:
        outputs = list(pool.map(invoke, range(8)))
    model = EXAMPLES["mlp"].build().eval()
    for given, output in zip(values, outputs, strict=True):
        expected = model(torch.from_numpy(given)).detach().numpy()
        np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)


def test_a_safetensors_file_is_run_over_http(service: str, job: Job) -> None:
    (name,) = (spec.name for spec in job.report().inputs)
    values = np.random.default_rng(8).standard_normal((2, 784), dtype=np.float32)
    path = f"/v1/compilations/{job.id}/invocations?runs=0"
    with httpx.Client(base_url=service, timeout=60) as api:
        asked = api.post(path, content=save({name: values}))
        assert asked.status_code == 202, asked.text
        job.wait_for_invocation(job.invocation(asked.json()["id"]))
        outputs = api.get(f"{asked.headers['Location']}/outputs")
    with np.load(io.BytesIO(outputs.content)) as file:
        (output,) = file.values()
    expected = EXAMPLES["mlp"].build().eval()(torch.from_numpy(values)).detach().numpy()
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ("name", "inputs-mismatch", "unknown input 'other'"),
        ("dtype", "inputs-mismatch", "dtype float64"),
        ("size", "inputs-mismatch", "from 1 to 8"),
        ("bytes", "inputs-unreadable", "header"),
    ],
)
def test_mismatched_inputs_are_named(job: Job, change: str, code: str, message: str) -> None:
    (name,) = (spec.name for spec in job.report().inputs)
    values = np.zeros((1, 784), np.float32)
    inputs = {
        "name": {"other": values},
        "dtype": {name: values.astype(np.float64)},
        "size": {name: np.zeros((9, 784), np.float32)},
        "bytes": b"no arrays",
    }[change]
    with pytest.raises(InvocationFailedError) as caught:
        job.invoke(inputs)
    assert caught.value.problem.code == code
    assert message in caught.value.problem.detail
