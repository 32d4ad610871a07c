"""A call with the model's own arguments becomes named arrays, and named outputs become its own result."""

import json
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bessemer.bundle.run import BundleError, Call, Entry, InputError, Model
from bessemer.contract.structure import (
    ArgumentStructure,
    CallStructure,
    ConstantLeaf,
    Container,
    ContainerKind,
    Structure,
    TensorLeaf,
)

A, B, C, D, E = (np.full(2, float(number)) for number in range(5))
Pair = namedtuple("Pair", "left right")


def of(kind: ContainerKind, *items: Structure, keys: tuple[Any, ...] = ()) -> Container:
    return Container(container=kind, keys=keys, items=items)


def tensor(name: str) -> TensorLeaf:
    return TensorLeaf(tensor=name)


LEFT_RIGHT = ("left", "right")
NONE = ConstantLeaf(constant=None)
IMAGES = of(ContainerKind.LIST, tensor("images.0"), tensor("images.1"))
BATCH = of(ContainerKind.DICT, tensor("batch.image"), NONE, keys=("image", 7))
PAIR = of(ContainerKind.NAMED_TUPLE, tensor("pair.left"), ConstantLeaf(constant=2.5), keys=LEFT_RIGHT)
OPTIONS = of(ContainerKind.OBJECT, tensor("options.mask"), ConstantLeaf(constant=True), keys=("mask", "fast"))
STRUCTURE = CallStructure(
    arguments=(
        ArgumentStructure(name="images", structure=IMAGES),
        ArgumentStructure(name="batch", structure=BATCH),
        ArgumentStructure(name="pair", structure=PAIR),
        ArgumentStructure(name="hook"),
        ArgumentStructure(name="options", structure=OPTIONS, keyword_only=True),
    ),
    returns=of(
        ContainerKind.DICT,
        of(ContainerKind.LIST, tensor("boxes.0"), NONE),
        of(ContainerKind.NAMED_TUPLE, tensor("pair.left"), ConstantLeaf(constant=3), keys=LEFT_RIGHT),
        of(ContainerKind.OBJECT, tensor("heads.mask"), NONE, keys=("mask", "loss")),
        of(ContainerKind.TUPLE, tensor("both")),
        keys=("boxes", "pair", 0, "both"),
    ),
)
CALL = Call(STRUCTURE.model_dump(mode="json"))
FLAT = {"images.0": A, "images.1": B, "batch.image": C, "pair.left": D, "options.mask": E}

CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "every value": (([A, B], {"image": C, 7: None}, (D, 2.5), None), {"options": {"mask": E, "fast": True}}),
    "constants left out": (((A, B), {"image": C}, Pair(D, 2.5)), {"options": SimpleNamespace(mask=E)}),
    "by name": (
        (),
        {"images": [A, B], "batch": {"image": C}, "pair": {"left": D}, "options": {"mask": E}},
    ),
    "numbers of NumPy": (([A, B], {"image": C}, (D, np.float32(2.5))), {"options": {"mask": E}}),
}


@pytest.mark.parametrize(("args", "kwargs"), CALLS.values(), ids=CALLS)
def test_arguments_become_arrays_by_name(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    arrays = CALL.flatten(args, kwargs)
    assert list(arrays) == list(FLAT)
    assert all(arrays[name] is array for name, array in FLAT.items())


GOOD: dict[str, Any] = {"images": [A, B], "batch": {"image": C}, "pair": (D, 2.5), "options": {"mask": E}}
REFUSED: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "a missing argument": ((), {"images": None}, "missing 'images.0'"),
    "a missing key": ((), {"batch": {}}, "missing 'batch.image'"),
    "a missing field": ((), {"options": SimpleNamespace(fast=True)}, "missing 'options.mask'"),
    "too few values": ((), {"images": [A]}, "'images' has the length 1, expected 2"),
    "too many values": ((), {"pair": (D, 2.5, E)}, "'pair' has the length 3, expected 2"),
    "an unknown argument": ((), {"image": A}, "unknown argument 'image'"),
    "an unknown key": ((), {"batch": {"image": C, "masks": D}}, "unknown key 'masks' in 'batch'"),
    "an unknown field": ((), {"options": {"mask": E, "slow": 1}}, "unknown key 'slow' in 'options'"),
    "an argument given twice": (([A, B],), {}, "argument 'images' is given twice"),
    "too many arguments": ((1, 2, 3, 4, 5), {}, "got 5 arguments by position, expected 4"),
    "an array for a list": ((), {"images": A}, "'images' is a ndarray, expected [images.0, images.1]"),
    "a list for a dictionary": (
        (),
        {"batch": [C]},
        "'batch' is a list, expected {'image': batch.image, 7: None}",
    ),
    "a list for an array": ((), {"images": [[A], B]}, "'images.0' is a list, expected an array"),
    "another number": ((), {"pair": (D, 3)}, "'pair.right' is 3, but the library is compiled for 2.5"),
    "a number for a boolean": (
        (),
        {"options": {"mask": E, "fast": 1}},
        "'options.fast' is 1, but the library is compiled for True",
    ),
    "an array for None": (
        (),
        {"batch": {"image": C, 7: D}},
        "'batch.7' is a ndarray, but the library is compiled for None",
    ),
    "a default": ((), {"hook": A}, "'hook' was left to the model's default when it was compiled"),
}


