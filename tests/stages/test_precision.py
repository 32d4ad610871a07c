"""The dtype in which a model computes each output decides its default tolerance."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from stage_samples import Function, capture_module
from torch import nn

from worker.compiler.checking.precision import computed_dtypes
from worker.compiler.pipeline.verify import compare_outputs

X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
MODELS = {
    "float32 throughout": (lambda self, x: self.layer(x).relu(), ["float32"]),
    "bfloat16 inside": (lambda self, x: self.narrow(x.bfloat16()).float(), ["bfloat16"]),
    "float16 inside": (lambda self, x: x.half().exp().transpose(0, 1).float() + 1, ["float16"]),
    "both": (lambda self, x: (x.half() + 1).bfloat16().float(), ["bfloat16"]),
    "each output its own": (lambda self, x: (x.half().exp().float(), x.exp()), ["float16", "float32"]),
    "weights that are only stored": (lambda self, x: x @ self.narrow.weight.t().float(), ["float32"]),
    "a table that is only stored": (lambda self, x: self.narrow.weight[x[:, 0].long()].float(), ["float32"]),
    "a decision": (lambda self, x: torch.where(x.half() > 0, x, 0), ["float32"]),
    "a mask": (lambda self, x: x * (x[:, :1] > 0).bfloat16(), ["float32"]),
    "integers": (lambda self, x: x.half().exp().argmax(-1), ["int64"]),
    "a float64": (lambda self, x: (x.double() + 1).exp(), ["float64"]),
    "float32 inside float64": (lambda self, x: x.exp().double(), ["float32"]),
    "bytes": (lambda self, x: (x * 9).round().to(torch.int8).float() / 9, ["bfloat16"]),
    "products of bytes": (
        lambda self, x: torch._int_mm((x * 9).to(torch.int8), torch.ones(8, 8, dtype=torch.int8)).float(),
        ["bfloat16"],
    ),
    "bytes that are truths": (lambda self, x: (x > 0).to(torch.uint8).float() * x, ["float32"]),
    "bytes of weights": (
        lambda self, x: x @ (self.layer.weight * 9).round().to(torch.int8).float(),
        ["float32"],
    ),
    "an index": (lambda self, x: x[(x[:, 0].abs() < 9).int()], ["float32"]),
    "parts": (lambda self, x: torch.cat(x.half().exp().split(4, 1), 1).float(), ["float16"]),
}


@pytest.mark.parametrize("name", MODELS)
def test_an_output_has_the_rounding_of_the_narrowest_type_before_it(name: str) -> None:
    compute, expected = MODELS[name]
    captured = capture_module(Function(compute, layer=nn.Linear(8, 8), narrow=nn.Linear(8, 8).bfloat16()), X)

    assert [str(dtype) for dtype in computed_dtypes(captured)] == expected


@pytest.mark.parametrize(("name", "mismatches"), [("bfloat16 inside", False), ("float32 throughout", True)])
def test_the_tolerance_of_float32_depends_on_what_it_was(name: str, mismatches: bool) -> None:
    compute, _ = MODELS[name]
    captured = capture_module(Function(compute, layer=nn.Linear(8, 8), narrow=nn.Linear(8, 8).bfloat16()), X)
    output = captured.references[0] * np.float32(1.01)

    if mismatches:
        with pytest.raises(Exception, match="elements differ"):
            compare_outputs((output,), captured, captured.example)
    else:
        (comparison,) = compare_outputs((output,), captured, captured.example)
        assert comparison.mismatches == 0
