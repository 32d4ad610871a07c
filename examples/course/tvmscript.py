"""Compile TVMScript programs: the MLP with its trained weights, and a product that its author scheduled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from bessemer.client import Client
from bessemer.contract.options import InspectOptions
from bessemer.contract.report import ReferenceSource
from examples.course.session import functions_of, logits_of, run
from examples.models import EXAMPLES
from examples.models.weights import DATA

PROGRAMS = Path(__file__).parent / "programs"


def show(client: Client, folder: Path) -> None:
    """Compile both. The MLP's library agrees with the trained network; the product keeps its loops."""
    weights = DATA / "fashion_mnist_mlp.npz"
    job = client.submit(PROGRAMS / "mlp.py", weights=weights, target="host").wait()
    report = job.report()
    print(f"inputs: {', '.join(map(str, report.inputs))}; compared with a {report.reference}")
    print(f"functions: {', '.join(functions_of(report))}")
    assert [str(spec) for spec in report.inputs] == ["x=1x784:float32"]
    assert report.reference is ReferenceSource.FUNCTION
    assert functions_of(report).keys() == {"fused_linear_relu", "linear"}

    image = torch.randn(1, 784)
    with torch.inference_mode():
        expected = EXAMPLES["mlp"].build()(image).numpy()
    found = logits_of(job.download(folder / "bundle"), image, folder)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)

    scheduled = client.submit(
        PROGRAMS / "scheduled_product.py", target="host", inspect=InspectOptions(ir=True)
    ).wait()
    loops = scheduled.ir_text("tune")
    print(loops)
    assert "for i in T.parallel(128):" in loops
    assert "for j1 in T.vectorized(8):" in loops


if __name__ == "__main__":
    run(show)
