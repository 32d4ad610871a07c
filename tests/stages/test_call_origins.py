"""Which operators of a model the calls of fused functions compute."""

import torch
from stage_samples import capture_module
from torch import nn

from worker.compiler.codegen.call_origins import origins_of
from worker.compiler.pipeline.optimize import optimize
from worker.compiler.pipeline.translate import translate
from worker.compiler.values import StageContext


class Block(nn.Module):
    """A residual block, of which two are one function each."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(16, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv2(torch.relu(self.conv1(x))) + x)


def test_equal_blocks_have_their_own_operators(context: StageContext) -> None:
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), Block(), Block())
    optimized = optimize(translate(capture_module(model, torch.randn(1, 3, 8, 8)), context), context)
    origins = origins_of(optimized.module, optimized.nodes)
    computed = [[origins.operators[place].name for place in call.operators] for call in origins.calls]
    assert [names for names in computed if names] == [
        ["convolution"],
        ["convolution_1", "relu"],
        ["convolution_2", "add", "relu_1"],
        ["convolution_3", "relu_2"],
        ["convolution_4", "add_1", "relu_3"],
    ]
    assert origins.operators[0].place.module_path == "0"
    assert origins.operators[0].value == "float32[1, 16, 8, 8]"
    for number, call in enumerate(origins.calls):
        assert all(place < number for place in call.inputs)
    of_both = origins.places()["fused_conv2d1_add_relu"]
    assert [place.module_path for place in of_both] == ["1.conv1", "1", "2.conv1", "2"]


class Shared(nn.Module):
    """A layer whose result is used twice, and computed once after equal expressions merge."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(16, 24)
        self.b = nn.Linear(16, 24)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.a(x) + self.b(y), torch.sigmoid(self.a(x))


def test_operators_after_equal_expressions_belong_to_their_own_calls(context: StageContext) -> None:
    captured = capture_module(Shared(), torch.randn(3, 16), torch.randn(3, 16))
    optimized = optimize(translate(captured, context), context)
    origins = origins_of(optimized.module, optimized.nodes)
    computed = [[origins.operators[place].name for place in call.operators] for call in origins.calls]
    assert computed == [["linear", "linear_2"], ["linear_1", "add"], ["sigmoid"]]
