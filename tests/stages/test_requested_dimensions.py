"""Requested dimensions stay dynamic in every format, or are refused with their place."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from capture_samples import capture_file, exported, graph, scripted, traced
from torch import nn

from bessemer.contract.problem import ErrorCode
from bessemer.contract.tensor import DType
from worker.errors import JobError

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")

Save = Callable[..., Path]


class Rows(nn.Module):
    """Reads the batch size and computes with it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(12, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One row for each image."""
        return self.linear(x.view(x.shape[0], 12)) * x.size(0)


class Numbered(nn.Module):
    """Hard-codes the batch size."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Four rows."""
        return x.view(4, 12)


class Branching(nn.Module):
    """Branches on the number of rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Twice x, where there are many rows."""
        return x * 2 if x.shape[0] > 3 else x


class Repeating(nn.Module):
    """Loops over the batch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of x and its rows' numbers."""
        for row in range(x.shape[0]):
            x = x + row
        return x


class Sum(nn.Module):
    """Takes two inputs of equal sizes."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Their sum."""
        return x + y


def program_of(*dims: Any) -> Save:
    return partial(exported, dynamic_shapes=dims, strict=False)


BATCH = torch.export.Dim("b", min=1, max=64)


@pytest.mark.parametrize(
    "save", [graph, traced, scripted, program_of({0: BATCH})], ids=["fx", "traced", "scripted", "pt2"]
)
def test_a_requested_dimension_stays_dynamic(tmp_path: Path, save: Save) -> None:
    save(Rows().eval(), tmp_path / "model", torch.randn(4, 3, 4))
    captured = capture_file(tmp_path / "model", "x=batchx3x4", dimensions=("batch=1..32",))
    assert list(map(str, captured.dynamic.dimensions)) == ["batch from 1 to 32"]
    opened = [
        (axis.tensor, axis.axis, str(axis)) for axis in (*captured.dynamic.inputs, *captured.dynamic.outputs)
    ]
    assert opened == [("x", 0, "batch"), ("output", 0, "batch")]
    assert captured.input_specs[0].shape == (4, 3, 4)
    assert [sample.references[0].shape for sample in captured.samples] == [(1, 5), (3, 5), (11, 5)]


def test_every_axis_may_have_a_name_of_its_own(tmp_path: Path) -> None:
    graph(nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU()), tmp_path / "model")
    ranges = ("batch=1..8@1", "height=3..", "width=5..64")
    captured = capture_file(tmp_path / "model", "input=batchx3xheightxwidth", dimensions=ranges)
    assert captured.input_specs[0].shape == (1, 3, 4, 5)
    assert list(map(str, captured.dynamic.outputs)) == ["batch", "height", "width"]


@pytest.mark.parametrize(
    ("module", "save", "dimension", "message", "operator"),
    [
        (Numbered(), graph, "batch=1..64", "'batch' cannot stay dynamic: view fixes it at 4", "view"),
        (
            Numbered(),
            traced,
            "batch=1..64",
            "fixes it at 4, a constant in the model or its trace",
            "aten::view",
        ),
        (Numbered(), scripted, "batch=1..64", "'batch' cannot stay dynamic: aten::view", "aten::view"),
    ],
    ids=["fx", "traced", "scripted"],
)
def test_a_dimension_fixed_by_the_model_is_named_with_its_place(
    tmp_path: Path, module: nn.Module, save: Save, dimension: str, message: str, operator: str
) -> None:
    save(module.eval(), tmp_path / "model", torch.randn(4, 3, 4))
    with pytest.raises(JobError, match=message) as caught:
        capture_file(tmp_path / "model", "x=batchx3x4", dimensions=(dimension,))
    assert caught.value.code is ErrorCode.DYNAMIC_SHAPES_UNSUPPORTED
    assert caught.value.places[0].operator == operator
    if save is not graph:
        assert (caught.value.places[0].file or "").endswith("test_requested_dimensions.py")


@pytest.mark.parametrize("module", [Branching(), Repeating()], ids=["branch", "loop"])
def test_a_branch_or_a_loop_on_a_size_keeps_the_size_dynamic(tmp_path: Path, module: nn.Module) -> None:
    scripted(module, tmp_path / "model")
    captured = capture_file(tmp_path / "model", "x=batchx3x4", dimensions=("batch=1..64",))
    assert list(map(str, captured.dynamic.dimensions)) == ["batch from 1 to 64"]


def test_a_branch_on_a_size_is_taken_where_the_range_decides_it(tmp_path: Path) -> None:
    scripted(Branching(), tmp_path / "model")
    captured = capture_file(tmp_path / "model", "x=batchx3x4", dimensions=("batch=4..64",))
    assert list(map(str, captured.dynamic.dimensions)) == ["batch from 4 to 64"]


