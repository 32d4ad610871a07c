"""How the runner reads ``params.safetensors``."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bessemer.bundle.run import BundleError, ParameterReader

ENTRY = {
    "file": "params.safetensors",
    "prepare": "prepare",
    "tensors": [
        {"name": "0.weight", "shape": [2, 3], "dtype": "float32"},
        {"name": "0.half", "shape": [2], "dtype": "bfloat16"},
        {"name": "count", "shape": [], "dtype": "int64"},
    ],
}
HEADER = {
    "__metadata__": {"format": "pt"},
    "0.half": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]},
    "count": {"dtype": "I64", "shape": [], "data_offsets": [4, 12]},
    "0.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [12, 36]},
}
WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3)
DATA = np.array([1, 2], np.uint16).tobytes() + np.int64(7).tobytes() + WEIGHT.tobytes()


def write(folder: Path, header: Any, data: bytes = DATA) -> Path:
    text = json.dumps(header).encode()
    path = folder / "params.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def test_tensors_come_in_the_librarys_order(tmp_path: Path) -> None:
    weight, half, count = ParameterReader(ENTRY).read(write(tmp_path, HEADER))
    np.testing.assert_array_equal(weight, WEIGHT)
    np.testing.assert_array_equal(half, np.array([1, 2], np.uint16))
    assert count.shape == ()
    assert int(count) == 7


def entry(**change: Any) -> dict[str, Any]:
    return {**HEADER, "0.weight": {**HEADER["0.weight"], **change}}


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({**HEADER, "1.weight": HEADER["count"]}, "a tensor '1.weight' that the model does not have"),
        ({"count": HEADER["count"]}, "it has no tensor '0.half', '0.weight'"),
        (entry(shape=[3, 2]), "it has 0.weight=3x2:float32, expected 0.weight=2x3:float32"),
        (entry(dtype="I32"), "it has 0.weight=2x3:int32, expected 0.weight=2x3:float32"),
        (entry(dtype="F8"), "the entry of '0.weight' cannot be read"),
        (entry(data_offsets=[12, 4000]), "lie outside the file"),
        (entry(data_offsets=[12, 32]), "too few"),
        (entry(data_offsets=[-24, 0]), "lie outside the file"),
        (entry(shape=[float("inf"), 3]), "the entry of '0.weight' cannot be read"),
        (entry(data_offsets="ab"), "the entry of '0.weight' cannot be read"),
        ({**HEADER, "0.weight": 3}, "the entry of '0.weight' cannot be read"),
        ([1], "the header is not a JSON object"),
    ],
)
def test_a_mismatched_parameter_file_is_refused_with_a_reason(
    tmp_path: Path, header: Any, words: str
) -> None:
    with pytest.raises(BundleError, match=words):
        ParameterReader(ENTRY).read(write(tmp_path, header))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"abc",
        b"\xff" * 64,
        (9).to_bytes(8, "little") + b"{" * 9,
        (99_999).to_bytes(8, "little") + b"[" * 99_999,
    ],
    ids=["empty", "short", "header too long", "invalid JSON", "nested too deep"],
)
def test_a_file_of_another_format_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "params.safetensors"
    path.write_bytes(content)
    with pytest.raises(BundleError, match=r"cannot be read as a \.safetensors file"):
        ParameterReader(ENTRY).read(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"nowhere\.safetensors cannot be read as a \.safetensors file"):
        ParameterReader(ENTRY).read(tmp_path / "nowhere.safetensors")
