"""Arguments and results that are containers of tensors: named tensors, and the structure to restore them."""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from capture_samples import capture_file, exported, graph, refusal, scripted, traced
from torch import nn

from bessemer.contract.problem import ErrorCode
from worker.compiler.frontend.load import inspect_model
from worker.compiler.frontend.outputs import flatten_outputs
from worker.compiler.values import Captured

X = torch.arange(6.0).reshape(2, 3)

SAVED_ELSEWHERE = """
import dataclasses, sys, typing
import torch
from torch.utils import _pytree as pytree

@dataclasses.dataclass
class Batch:
    image: torch.Tensor
    mask: torch.Tensor | None
    masks: list
    scale: float = 2.0

class Pair(typing.NamedTuple):
    left: torch.Tensor
    right: torch.Tensor

torch.export.register_dataclass(Batch, serialized_type_name="strangers.Batch")
pytree._register_namedtuple(Pair, serialized_type_name="strangers.Pair")

class Model(torch.nn.Module):
    def forward(self, x, batch, *more, features, gain=1):
        y = x + batch.image * batch.scale + batch.masks[0] + more[0].left + more[0].right
        y = y + features["a b"] * gain + features["sizes"][0]
        return Batch(y, None, [y + 1, None], 3.0), Pair(y - 1, {"y": y})

x = torch.arange(6.0).reshape(2, 3)
arguments = (x, Batch(x, None, [x + 1]), Pair(x + 2, x + 3))
keywords = {"features": {"a b": x + 4, "sizes": (x + 5, 7)}, "gain": 3}
program = torch.export.export(Model(), arguments, keywords, strict=False)
torch.export.save(program, sys.argv[1])
"""


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor | None


class Mixed(nn.Module):
    def forward(
        self,
        images: list[torch.Tensor],
        batch: dict[str, torch.Tensor],
        pair: Pair,
        weighted: tuple[torch.Tensor, float],
        mask: torch.Tensor | None,
        bias: torch.Tensor | None = None,
    ) -> dict[str, list[torch.Tensor]]:
        total = batch["x"] + batch["y"] + pair.left + weighted[0] * weighted[1]
        for image in images:
            total = total + image
        right = pair.right
        if right is not None:
            total = total - right
        if mask is not None:
            total = total * mask
        if bias is not None:
            total = total + bias
        return {"sums": [total, total + 1]}


class Numbered(nn.Module):
    def forward(
        self, sizes: list[int], table: dict[int, torch.Tensor], deep: dict[str, list[torch.Tensor]]
    ) -> tuple[torch.Tensor, dict[str, int]]:
        return table[7].reshape(sizes) + deep["a"][0] + deep["b"][1], {"count": len(sizes)}


class Sums(nn.Module):
    def forward(self, images: list[torch.Tensor], batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"sum": images[0] + images[1] + batch["x"], "first": images[0] * 2}


class Fields(nn.Module):
    def forward(self, batch: Any, scale: float = 2.0) -> torch.Tensor:
        return batch.image * scale + batch.mask


def mixed(path: Path) -> Path:
    return scripted(Mixed(), path)


MIXED_INPUTS = (
    "batch.y=2x3",
    "images.0=2x3",
    "images.1=2x3",
    "batch.x=2x3",
    "pair.left=2x3",
    "weighted.0=2x3",
)
MIXED = "(images: [images.0, images.1], batch: {'y': batch.y, 'x': batch.x}, "
CASES: dict[str, tuple[Callable[[Path], Path], tuple[str, ...], dict[str, object], str]] = {
    "script": (
        mixed,
        MIXED_INPUTS,
        {"weighted.1": 3.0},
        MIXED + "pair: (left=pair.left, right=None), weighted: (weighted.0, 3.0), mask: None, bias: None)"
        " -> {'sums': [sums.0, sums.1]}",
    ),
    "script with optional values": (
        mixed,
        (*MIXED_INPUTS, "pair.right=2x3", "bias=2x3"),
        {"weighted.1": 3.0},
        MIXED + "pair: (left=pair.left, right=pair.right), weighted: (weighted.0, 3.0), mask: None, bias)"
        " -> {'sums': [sums.0, sums.1]}",
    ),
    "script with numbers and keys that are numbers": (
        lambda path: scripted(Numbered(), path),
        ("table.7=6", "deep.a.0=2x3", "deep.b.0=1", "deep.b.1=2x3"),
        {"sizes.0": 2, "sizes.1": 3},
        "(sizes: [2, 3], table: {7: table.7}, deep: {'a': [deep.a.0], 'b': [deep.b.0, deep.b.1]})"
        " -> (output, {'count': 2})",
    ),
    "trace": (
        lambda path: traced(Sums(), path, [X, X], {"x": X}),
        (),
        {},
        "(images: [images.0, images.1], batch: {'x': batch.x}) -> {'sum': sum, 'first': first}",
    ),
    "graph": (
        lambda path: graph(Sums(), path),
        ("images.0=2x3", "images.1=2x3", "batch.x=2x3"),
        {},
        "(images: [images.0, images.1], batch: {'x': batch.x}) -> {'sum': sum, 'first': first}",
    ),
    "graph that reads fields": (
        lambda path: graph(Fields(), path),
        ("batch.image=2x3", "batch.mask=2x3"),
        {},
        "(batch: (image=batch.image, mask=batch.mask), scale: 2.0) -> output",
    ),
}