@pytest.mark.parametrize(("args", "kwargs", "message"), REFUSED.values(), ids=REFUSED)
def test_an_error_names_the_value_and_the_models_arguments(
    args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        CALL.flatten(args, {**GOOD, **kwargs})
    takes = str(STRUCTURE).partition(" -> ")[0].replace("hook: any", "hook")
    assert str(caught.value) == f"{message}; the model takes {takes}"


def test_outputs_become_the_models_result() -> None:
    result = CALL.restore({"boxes.0": A, "pair.left": B, "heads.mask": C, "both": D})
    assert list(result) == ["boxes", "pair", 0, "both"]
    assert result["boxes"][0] is A
    assert result["boxes"][1] is None
    left, right = result["pair"]
    assert (left is B, right, result["pair"].right) == (True, 3, 3)
    assert (result[0].mask is C, result[0].loss) == (True, None)
    assert result["both"] == (D,)


def test_an_empty_dictionary_is_passed_as_such() -> None:
    argument = ArgumentStructure(name="extras", structure=of(ContainerKind.DICT))
    document = CallStructure(arguments=(argument,), returns=NONE).model_dump(mode="json")
    assert Call(document).flatten(({},), {}) == {}
    with pytest.raises(InputError, match="unknown key 'a' in 'extras'"):
        Call(document).flatten(({"a": A},), {})


def nested(depth: int) -> dict[str, Any]:
    structure: dict[str, Any] = {"constant": None}
    for _ in range(depth):
        structure = {"container": "list", "keys": [], "items": [structure]}
    return structure


DAMAGED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a result nested too deeply": ({"constant": None}, nested(10_000)),
    "an argument nested too deeply": (nested(10_000), {"constant": None}),
    "an unknown output": ({"constant": None}, {"tensor": "missing"}),
    "a container without items": ({"constant": None}, {"container": "list"}),
    "an invalid field": (
        {"constant": None},
        {"container": "named_tuple", "keys": ["1"], "items": [{"constant": None}]},
    ),
}


@pytest.mark.parametrize(("argument", "returns"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_structure_is_reported(
    argument: dict[str, Any], returns: dict[str, Any], tmp_path: Path
) -> None:
    call = {
        "arguments": [{"name": "x", "structure": argument, "keyword_only": False}],
        "returns": returns,
    }
    entry = Entry(tmp_path, {"inputs": [], "outputs": [], "call": call}, list)
    with pytest.raises(BundleError, match="damaged"):
        Model(tmp_path, {}, [entry], 1)()


INFINITE, NAN = ConstantLeaf.of(float("-inf")), ConstantLeaf.of(float("nan"))


def test_floats_that_json_does_not_have_stay_the_models_constants() -> None:
    structure = CallStructure(
        arguments=(
            ArgumentStructure(name="fill", structure=INFINITE),
            ArgumentStructure(name="other", structure=NAN),
        ),
        returns=of(ContainerKind.LIST, INFINITE, NAN),
    )
    text = structure.model_dump_json()
    assert CallStructure.model_validate_json(text) == structure
    call = Call(json.loads(text))
    assert call.flatten((float("-inf"), np.float32("nan")), {}) == {}
    with pytest.raises(InputError, match="'fill' is None, but the library is compiled for -inf"):
        call.flatten((None,), {})
    infinite, nan = call.restore({})
    assert (infinite, nan != nan) == (float("-inf"), True)
    assert str(structure) == "(fill: -inf, other: nan) -> [-inf, nan]"
