from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from capture_samples import capture_file, exported
from stage_samples import Function, capture_module
from torch import nn

from bessemer.contract.options import VerifyOptions
from worker.compiler.checking.exact import exact_outputs
from worker.compiler.pipeline.verify import agreed_references, compare_outputs
from worker.compiler.values import Captured
from worker.errors import JobError

CANCELING = Function(lambda self, x: (x + 1000).mean(1) - 1000)


class Mixed(nn.Module):
    """Names its types, keeps a half-width part, and writes into a tensor of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, ...]:
        halved = self.linear(x).to(torch.float16).to(torch.float32)
        hidden = self.attention(halved, halved, halved)[0]
        kept = torch.zeros(hidden.shape)
        kept[:, 0] = hidden[:, 1]
        return kept.double(), hidden.softmax(-1, dtype=torch.float32)[:, row], row + 1


def mixed() -> Captured:
    return capture_module(Mixed().eval(), torch.randn(2, 4, 16), torch.tensor([1, 3]))


def test_a_program_is_computed_in_float64_whatever_types_it_names() -> None:
    captured = mixed()

    exact = exact_outputs(captured.program, captured.example)

    assert exact is not None
    assert [str(one.dtype) for one in exact] == ["float64", "float64", "int64"]
    for found, reference in zip(exact, captured.references, strict=True):
        np.testing.assert_allclose(found, reference, rtol=2e-3, atol=2e-3)
        assert reference.dtype == np.int64 or not np.array_equal(found, reference)


def test_inputs_of_bfloat16_are_computed_in_float64() -> None:
    x = torch.randn(3, 8, generator=torch.manual_seed(0)).bfloat16()
    captured = capture_module(Function(lambda self, x: x * 3), x)

    exact = exact_outputs(captured.program, captured.example)

    assert exact is not None
    np.testing.assert_array_equal(exact[0], x.double().numpy() * 3)


def test_a_program_that_reads_bits_has_no_float64_reference() -> None:
    captured = capture_module(Function(lambda self, x: x.view(torch.int32)), torch.randn(3, 5))

    assert exact_outputs(captured.program, captured.example) is None


def own_distance(captured: Captured) -> float:
    (exact,) = captured.inputs[0].astype("float64").mean(1)[None]
    return float((np.abs(captured.references[0] - exact) - 1e-4 * np.abs(exact)).max())


def shifted(captured: Captured, distance: float) -> Any:
    return (captured.references[0] + np.float32(distance),)


def test_a_library_as_accurate_as_torch_is_accepted() -> None:
    captured = capture_module(CANCELING, torch.randn(1024, 16))
    own = own_distance(captured)
    assert own > 2e-5

    (comparison,) = compare_outputs(shifted(captured, 2 * own), captured, captured.example)

    assert comparison.mismatches == 0
    assert comparison.rounding == pytest.approx(own, rel=1e-2)
    assert comparison.tolerance.absolute == pytest.approx(4 * own, rel=1e-2)


@pytest.mark.parametrize("options", [{"absolute": 1e-5}, {}])
def test_a_less_accurate_library_is_rejected(options: dict[str, float]) -> None:
    captured = capture_module(CANCELING, torch.randn(1024, 16), verify=VerifyOptions(**options))
    own = own_distance(captured)

    with pytest.raises(JobError, match="elements differ") as raised:
        compare_outputs(shifted(captured, own * (2 if options else 9)), captured, captured.example)

    assert ("differs from float64" in raised.value.detail) is not bool(options)


def thresholded(folder: Path) -> Captured:
    """A number of the example lies within a rounding error of the threshold."""
    model, x = Function(lambda self, x: x[x > 3 / 7]), torch.arange(8.0) / 7
    return capture_file(exported(model, folder / "model.pt2", x))


@pytest.mark.parametrize(("kept", "moved"), [(4, False), (5, True)])
def test_a_library_may_decide_as_the_model_does_for_inputs_nearby(
    kept: int, moved: bool, tmp_path: Path
) -> None:
    captured = thresholded(tmp_path)
    outputs = (captured.inputs[0][-kept:],)

    references, (comparison,) = agreed_references(outputs, captured, captured.example)

    assert comparison.moved_inputs is moved
    assert references[0].shape == outputs[0].shape


def test_a_library_that_drops_a_result_far_from_the_threshold_is_rejected(tmp_path: Path) -> None:
    captured = thresholded(tmp_path)

    with pytest.raises(JobError, match=r"is float32\[3\], the model's is float32\[4\]"):
        agreed_references((captured.inputs[0][-3:],), captured, captured.example)
