"""An output keeps the model's name, made safe for files, arguments and pages."""

import re
from collections import OrderedDict, defaultdict
from typing import NamedTuple

import pytest
import torch
from torch.utils import _pytree as pytree

from bessemer.contract.tensor import TENSOR_NAME_PATTERN
from worker.compiler.frontend.outputs import output_names

T = torch.zeros(2, 2)


class Moments(NamedTuple):
    mean: object
    std: object


STRUCTURES: dict[str, tuple[object, tuple[str, ...]]] = {
    "one tensor": (T, ("output",)),
    "a tuple of one": ((T,), ("output",)),
    "a tuple": ((T, T), ("output_0", "output_1")),
    "nested tuples, as of an LSTM": ((T, (T, T)), ("output_0", "output_1", "output_2")),
    "a tuple with None": ((None, T, T), ("output_0", "output_1")),
    "a dictionary": ({"logits": T, "hidden": T}, ("logits", "hidden")),
    "a dictionary of one": ({"logits": T}, ("logits",)),
    "a dictionary with None": ({"loss": None, "logits": T}, ("logits",)),
    "an ordered dictionary": (OrderedDict(z=T, a=T), ("z", "a")),
    "a dictionary with a default": (defaultdict(list, q=T), ("q",)),
    "a named tuple": (Moments(T, T), ("mean", "std")),
    "torch.max": (torch.max(T, 1), ("values", "indices")),
    "nested": ({"a": {"b": (T, [T])}, "m": Moments(T, None)}, ("a.b.0", "a.b.1.0", "m.mean")),
    "names below a tuple": ((T, {"extra": T}), ("output_0", "output_1.extra")),
    "the same tensor twice": ({"a": T, "b": T}, ("a", "b")),
}
HOSTILE: dict[str, tuple[dict[object, object], tuple[str, ...]]] = {
    "numbers": ({0: T, 7: T}, ("output_0", "output_7")),
    "a leading digit": ({"1x1": T}, ("output_1x1",)),
    "spaces": ({"a b": T, "a_b": T, "a.b": T}, ("a_b", "a_b_2", "a.b")),
    "a number that another one has": ({"a b": T, "a-b": T, "a_b_2": T}, ("a_b", "a_b_3", "a_b_2")),
    "a nested name that reads like a flat one": ({"a.b": T, "a": {"b": T}}, ("a.b", "a.b_2")),
    "a way out": ({"../../etc/passwd": T}, ("output__.._etc_passwd",)),
    "a leading dot": ({".hidden": T}, ("output_hidden",)),
    "nothing": ({"": T, "x": T}, ("output_0", "x")),
    "no safe letters": ({"模型": T, "→": T}, ("output_0", "output_1")),
    "markup": ({'<img src="x">': T}, ("_img_src__x__",)),
    "a line's end": ({"a\nb\x00c": T}, ("a_b_c",)),
    "a tuple": ({("a", 1): T}, ("__a___1_",)),
    "length": ({"a" * 200: T, "a" * 201: T}, ("a" * 128, "a" * 126 + "_2")),
    "depth": ({"k" * 90: {"v" * 90: T}}, ("k" * 90 + "." + "v" * 37,)),
}


@pytest.mark.parametrize("case", [*STRUCTURES, *HOSTILE])
def test_outputs_are_named_by_keys_fields_and_positions(case: str) -> None:
    result, expected = (STRUCTURES | HOSTILE)[case]
    leaves, structure = pytree.tree_flatten(result)
    names = output_names(structure, [leaf is not None for leaf in leaves])
    assert names == expected
    assert all(re.match(TENSOR_NAME_PATTERN, name) for name in names)
