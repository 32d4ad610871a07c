"""Inputs of invocations: two formats, recognized by their bytes; others are refused by name."""

import io
import json
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from worker.errors import JobError
from worker.job.input_files import read_inputs

X = np.arange(6, dtype=np.float32).reshape(2, 3)
MASK = np.array([True, False])


def npz(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def safetensors(header: object, data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype: str, shape: list[int], start: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def pickled() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, x=np.array([object()], dtype=object), allow_pickle=True)
    return buffer.getvalue()


def zipped(name: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        npz(x=X, mask=MASK),
        safetensors(
            {
                "__metadata__": {"made": "here"},
                "x": entry("F32", [2, 3], 0, 24),
                "mask": entry("BOOL", [2], 24, 26),
            },
            X.tobytes() + MASK.tobytes(),
        ),
    ],
    ids=["npz", "safetensors"],
)
def test_both_formats_give_the_same_arrays(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "inputs").write_bytes(content)
    arrays = read_inputs(tmp_path / "inputs")
    assert (arrays["x"] == X).all()
    assert (arrays["mask"] == MASK).all()
    assert {name: str(array.dtype) for name, array in arrays.items()} == {"x": "float32", "mask": "bool"}


def test_bfloat16_comes_as_its_bits(tmp_path: Path) -> None:
    (tmp_path / "inputs").write_bytes(safetensors({"x": entry("BF16", [2], 0, 4)}, b"\x80\x3f\x00\x40"))
    assert read_inputs(tmp_path / "inputs")["x"].tolist() == [0x3F80, 0x4000]


def single_array() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, X)
    return buffer.getvalue()


def array_of_shape(shape: str) -> bytes:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def named_twice(first: str, second: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(first, single_array())
        archive.writestr(second, single_array())
    return buffer.getvalue()


UNREADABLE = (
    b"x",
    b"PK",
    b"PK\x03\x04 and nothing else",
    npz(x=X)[:-30],
    zipped("x.npy", b"no array"),
    zipped("x.npy", b"\x93NUMPY\x01\x00\xff\xff"),
    pickled(),
    struct.pack("<Q", 1 << 62) + b"{}",
    safetensors([1]),
    safetensors({"x": "y"}),
    safetensors({"x": entry("F32", [2, 3], 0, 24)}, b"too short"),
    safetensors({"x": entry("F32", [2, 3], 8, 4)}, bytes(24)),
    safetensors({"x": entry("F32", [-1], 0, 24)}, bytes(24))[:30],
    safetensors({"x": entry("F12", [6], 0, 24)}, bytes(24)),
    safetensors({"x": entry("F32", [7], 0, 24)}, bytes(24)),
    b"[" * 100_000,
)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *((content, "") for content in UNREADABLE),
        (b"hello", "not a readable .npz or .safetensors file"),
        (single_array(), "`numpy.savez`"),
        (named_twice("x", "x.npy"), "'x' twice"),
        (zipped("x.npy", array_of_shape("(0, 999999999999999999999999)")), "cannot be read as an .npz file"),
        (zipped("x.npy", array_of_shape("(785000000000000,)")), "'x' is larger by its header than its data"),
        (zipped("x.npy", array_of_shape("(True, 6)")), "cannot be read as an .npz file"),
        (safetensors({"x": entry("F8_E4M3", [6], 0, 6)}, bytes(6)), "'x' has the dtype F8_E4M3"),
        (struct.pack("<Q", 9000) + b"[" * 9000, "its header is not JSON"),
        (struct.pack("<Q", 14) + b'{"x":1, "x":2}', "a key occurs twice"),
    ],
    ids=range(25),
)
def test_a_file_that_cannot_be_read_is_explained_in_terms_of_its_format(
    tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "inputs").write_bytes(content)
    with pytest.raises(JobError) as caught:
        read_inputs(tmp_path / "inputs")
    assert caught.value.code == "inputs-unreadable"
    assert message in caught.value.detail
    assert str(tmp_path) not in caught.value.detail
