"""Outputs whose size depends on data have torch's sizes and elements: none, some, all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from capture_samples import capture_file
from family_samples import scheduled, target_of
from stage_samples import Function, make_context

from bessemer.detection import batched_nms
from worker.candidates.client import CandidateClient, LibraryCrashedError
from worker.compiler.codegen.executable import build_library
from worker.compiler.frontend.outputs import flatten_outputs
from worker.compiler.pipeline.translate import translate
from worker.compiler.pipeline.verify import compare_outputs
from worker.compiler.values import Captured
from worker.tensors import as_array

TARGET = "x86-64-v3"
ROWS = torch.export.Dim("rows", min=2, max=64)

MIXED = torch.randn(6, 5, generator=torch.Generator().manual_seed(2))
NONE, ALL = -torch.ones(6, 5), torch.ones(6, 5)
WHOLE = torch.randint(-3, 3, (6, 5), generator=torch.Generator().manual_seed(3))
SAME, DISTINCT = torch.zeros(6, 5, dtype=torch.int64), torch.arange(30).reshape(6, 5)
NANS = torch.where(MIXED > 0.5, torch.nan, MIXED.round())


def boxes_of(seed: int) -> torch.Tensor:
    """Rows of four sides, a score and a group."""
    generator = torch.Generator().manual_seed(seed)
    corner, size = (torch.rand(40, 2, generator=generator) * 10 for _ in range(2))
    scores = torch.rand(40, 1, generator=generator)
    return torch.cat([corner, corner + size, scores, torch.arange(40).reshape(40, 1) % 3], 1)


APART = torch.cat(
    [torch.arange(40.0).reshape(40, 1) * 5 + torch.tensor([0, 0, 1, 1.0]), boxes_of(4)[:, 4:]], 1
)
PILED = torch.cat([APART[:1, :4].expand(40, 4), boxes_of(5)[:, 4:]], 1)


def nms(x: torch.Tensor, threshold: float) -> Any:
    return torch.ops.torchvision.nms(x[:, :4], x[:, 4], threshold)


def detected(x: torch.Tensor) -> Any:
    """What a detection model does with its boxes."""
    clear = x[x[:, 4] > 0.3]
    kept = batched_nms(clear[:, :4], clear[:, 4], clear[:, 5].long(), 0.4)[:20]
    return {"boxes": clear[kept, :4], "scores": clear[kept, 4], "labels": clear[kept, 5].long()}


def regions(samples: int) -> Callable[[torch.Tensor], Any]:
    """Cut some of the boxes, which may lie outside, out of images."""
    images = torch.randn(3, 2, 9, 7, generator=torch.Generator().manual_seed(6))

    def cut(x: torch.Tensor) -> Any:
        rois = torch.cat([x[:, 5:], x[:, :4] - 2], 1)[x[:, 4] > 0.3]
        align = torch.ops.torchvision.roi_align
        return align(images, rois, 0.5, 3, 2, samples, False), align(images, rois, 1.0, 2, 3, samples, True)

    return cut


def chosen_twice(x: torch.Tensor) -> Any:
    """Indices and their range are of two sizes that depend on data."""
    rows = x[x[:, 0] > 0]
    return rows[torch.nonzero(rows[:, 1] > 0)[:, 0]]


def largest(x: torch.Tensor) -> Any:
    chosen = x[x > 0]
    return chosen.topk(torch.sym_min(3, chosen.shape[0]))[0]


@dataclass(frozen=True)
class Case:
    """A function, its example, and other inputs."""

    body: Callable[[torch.Tensor], Any]
    calls: tuple[torch.Tensor, ...] = (MIXED, NONE, ALL)


INTEGERS = (WHOLE, SAME, DISTINCT)
BOXES = (boxes_of(0), boxes_of(1), APART, PILED)
CASES = {
    "nonzero": Case(lambda x: torch.nonzero(x > 0)),
    "nonzero of numbers": Case(torch.nonzero, INTEGERS),
    "where": Case(lambda x: torch.where(x > 0)),
    "masked select": Case(lambda x: torch.masked_select(x, x[0] > 0)),
    "elements by a mask": Case(lambda x: (x[x > 0] * 2 + 1).exp()),
    "rows by a mask": Case(lambda x: x[x[:, 0] > 0] @ x.T),
    "columns by a mask": Case(lambda x: x[:, x[0] > 0].softmax(0)),
    "a mask and an index": Case(lambda x: x[x[:, 0] > 0, 2]),
    "writes by a mask": Case(lambda x: x.index_put((x > 0,), x[x > 0] * 2)),
    "writes of rows by a mask": Case(lambda x: x.index_put((x[:, 0] > 0,), x[x[:, 0] > 0] * 2)),
    "sums of what a mask chose": Case(lambda x: (x[x > 0].sum(), x[:, x[0] > 0].sum(1))),
    "sorted": Case(lambda x: x[x > 0].sort()[0]),
    "the largest": Case(largest),
    "joined": Case(lambda x: torch.cat([x[x > 0], x[x < 0.5]])),
    "at most three": Case(lambda x: x[x[:, 0] > 0][:3]),
    "linear layers": Case(lambda x: (x[x[:, 0] > 0] @ torch.ones(5, 64)).relu() @ torch.ones(64, 7)),
    "a number as a size": Case(lambda x: x[: (x[:, 0] > 0).sum().item()]),
    "distinct": Case(lambda x: torch.unique(x, return_inverse=True, return_counts=True), INTEGERS),
    "distinct with NaN": Case(lambda x: torch.unique(x, return_counts=True), (NANS,)),
    "distinct booleans": Case(lambda x: torch.unique(x > 0)),
    "distinct neighbors": Case(
        lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True), INTEGERS
    ),
    "distinct neighbors with NaN": Case(
        lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True), (NANS, NANS.flip(0))
    ),
    "truths of what a mask chose": Case(
        lambda x: ((x[x > 0] > 1).any(), (x[x > 0] > 1).all(), (x[x[:, 0] > 0] > 1).any(0))
    ),
    "the place of the largest": Case(lambda x: x[x > 0].argmax(), (MIXED, ALL)),
    "distinct rows": Case(
        lambda x: torch.unique(x, dim=0, return_inverse=True, return_counts=True), INTEGERS
    ),
    "distinct columns": Case(lambda x: torch.unique(x, dim=1), INTEGERS),
    "distinct neighboring columns": Case(lambda x: torch.unique_consecutive(x, dim=1), INTEGERS),
    "occurrences": Case(lambda x: torch.bincount(x.abs().flatten()), INTEGERS),
    "weights": Case(lambda x: torch.bincount(x.abs().flatten(), x.flatten().float(), minlength=9), INTEGERS),
    "repetitions": Case(lambda x: torch.repeat_interleave(x, x[:, 0].abs(), dim=0), INTEGERS),
    "chosen twice": Case(chosen_twice),
    "suppression": Case(lambda x: nms(x, 0.4), BOXES),
    "suppression of no overlap": Case(lambda x: nms(x, 0.0), BOXES),
    "suppression in groups": Case(lambda x: batched_nms(x[:, :4], x[:, 4], x[:, 5].long(), 0.4), BOXES),
    "regions": Case(regions(2), BOXES),
    "regions of any number of samples": Case(regions(-1), BOXES[:1]),
    "detection": Case(detected, (*BOXES, boxes_of(1) * torch.tensor([1, 1, 1, 1, 0, 1]))),
}


def saved(path: Path, body: Callable[..., Any], x: torch.Tensor, dims: Any = None) -> Path:
    with path.open("wb") as file, torch.no_grad():
        module = Function(lambda _, given: body(given)).eval()
        torch.export.save(torch.export.export(module, (x,), dynamic_shapes=dims, strict=False), file)
    return path


def compiled(captured: Captured, folder: Path) -> Path:
    module = scheduled(translate(captured, make_context(folder)).module, target_of(TARGET))
    library = folder / "model.so"
    build_library(module, target_of(TARGET), library, folder / "objects")
    return library


def check(server: CandidateClient, library: Path, case: Case) -> None:
    with server.open_library(library, threads=2) as loaded:
        for x in case.calls:
            expected = tuple(map(as_array, flatten_outputs(case.body(x))))
            found = loaded.run((as_array(x),))
            assert [one.dtype for one in found] == [one.dtype for one in expected]
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_sizes_and_elements_are_those_of_torch(server: CandidateClient, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    path = saved(tmp_path / "model", case.body, case.calls[0])
    check(server, compiled(capture_file(path), tmp_path), case)


def rows_up_to(n: torch.Tensor) -> torch.Tensor:
    count = n[0].item()
    torch._check(count >= 0)
    torch._check(count <= len(ALL))
    return ALL[:count] * 2


def zeros_of(n: torch.Tensor) -> torch.Tensor:
    count = n[0].item()
    torch._check(count >= 0)
    return torch.zeros(count, 3) + 1


def shifted(n: torch.Tensor) -> torch.Tensor:
    """The number itself may be negative."""
    count = n[0].item()
    torch._check(count >= -5)
    return torch.zeros(count + 5) + count


REFUSED = {
    "more rows than there are": (rows_up_to, (6,), (7, -1, 2**40)),
    "huge and negative sizes": (zeros_of, (5, 0), (-7, 2**45, 2**62)),
    "sums": (shifted, (3, -5, -2), (-6, 2**62)),
    "occurrences of huge numbers": (torch.bincount, (5, 0), (2**40, 2**62, 2**63 - 1)),
    "negative repetitions": (lambda n: torch.repeat_interleave(ALL[:1], n, dim=0), (2, 0), (-9, 2**62)),
}
"""The function, numbers that it takes, and numbers whose sizes need no memory."""


@pytest.mark.sampled
@pytest.mark.parametrize("name", REFUSED)
def test_a_size_out_of_range_ends_the_run_with_an_error(
    server: CandidateClient, tmp_path: Path, name: str
) -> None:
    body, suitable, others = REFUSED[name]
    calls = [torch.tensor([number]) for number in suitable]
    library = compiled(capture_file(saved(tmp_path / "model", body, calls[0])), tmp_path)
    check(server, library, Case(body, tuple(calls)))
    with server.open_library(library, threads=2) as loaded:
        for number in others:
            with pytest.raises(LibraryCrashedError, match="match_cast error"):
                loaded.run((np.array([number]),))


OF_DYNAMIC_SIZES = {
    "nonzero": Case(lambda x: torch.nonzero(x > 0), (MIXED, NONE, ALL, ALL[:2], MIXED.repeat(3, 1))),
    "rows by a mask": Case(lambda x: x[x[:, 0] > 0].cumsum(1), (MIXED, NONE, ALL, MIXED.repeat(3, 1))),
    "distinct": Case(lambda x: torch.unique(x), (WHOLE, SAME, DISTINCT, WHOLE.repeat(2, 1))),
    "suppression": Case(lambda x: x[nms(x, 0.4)], (*BOXES, boxes_of(7)[:3])),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", OF_DYNAMIC_SIZES)
def test_sizes_of_data_follow_dynamic_sizes(server: CandidateClient, tmp_path: Path, name: str) -> None:
    case = OF_DYNAMIC_SIZES[name]
    path = saved(tmp_path / "model", case.body, case.calls[0], ({0: ROWS},))
    check(server, compiled(capture_file(path), tmp_path), case)


def test_truths_of_a_size_of_data_are_compared(tmp_path: Path) -> None:
    captured = capture_file(saved(tmp_path / "model", lambda x: x[x[:, 0] > 0] > 1, MIXED))
    (found,) = compare_outputs(captured.references, captured, captured.example)
    assert found.reordered == 0
