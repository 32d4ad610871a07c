"""Branches and loops of scripts on values that only a run knows."""

from pathlib import Path

import numpy as np
import pytest
import torch
from program_runs import run_program
from test_torchscript_interpreter import saved
from torch import nn

from worker.compiler.frontend.outputs import TorchDynamicShapes
from worker.compiler.frontend.torchscript.convert import ScriptConversionError, convert_script

X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))


class While(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = 0
        while bool(x.abs().sum() > 1.0) and steps < 20:
            x = self.linear(x) * 0.5
            steps += 1
        return x + steps


class RangeOfATensor(nn.Module):
    def forward(self, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        scale = 0.5
        for step in range(2, int(n), 2):
            x = x * 0.9 + step
            scale = scale * 1.5
        return x * scale


class BreakAndContinue(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = 0
        for step in range(10):
            if bool(x.sum() < -5):
                break
            if step % 3 == 1:
                continue
            x = x - 1
            total += step
        return x, torch.tensor(total)


class EarlyReturn(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 100):
            return x * 2
        steps = 0
        while steps < 10:
            x = x + 1
            if bool(x.mean() > 5):
                return x * 3
            steps += 1
        return -x


class Nested(nn.Module):
    """A loop in a branch, and a branch in the loop that writes rows of a tensor."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(4, 3)
        steps = 0
        if bool(x[0, 0] > 0):
            step = 0
            while bool((x + step).sum() < 20):
                if bool(x[1, 1] > 0):
                    out[step % 4] = x[0] * step
                else:
                    out[0] = out[0] + 1
                    out[1, 1:].mul_(2)
                step += 1
            steps = step
        else:
            out = out - x
        return out + steps


class FixedLists(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states = [x, x * 2]
        named = {"gain": torch.ones(3)}
        which = 0
        while bool(states[0].sum() < 10):
            states[which] = states[0] + states[1].abs() + named["gain"]
            named["gain"] = named["gain"] * 0.9
            which = 1 - which
        return states[0] - states[1] * named["gain"]


class Windows(nn.Module):
    """Reads and writes at a place that depends on data."""

    def forward(self, x: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        first = int(start)
        y = x.clone()
        y[:, first : first + 2] = 0
        y[first] = y[first] + 1
        rows = [x[0], x[1], x[2]]
        return y * x[first - 1] + rows[first] * x[-1, first].clamp(-first, first + 0.5)


class Attributes(nn.Module):
    total: torch.Tensor
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.ones(3))
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = 0
        while bool(self.total.sum() + x.sum() < 30) and steps < 9:
            if bool(self.total[0] > 2):
                self.count += 1
            self.total = self.total + x[0].abs()
            steps += 1
        return self.total + self.count


class Checks(nn.Module):
    """A check of a value, a variable that begins as None, and a number that both paths set."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert bool(x.sum() < 1e6), "too large"
        y: torch.Tensor | None = None
        factor = 2.0
        if bool(x.sum() > 0):
            y = x + 1
            factor = float(x.max())
        else:
            y = x - 1
        return y * factor


class Pieces(nn.Module):
    """A list that grows until a value is reached."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        pieces = [x[0]]
        for step in range(8):
            pieces.append(pieces_of(x, step))
            if bool(x.sum() * step > 2):
                break
        return torch.stack(pieces), torch.cat(pieces)


def pieces_of(x: torch.Tensor, step: int) -> torch.Tensor:
    return x[1] * step


VALUES: list[tuple[nn.Module, list[tuple[torch.Tensor, ...]]]] = [
    (While(), [(X,), (X * 0,), (X * 10,)]),
    (RangeOfATensor(), [(X, torch.tensor(n)) for n in (3, 0, 2, 9)]),
    (BreakAndContinue(), [(X,), (X - 9,), (X + 2,)]),
    (EarlyReturn(), [(X,), (X + 100,), (X - 20,), (X + 4,)]),
    (Nested(), [(X,), (-X,), (X.abs(),), (X + 30,)]),
    (FixedLists(), [(X,), (X + 9,), (-X,)]),
    (Windows(), [(X, torch.tensor(n)) for n in (0, 1)]),
    (Checks(), [(X,), (-X,)]),
    (Pieces(), [(X,), (-X,), (X + 9,)]),
]


def assert_same(
    script: torch.jit.ScriptModule, calls: list[tuple[torch.Tensor, ...]], **options: object
) -> None:
    """Check a library compiled for the first call against the script on all calls."""
    with torch.no_grad():
        expected = [saved(script)(*(tensor.clone() for tensor in call)) for call in calls]
        program = convert_script(saved(script), calls[0], **options)  # type: ignore[arg-type]
    for found, wanted in zip(run_program(program, *calls), expected, strict=True):
        each = wanted if isinstance(wanted, tuple) else (wanted,)
        for array, tensor in zip(found, each, strict=True):
            np.testing.assert_allclose(array, tensor.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.sampled
@pytest.mark.parametrize(("module", "calls"), VALUES, ids=[type(module).__name__ for module, _ in VALUES])
def test_a_script_takes_the_paths_that_its_values_choose(
    module: nn.Module, calls: list[tuple[torch.Tensor, ...]]
) -> None:
    assert_same(torch.jit.script(module.eval()), calls)


def test_a_loop_on_values_changes_attributes() -> None:
    script = torch.jit.script(Attributes())
    with torch.no_grad():
        original, program = saved(script), convert_script(saved(script), (X,)).module()
        for scale in (1, -1, 3, 0):
            torch.testing.assert_close(program(X * scale), original(X * scale))


class Cells(nn.Module):
    """A cell over time."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(3, 5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.zeros(x.size(0), 5)
        cell = torch.zeros(x.size(0), 5)
        outputs: list[torch.Tensor] = []
        for step in range(x.size(1)):
            hidden, cell = self.cell(x[:, step], (hidden, cell))
            outputs.append(hidden)
        return torch.stack(outputs, 1), cell


class CellsWritten(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(3, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.zeros(x.size(0), 5)
        outputs = torch.zeros(x.size(0), x.size(1), 5)
        step = x.size(1) - 1
        while step >= 0:
            hidden = self.cell(x[:, step], hidden)
            outputs[:, step] = hidden
            step -= 1
        return outputs


class BySize(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.size(1) > 4:
            return x * x.size(0)
        return x.flip(1) - 1


@pytest.mark.sampled
@pytest.mark.parametrize("module", [Cells(), CellsWritten(), BySize()], ids=lambda m: type(m).__name__)
def test_a_script_follows_sizes_that_stay_dynamic(module: nn.Module) -> None:
    batch, length = torch.export.Dim("batch", min=1, max=8), torch.export.Dim("length", min=1, max=64)
    shapes: TorchDynamicShapes = ({0: batch, 1: length},)
    calls = [(torch.randn(rows, steps, 3),) for rows, steps in ((2, 6), (1, 1), (3, 33))]
    assert_same(torch.jit.script(module.eval()), calls, dynamic_shapes=shapes)


class OneShape(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 0):  # noqa: SIM108
            y = x[:1]
        else:
            y = x
        return y


class OtherDtype(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        while bool(x.sum() < 3):
            x = x.double() + 1
        return x


class Growing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pieces = [x]
        while bool(x.sum() < 3):
            x = x + 1
            pieces.append(x)
        return torch.cat(pieces)


@pytest.mark.parametrize(
    ("module", "message", "line"),
    [
        (
            OneShape(),
            r"'y' is a float32 tensor of shape \[1, 3\] or a float32 tensor of shape \[4, 3\]",
            "if bool",
        ),
        (OtherDtype(), r"'x0?' is a float32 tensor of shape \[4, 3\] or a float64 tensor", "while bool"),
        (Growing(), "a value decides how long a list grows: bound the steps", "while bool"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_a_loop_that_cannot_be_compiled_is_refused_with_its_line(
    module: nn.Module, message: str, line: str
) -> None:
    with torch.no_grad(), pytest.raises(ScriptConversionError, match=message) as caught:
        convert_script(saved(torch.jit.script(module)), (X - 9,))
    assert caught.value.step is not None
    place = caught.value.step.place()
    assert place.file == __file__
    assert place.line is not None
    assert line in Path(__file__).read_text().splitlines()[place.line - 1]
