"""Runs a bundle on torch's and NumPy's arrays, and counts copies: ``python run_without_copies.py BUNDLE``."""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

BUNDLE = Path(sys.argv[1])
sys.path.insert(0, str(BUNDLE))

import run  # noqa: E402

COPIES: Counter[str] = Counter()


def counting(name: str) -> None:
    """Count the calls of a function that copies."""
    copy = getattr(run, name)

    def counted(*arguments: Any) -> Any:
        COPIES[name] += 1
        return copy(*arguments)

    setattr(run, name, counted)


model = run.load(BUNDLE)
counting("_to_tensor")
counting("_to_array")
(spec,) = model.inputs
reference = model.reference_inputs()
expected = model.run(reference)
x = torch.tensor(reference[spec.name])
before = x.clone()
LENT = {
    "torch": x,
    "shared": x.numpy(),
    "transposed": x.t().contiguous().t(),
    "misaligned": torch.cat((x.ravel()[:1], x.ravel()))[1:].reshape(x.shape),
    "read-only": np.frombuffer(x.numpy().tobytes(), np.float32).reshape(x.shape),
}
for kind, array in LENT.items():
    COPIES.clear()
    outputs = model.run({spec.name: array})
    print(kind, COPIES["_to_tensor"], COPIES["_to_array"])
    for name, output in outputs.items():
        assert np.array_equal(output, expected[name]), (kind, name)
        assert torch.from_dlpack(output).data_ptr() == output.ctypes.data
        output[...] = 0  # a user may write to every output
assert torch.equal(x, before)
try:
    model.run({spec.name: x.clone().requires_grad_()})
except run.InputError as error:
    print(error)
