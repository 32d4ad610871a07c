"""Numbers that a program reads from its constants are fixed; those of changed buffers are not."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from capture_samples import capture_file, exported, traced
from program_runs import run_program
from stage_samples import optimized
from torch import Tensor, nn
from torch.nn import functional as F

from worker.compiler.frontend.constant_items import fold_items
from worker.compiler.values import StageContext

X = torch.randn(6, 6, generator=torch.Generator().manual_seed(1))


class Reading(nn.Module):
    width: Tensor
    scale: Tensor

    def __init__(self, body: Callable[["Reading", Tensor], Tensor]) -> None:
        super().__init__()
        self.register_buffer("width", torch.tensor(3))
        self.register_buffer("scale", torch.tensor(2.5))
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self, x)


class Scaled(nn.Module):
    def __init__(self, inner: Reading) -> None:
        super().__init__()
        self.register_buffer("weight", torch.full((1,), 2.0))
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) * self.weight


BODIES: dict[str, Callable[[Reading, Tensor], Tensor]] = {
    "a slice": lambda self, x: x[:, : self.width.item()],
    "a shape": lambda self, x: x.reshape(-1, self.width.item()),
    "a size": lambda self, x: torch.full((self.width.item(), 2), 1.5) + x.sum(),
    "a number": lambda self, x: x.abs() ** self.scale.item(),
    "what follows from a constant": lambda self, x: x[:, : (self.width * 2 - 1).item()],
    "a constant of the code": lambda self, x: x * torch.tensor(2.0).item(),
}


@pytest.mark.sampled
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_read_of_a_constant_is_a_number_of_the_library(tmp_path: Path, body: Callable[..., Tensor]) -> None:
    captured = capture_file(exported(Reading(body), tmp_path / "model", X, strict=False))
    assert captured.dynamic.of_data == captured.dynamic.outputs == ()
    assert not any("item" in str(node.target) for node in captured.program.graph.nodes)
    (found,) = run_program(captured.program, (X,))
    np.testing.assert_allclose(found[0], captured.references[0], rtol=1e-5, atol=1e-5)


def reads_and_multiplies(self: Reading, x: Tensor) -> Tensor:
    return x[:, : self.width.item()] * self.width


@pytest.mark.parametrize(
    "body", [BODIES["a slice"], BODIES["what follows from a constant"], reads_and_multiplies]
)
def test_a_fixed_number_is_not_a_parameter_that_can_be_swapped(
    tmp_path: Path, body: Callable[..., Tensor], context: StageContext
) -> None:
    path = exported(Scaled(Reading(body)), tmp_path / "model", X, strict=False)
    captured = capture_file(path, parameters="separate")
    module = optimized(captured, context)
    assert module.parameters is not None
    assert [tensor.name for tensor in module.parameters.tensors] == ["weight", "inner.scale"]
    (found,) = run_program(captured.program, (X,))
    np.testing.assert_allclose(found[0], Scaled(Reading(body))(X), rtol=1e-5, atol=1e-5)


class Growing(nn.Module):
    width: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("width", torch.tensor(3))

    def forward(self, x: Tensor) -> Tensor:
        self.width += 1
        return x * self.width.item()


def test_a_read_of_a_buffer_that_a_run_changes_stays() -> None:
    program = torch.export.export(Growing(), (X,), strict=False)
    assert fold_items(program) is program


class Bags(nn.Module):
    def __init__(self, mode: str, **options: bool) -> None:
        super().__init__()
        self.bags = nn.EmbeddingBag(10, 4, mode=mode, **options)

    def forward(self, indices: Tensor, offsets: Tensor) -> Tensor:
        return self.bags(indices, offsets)


class Weighted(nn.Module):
    def __init__(self, **options: bool) -> None:
        super().__init__()
        self.bags = nn.EmbeddingBag(10, 4, mode="sum", sparse=True, **options)

    def forward(self, indices: Tensor, offsets: Tensor, weights: Tensor) -> Tensor:
        return self.bags(indices, offsets, weights)


class Categorical(nn.Module):
    """Takes numbers of categories as floats, in one tensor with others."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(3, 4)

    def forward(self, rows: Tensor) -> Tensor:
        return self.table(rows[:, 0].long()) * rows[:, 1:]


class Looking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4, sparse=True)

    def forward(self, indices: Tensor) -> Tensor:
        return F.relu(self.table(indices))


INDICES, WEIGHTS = torch.tensor([1, 2, 3, 1, 4, 5, 6, 9]), torch.rand(8)
OFFSETS, WITH_END = torch.tensor([0, 3]), torch.tensor([0, 3, 8])
EMBEDDINGS: dict[str, tuple[nn.Module, tuple[Tensor, ...]]] = {
    "embedding": (Looking(), (INDICES.reshape(2, 4),)),
    "categories among floats": (Categorical(), (torch.rand(8, 5),)),
    "sum": (Bags("sum", sparse=True), (INDICES, OFFSETS)),
    "mean": (Bags("mean", sparse=True), (INDICES, OFFSETS)),
    "max": (Bags("max"), (INDICES, OFFSETS)),
    "sum with the last offset": (Bags("sum", sparse=True, include_last_offset=True), (INDICES, WITH_END)),
    "mean with the last offset": (Bags("mean", sparse=True, include_last_offset=True), (INDICES, WITH_END)),
    "max with the last offset": (Bags("max", include_last_offset=True), (INDICES, WITH_END)),
    "weights": (Weighted(), (INDICES, OFFSETS, WEIGHTS)),
    "weights with the last offset": (Weighted(include_last_offset=True), (INDICES, WITH_END, WEIGHTS)),
}


@pytest.mark.sampled
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("save", [exported, traced])
@pytest.mark.parametrize(("module", "inputs"), EMBEDDINGS.values(), ids=EMBEDDINGS)
def test_sparse_embeddings_compile_with_their_own_inputs_or_with_drawn_ones(
    tmp_path: Path, module: nn.Module, inputs: tuple[Tensor, ...], save: Callable[..., Path]
) -> None:
    captured = capture_file(save(module.eval(), tmp_path / "model", *inputs))
    with torch.no_grad():
        expected = module(*inputs).numpy()
    drawn, own = run_program(captured.program, tuple(map(torch.from_numpy, captured.inputs)), inputs)
    np.testing.assert_allclose(own[0], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(drawn[0], captured.references[0], rtol=1e-5, atol=1e-5)