def test_two_names_for_one_size_are_refused(tmp_path: Path) -> None:
    graph(Sum(), tmp_path / "model")
    with pytest.raises(JobError, match=r"'second' cannot stay dynamic: add .* 'first': give both one name"):
        capture_file(tmp_path / "model", "x=firstx4", "y=secondx4", dimensions=("first=1..8", "second=1..8"))


@pytest.mark.parametrize(
    ("save", "inputs", "dimension", "message"),
    [
        (program_of(None, None), ("x=batchx3x4", "y=batchx3x4"), "1..8", "axis 0 of 'x' was fixed"),
        (program_of({0: BATCH}, {0: BATCH}), ("x=batchx3x4", "y=batchx3x4"), "1..", "accepts 1 to 64"),
        (program_of({0: BATCH}, {0: BATCH}), ("x=batchx3x4", "y=4x3x4"), "1..8", "one dimension of the file"),
        (
            program_of({0: 2 * BATCH}, {0: 2 * BATCH}),
            ("x=batchx3x4", "y=batchx3x4"),
            "1..8",
            "depends on another",
        ),
    ],
    ids=["fixed", "beyond", "divided", "doubled"],
)
def test_an_exported_program_keeps_its_sizes(
    tmp_path: Path, save: Save, inputs: tuple[str, ...], dimension: str, message: str
) -> None:
    save(Sum(), tmp_path / "model", torch.randn(4, 3, 4), torch.randn(4, 3, 4))
    with pytest.raises(JobError, match=message) as caught:
        capture_file(tmp_path / "model", *inputs, dimensions=(f"batch={dimension}",))
    assert caught.value.code is ErrorCode.DYNAMIC_SHAPES_UNSUPPORTED


def rectangles(path: Path) -> Path:
    rows, columns = torch.export.Dim("rows", min=2, max=64), torch.export.Dim("columns", min=4, max=400)
    return exported(Scaled(), path, torch.randn(8, 16), dynamic_shapes=({0: rows, 1: columns},))


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


@pytest.mark.parametrize(
    ("dimension", "shown", "columns"),
    [("x_1=8..32@20", "x_1 from 8 to 32", 20), ("x_1=20..", "x_1 from 20 to 400", 20)],
)
def test_a_request_narrows_a_dimension_of_the_file_by_its_name(
    tmp_path: Path, dimension: str, shown: str, columns: int
) -> None:
    captured = capture_file(rectangles(tmp_path / "model.pt2"), dimensions=(dimension,))
    assert list(map(str, captured.dynamic.dimensions)) == ["x_0 from 2 to 64", shown]
    assert captured.input_specs[0].shape == (8, columns)


@pytest.mark.parametrize(
    ("save", "given", "dtype"),
    [
        (program_of({0: BATCH}), "x=8x4", DType.INT64),
        (program_of({0: BATCH}), "x=batchx4", DType.INT64),
        (graph, "x=batchx4", DType.FLOAT32),
    ],
    ids=["declared", "declared-open", "undeclared"],
)
def test_an_input_without_a_dtype_has_the_files_or_float32(
    tmp_path: Path, save: Save, given: str, dtype: DType
) -> None:
    save(Scaled(), tmp_path / "model", torch.ones(4, 4, dtype=torch.int64))
    dimensions = ("batch=1..8",) if "batch" in given else ()
    captured = capture_file(tmp_path / "model", given, dimensions=dimensions)
    assert captured.input_specs[0].dtype is dtype


@pytest.mark.parametrize(
    ("dimension", "code", "said"),
    [
        ("x_2=8..32", ErrorCode.INPUTS_MISMATCH, "'x_1' (4 to 400); did you mean 'x_"),
        (
            "batch=8..32",
            ErrorCode.INPUTS_MISMATCH,
            "the model has no dimension 'batch', only 'x_0' (2 to 64), 'x_1' (4 to 400)",
        ),
        (
            "x_1=1..32",
            ErrorCode.DYNAMIC_SHAPES_UNSUPPORTED,
            "'x_1' is 1..32, but axis 1 of 'x' accepts 4 to 400",
        ),
    ],
)
def test_other_ranges_are_refused(tmp_path: Path, dimension: str, code: ErrorCode, said: str) -> None:
    with pytest.raises(JobError) as caught:
        capture_file(rectangles(tmp_path / "model.pt2"), dimensions=(dimension,))
    assert caught.value.code is code
    assert said in caught.value.detail