@pytest.mark.parametrize(("save", "inputs", "constants", "call"), CASES.values(), ids=CASES)
def test_containers_become_named_tensors(
    tmp_path: Path,
    save: Callable[[Path], Path],
    inputs: tuple[str, ...],
    constants: dict[str, object],
    call: str,
) -> None:
    captured = capture_file(save(tmp_path / "model"), *inputs, constants=constants)
    assert str(captured.call) == call
    assert_program_agrees(captured)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `.pt2` with classes that this process does not have."""
    path = tmp_path_factory.mktemp("containers") / "model.pt2"
    subprocess.run([sys.executable, "-c", SAVED_ELSEWHERE, path], check=True, capture_output=True)
    return path


def test_a_program_has_the_structure_and_the_values_of_its_example(program: Path) -> None:
    captured = capture_file(program)
    assert str(captured.call) == (
        "(x, batch: (image=batch.image, masks=[batch.masks.0], scale=2.0, mask=None), "
        "more_0: (left=more_0.left, right=more_0.right), "
        "*, features: {'a b': features.a_b, 'sizes': (features.sizes.0, 7)}, gain: 3)"
        " -> ((image=output_0.image, masks=[output_0.masks.0, None], scale=3.0, mask=None), "
        "(left=output_1.left, right={'y': output_1.right.y}))"
    )
    assert [argument.keyword_only for argument in captured.call.arguments] == [False] * 3 + [True] * 2
    x = X.numpy()
    for number, given in enumerate(captured.inputs):
        np.testing.assert_array_equal(given, x + number - (number > 0))
    assert_program_agrees(captured)


def test_an_inspection_shows_the_structure(program: Path) -> None:
    signature = inspect_model(program).signature
    assert signature.call == capture_file(program).call
    assert signature.input_names[:2] == ("x", "batch.image")


def test_an_inspection_shows_the_types_of_a_script(tmp_path: Path) -> None:
    signature = inspect_model(mixed(tmp_path / "model")).signature
    assert str(signature.call) == (
        "(images: List[Tensor], batch: Dict[str, Tensor], pair: (left=pair.left, right=None), "
        "weighted: Tuple[Tensor, float], mask: None, bias: None)"
    )
    assert "weighted.1" in [constant.name for constant in signature.constants]


def test_null_is_a_constant_for_an_optional_tensor(tmp_path: Path) -> None:
    captured = capture_file(
        mixed(tmp_path / "model"),
        *MIXED_INPUTS,
        constants={"weighted.1": 3.0, "mask": None, "pair.right": None},
    )
    assert "right=None" in str(captured.call)


REFUSED: dict[str, tuple[tuple[str, ...], dict[str, object], ErrorCode, str]] = {
    "a list without values": (
        tuple(name for name in MIXED_INPUTS if "images" not in name),
        {"weighted.1": 3.0},
        ErrorCode.INPUTS_MISMATCH,
        "the argument 'images' is a List[Tensor]: name its values images.0, images.1, and so on",
    ),
    "a list with a gap": (
        (*MIXED_INPUTS, "images.3=2x3"),
        {"weighted.1": 3.0},
        ErrorCode.INPUTS_MISMATCH,
        "the model has no input 'images.3'; forward's input 'images.2' is missing",
    ),
    "a field that is not there": (
        (*MIXED_INPUTS, "pair.middle=2x3"),
        {"weighted.1": 3.0},
        ErrorCode.INPUTS_MISMATCH,
        "the model has no input 'pair.middle'",
    ),
    "a number that is missing": (MIXED_INPUTS, {}, ErrorCode.CONSTANTS_MISSING, "'weighted.1'"),
    "no inputs": ((), {"weighted.1": 3.0}, ErrorCode.INPUTS_MISSING, "'images', 'batch', 'pair.left'"),
}


@pytest.mark.parametrize(("inputs", "constants", "code", "words"), REFUSED.values(), ids=REFUSED)
def test_names_that_do_not_fit_are_refused(
    tmp_path: Path, inputs: tuple[str, ...], constants: dict[str, object], code: ErrorCode, words: str
) -> None:
    error = refusal(mixed(tmp_path / "model"), *inputs, constants=constants)
    assert error.code is code
    assert words in error.detail


def assert_program_agrees(captured: Captured) -> None:
    found = captured.program.module(check_guards=False)(*map(torch.from_numpy, captured.inputs))
    for output, reference in zip(flatten_outputs(found), captured.references, strict=True):
        np.testing.assert_allclose(output.numpy(), reference, rtol=1e-6)


class Keyed(nn.Module):
    def forward(
        self, x: torch.Tensor, extra: dict[str, torch.Tensor], gains: dict[str, float]
    ) -> torch.Tensor:
        return x * extra["mask"] * gains["scale"] + extra["bias"]


class KeyedLists(nn.Module):
    def forward(self, lists: dict[str, list[torch.Tensor]], table: dict[int, torch.Tensor]) -> torch.Tensor:
        return lists["a"][0] + lists["b"][1] + table[7]


class Looked(nn.Module):
    def forward(self, x: torch.Tensor, extra: Any) -> torch.Tensor:
        return x * extra["mask"] + extra["bias"]


FORGOTTEN: dict[str, tuple[Callable[[Path], Path], tuple[str, ...], dict[str, object], str]] = {
    "a tensor": (
        lambda path: scripted(Keyed(), path),
        ("x=2x3", "extra.mask=2x3"),
        {"gains.scale": 2.0, "gains.bias": 1.0},
        "the model reads the key 'bias', which the request does not name: pass `--input extra.bias=SHAPE` (",
    ),
    "a number": (
        lambda path: scripted(Keyed(), path),
        ("x=2x3", "extra.mask=2x3", "extra.bias=2x3", "extra.scale=3"),
        {"gains.other": 2.0},
        "the model reads the key 'scale', which the request does not name: "
        "pass `--constant gains.scale=VALUE` (",
    ),
    "a tensor or a number": (
        lambda path: scripted(Keyed(), path),
        ("x=2x3", "extra.mask=2x3", "extra.bias=2x3"),
        {"gains.other": 2.0},
        "the model reads the key 'scale', which the request does not name: "
        "pass `--input extra.scale=SHAPE` or `--constant gains.scale=VALUE` (",
    ),
    "a list": (
        lambda path: scripted(KeyedLists(), path),
        ("lists.a.0=2x3", "table.7=2x3"),
        {},
        "the model reads the key 'b', which the request does not name: pass `--input lists.b.0=SHAPE` (",
    ),
    "a graph's tensor": (
        lambda path: graph(Looked(), path),
        ("x=2x3", "extra.mask=2x3"),
        {},
        "the model reads the key 'bias', which the request does not name: pass `--input extra.bias=SHAPE` (",
    ),
    "a graph's field": (
        lambda path: graph(Fields(), path),
        ("batch.image=2x3",),
        {},
        "the model reads the field 'mask', which the request does not name: "
        "pass `--input batch.mask=SHAPE`, or `--constant` for a number",
    ),
}


@pytest.mark.parametrize(("save", "inputs", "constants", "words"), FORGOTTEN.values(), ids=FORGOTTEN)
def test_a_value_that_the_request_forgets_is_named_with_its_option(
    save: Callable[[Path], Path],
    inputs: tuple[str, ...],
    constants: dict[str, object],
    words: str,
    tmp_path: Path,
) -> None:
    error = refusal(save(tmp_path / "model"), *inputs, constants=constants)
    assert error.code is ErrorCode.INPUTS_MISMATCH
    assert error.detail.startswith(words)


def test_a_list_that_may_be_too_short_is_named(tmp_path: Path) -> None:
    path = scripted(KeyedLists(), tmp_path / "model")
    error = refusal(path, "lists.a.0=2x3", "lists.b.0=2x3", "table.7=2x3")
    assert error.code is ErrorCode.MODEL_RAISED
    assert error.detail.endswith(
        "if a list that the request names is too short, "
        "pass `--input lists.a.1=SHAPE` or `--input lists.b.1=SHAPE`"
    )


def test_a_key_of_the_models_own_dictionary_stays_its_error(tmp_path: Path) -> None:
    class Own(nn.Module):
        def forward(self, x: torch.Tensor, key: str) -> torch.Tensor:
            return x * {"a": 1.0}[key]

    error = refusal(scripted(Own(), tmp_path / "model"), "x=2x3", constants={"key": "b"})
    assert (error.code, "KeyError: b" in error.detail) == (ErrorCode.MODEL_RAISED, True)


class Filling(nn.Module):
    def forward(self, x: torch.Tensor, fill: float = float("inf")) -> tuple[torch.Tensor, float]:
        return x.clamp(max=fill), fill


@pytest.mark.parametrize("save", [partial(exported, strict=False), scripted])
def test_an_infinite_constant_is_in_the_structure(save: Callable[..., Path], tmp_path: Path) -> None:
    path = save(Filling(), tmp_path / "model", X, float("inf"))
    assert str(inspect_model(path).signature.call).startswith("(x, fill: inf)")
    captured = capture_file(path, "x=2x3")
    call = type(captured.call).model_validate_json(captured.call.model_dump_json())
    assert str(call) == "(x, fill: inf) -> (output, inf)"
