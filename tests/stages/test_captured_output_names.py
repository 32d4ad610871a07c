"""Captured outputs keep the model's names in every format."""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from capture_samples import capture_file, exported, graph, scripted, traced
from torch import nn

X = torch.arange(6.0).reshape(2, 3)

SAVED_ELSEWHERE = """
import dataclasses, sys, typing
from collections import OrderedDict

import torch
from torch.utils import _pytree as pytree

@dataclasses.dataclass
class Heads:
    logits: torch.Tensor
    pooled: tuple
    loss: torch.Tensor | None = None

class Moments(typing.NamedTuple):
    mean: torch.Tensor
    std: torch.Tensor

class ModelOutput(OrderedDict):
    pass

torch.export.register_dataclass(Heads, serialized_type_name="strangers.Heads")
pytree._register_namedtuple(Moments, serialized_type_name="strangers.Moments")
pytree.register_pytree_node(
    ModelOutput,
    lambda value: (list(value.values()), list(value)),
    lambda values, keys: ModelOutput(zip(keys, values)),
    serialized_type_name="transformers.ModelOutput",
)

class Model(torch.nn.Module):
    def forward(self, x):
        heads = Heads(x + 1, (x * 2, x * 3))
        return ModelOutput(heads=heads, moments=Moments(x - 1, x - 2), last_hidden_state=x - 3)

torch.export.save(torch.export.export(Model(), (torch.ones(2, 3),)), sys.argv[1])
"""


class Moments(NamedTuple):
    mean: torch.Tensor
    std: torch.Tensor


class Dictionary(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": x * 2, "x": x + 1}


class Tuple(nn.Module):
    def forward(self, x: torch.Tensor) -> Moments:
        return Moments(x * 2, x + 1)


class Repeated(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        twice = x * 2
        return {"first": twice, "again": twice, "input": x}


def saved_elsewhere(path: Path, _x: torch.Tensor) -> None:
    subprocess.run([sys.executable, "-c", SAVED_ELSEWHERE, str(path)], check=True)


ELSEWHERE = (
    "heads.logits",
    "heads.pooled.0",
    "heads.pooled.1",
    "moments.mean",
    "moments.std",
    "last_hidden_state",
)
CASES: dict[str, tuple[Callable[..., object], tuple[str, ...]]] = {
    "classes that are not here": (saved_elsewhere, ELSEWHERE),
    "an exported dictionary": (partial(exported, Dictionary()), ("logits", "x")),
    "a traced dictionary": (partial(traced, Dictionary()), ("logits", "x")),
    "a scripted dictionary": (partial(scripted, Dictionary()), ("logits", "x")),
    "a graph's dictionary": (partial(graph, Dictionary()), ("logits", "x")),
    "a scripted named tuple": (partial(scripted, Tuple()), ("mean", "std")),
    "one tensor under several names": (partial(exported, Repeated()), ("first", "again", "input")),
    "one tensor of a script": (partial(scripted, Repeated()), ("first", "again", "input")),
}


@pytest.mark.parametrize("case", CASES)
def test_outputs_keep_their_names(tmp_path: Path, case: str) -> None:
    save, names = CASES[case]
    save(tmp_path / "model", X)
    captured = capture_file(tmp_path / "model", "x=2x3")
    assert tuple(spec.name for spec in captured.output_specs) == names
    inputs = [torch.from_numpy(array) for array in captured.inputs]
    found = torch.utils._pytree.tree_leaves(captured.program.module()(*inputs))
    for output, reference in zip(found, captured.references, strict=True):
        torch.testing.assert_close(output, torch.from_numpy(reference))
