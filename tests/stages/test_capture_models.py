"""Example models in every format are captured correctly."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from capture_samples import capture_file
from torch import nn
from torch.utils import _pytree as pytree

from examples.models import EXAMPLES
from examples.models.save import SavedAs, save
from worker.compiler.frontend.load import load_model

NAMES = ("mlp", "cnn", "resnet18", "bert", "gpt2_block")
EVERY = [(name, saved_as) for name in NAMES for saved_as in SavedAs]


@cache
def built(name: str) -> nn.Module:
    return EXAMPLES[name].build()


def tensors(arrays: tuple[np.ndarray, ...]) -> list[torch.Tensor]:
    return [torch.from_numpy(array) for array in arrays]


@pytest.mark.parametrize(("name", "saved_as"), EVERY, ids=lambda value: str(value))
def test_program_and_references_agree_with_the_model(tmp_path: Path, name: str, saved_as: SavedAs) -> None:
    example, path = EXAMPLES[name], tmp_path / "model"
    save(example, saved_as, path)
    captured = capture_file(path, *(spec.spec for spec in example.inputs))
    inputs, module = tensors(captured.inputs), built(name)
    with torch.inference_mode():
        original = pytree.tree_leaves(module(*inputs))
        program = pytree.tree_leaves(captured.program.module()(*inputs))
        eager = pytree.tree_leaves(load_model(path).eager(*inputs))
    for reference, *others in zip(captured.references, original, program, eager, strict=True):
        for other in others:
            torch.testing.assert_close(other, torch.from_numpy(reference), rtol=1e-6, atol=1e-6)
    elements = [tensor.numel() for tensor in (*module.parameters(), *module.buffers())]
    assert captured.parameters == sum(elements)
    assert [spec.shape for spec in captured.output_specs] == [array.shape for array in captured.references]


def test_word_indices_are_drawn_from_the_whole_vocabulary(tmp_path: Path) -> None:
    example = EXAMPLES["bert"]
    save(example, SavedAs.SCRIPTED, tmp_path / "model")
    captured = capture_file(tmp_path / "model", *(spec.spec for spec in example.inputs))
    assert 1000 < captured.inputs[0].max() < example.inputs[0].limit
    assert [spec.name for spec in captured.output_specs] == ["output_0", "output_1"]


def test_a_pt2_brings_its_own_inputs(tmp_path: Path) -> None:
    save(EXAMPLES["mlp"], SavedAs.PT2, tmp_path / "model")
    captured = capture_file(tmp_path / "model")
    np.testing.assert_array_equal(captured.inputs[0], EXAMPLES["mlp"].example_inputs()[0].numpy())


def test_a_trace_knows_its_example_shapes(tmp_path: Path) -> None:
    save(EXAMPLES["cnn"], SavedAs.TRACED, tmp_path / "model")
    assert capture_file(tmp_path / "model").input_specs[0].shape == (1, 1, 28, 28)


def test_inputs_depend_on_the_seed_alone(tmp_path: Path) -> None:
    path = tmp_path / "model"
    save(EXAMPLES["mlp"], SavedAs.FX, path)
    first, again, other = (capture_file(path, "x=1x784", seed=seed).inputs[0] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
