"""Differences between outputs and references, read from NumPy archives without NumPy."""

import io
import zipfile
from math import inf
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from bessemer.gate.arrays import CHUNK_ELEMENTS, ArraysError, copy_arrays
from bessemer.gate.outputs import compare_outputs

Array = np.ndarray[Any, Any]
FLOATS = np.array([[0.5, -2.0], [1.0, 0.0]], np.float32)
LONG = np.arange(2 * CHUNK_ELEMENTS + 3, dtype=np.float32)


def saved(folder: Path, expected: dict[str, Array], found: dict[str, Array]) -> tuple[Path, Path]:
    reference, outputs = folder / "reference.npz", folder / "outputs.npz"
    np.savez(reference, **{f"outputs/{name}": array for name, array in expected.items()})  # type: ignore[arg-type]
    np.savez_compressed(outputs, **found)  # type: ignore[arg-type]
    return reference, outputs


def bits(values: list[float]) -> Array:
    """bfloat16 as invocations and bundles store it."""
    return np.array(values, ml_dtypes.bfloat16).view(np.uint16)


@pytest.mark.parametrize(
    ("expected", "found", "percent"),
    [
        (FLOATS, FLOATS, 0),
        (FLOATS, FLOATS * 0, 100),
        (FLOATS, -FLOATS, 200),
        (FLOATS, FLOATS + np.float32(0.5), 25),
        (FLOATS.astype(np.float16), FLOATS.astype(np.float64), 0),
        (bits([1.0, -4.0]), bits([2.0, -4.0]), 25),
        (bits([1.0, -4.0]), np.array([1.0, -4.0], np.float32), 0),
        (FLOATS * 0, FLOATS * 0, 0),
        (FLOATS * 0, FLOATS, inf),
        (np.float32([np.nan, np.inf, 2]), np.float32([np.nan, np.inf, 1]), 50),
        (np.float32([1, 2]), np.float32([1, np.nan]), inf),
        (np.float32([np.inf, 2]), np.float32([-np.inf, 2]), inf),
        (np.array([1, 2, 3, 4]), np.array([1, 2, 3, 400]), 25),
        (np.array([True, False]), np.array([True, True]), 50),
        (np.array([1, 2], np.int8), np.array([1, 2], np.uint8), 0),
        (LONG, LONG % LONG[-1], 100),
        (np.float32(2), np.float32(1), 50),
        (np.zeros((0, 4), np.float32), np.zeros((0, 4), np.float32), 0),
    ],
)
def test_the_change_is_relative_to_the_largest_value_or_the_share_of_elements(
    tmp_path: Path, expected: Array, found: Array, percent: float
) -> None:
    change = compare_outputs(*saved(tmp_path, {"y": np.asarray(expected)}, {"y": np.asarray(found)}))
    assert change.percent == pytest.approx(percent)


def test_an_entry_point_is_compared_with_the_arrays_of_its_folder_and_without_its_state(
    tmp_path: Path,
) -> None:
    reference, outputs = tmp_path / "reference.npz", tmp_path / "outputs.npz"
    np.savez(reference, **{"outputs/y": FLOATS, "decode/outputs/y": 2 * FLOATS})  # type: ignore[arg-type]
    np.savez(outputs, **{"y": FLOATS, "state.cache": LONG})  # type: ignore[arg-type]
    assert compare_outputs(reference, outputs).percent == 0
    assert compare_outputs(reference, outputs, folder="decode/").percent == 50


def test_the_output_that_changed_most_is_named(tmp_path: Path) -> None:
    expected, found = {"a": FLOATS, "b": FLOATS}, {"b": 2 * FLOATS, "a": FLOATS}
    assert compare_outputs(*saved(tmp_path, expected, found)).detail == (
        "output 'b' differs by up to 2; its largest value was 2"
    )


@pytest.mark.parametrize(
    ("expected", "found", "message"),
    [
        ({"y": FLOATS}, {"y": FLOATS[0]}, "output 'y' has the shape 2, expected 2x2"),
        ({"y": FLOATS}, {"z": FLOATS}, "the outputs are z, expected y"),
        ({}, {"y": FLOATS}, "has no array whose name starts with 'outputs/'"),
        ({"y": np.asfortranarray(FLOATS)}, {"y": FLOATS}, "in Fortran order"),
        ({"y": FLOATS.astype(np.uint32)}, {"y": FLOATS}, "the unsupported dtype '<u4'"),
        ({"y": FLOATS.astype(np.complex64)}, {"y": FLOATS}, "output 'y' is '<f4', expected '<c8'"),
    ],
)
def test_incomparable_outputs_have_a_reason(
    tmp_path: Path, expected: dict[str, Array], found: dict[str, Array], message: str
) -> None:
    with pytest.raises(ArraysError) as raised:
        compare_outputs(*saved(tmp_path, expected, found))
    assert message in str(raised.value)


def test_renamed_outputs_are_compared_by_position_with_a_note(tmp_path: Path) -> None:
    labels = np.array([1, 2])
    expected, found = {"output_0": FLOATS, "output_1": labels}, {"logits": FLOATS * 0, "a_label": labels}
    change = compare_outputs(*saved(tmp_path, expected, found), by_position=True)
    assert (change.percent, change.detail.split("'")[1]) == (100, "logits")
    assert change.note == (
        "the outputs are logits, a_label, expected output_0, output_1: compared by position"
    )
    assert not compare_outputs(*saved(tmp_path, found, found), by_position=True).note


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ({"a": FLOATS}, {"b": FLOATS, "c": FLOATS}),
        ({"a": FLOATS}, {"b": FLOATS[0]}),
        ({"a": FLOATS}, {"b": FLOATS.astype(np.float64)}),
        ({"a": FLOATS, "b": FLOATS}, {"b": FLOATS, "c": FLOATS}),
    ],
    ids=["number", "shape", "dtype", "moved"],
)
def test_outputs_that_differ_in_more_than_names_are_not_compared_by_position(
    tmp_path: Path, expected: dict[str, Array], found: dict[str, Array]
) -> None:
    with pytest.raises(ArraysError, match="the outputs are b"):
        compare_outputs(*saved(tmp_path, expected, found), by_position=True)


def packed(*members: tuple[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members:
            archive.writestr(name, data)
    return buffer.getvalue()


def npy(header: bytes, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


def damaged_lzma() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("outputs/y.npy", npy(SCALAR, bytes(4)))
    content = bytearray(buffer.getvalue())
    start = 30 + len("outputs/y.npy")
    content[start + 12 : start + 20] = b"\xff" * 8
    return bytes(content)


SCALAR = b"{'descr': '<f4', 'fortran_order': False, 'shape': ()}"
INFINITE = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1e999,)}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"nothing", "cannot be read as an .npz file"),
        (packed(("outputs/y.npy", b"nonsense")), "is not a .npy file"),
        (packed(("outputs/y.npy", npy(SCALAR, b"12"))), "ends too early"),
        (packed(("outputs/y.npy", npy(b"{}"))), "has a header that cannot be read"),
        (packed(("outputs/y.npy", npy(b"(" * 200))), "has a header that cannot be read"),
        (packed(("outputs/y.npy", npy(INFINITE))), "has a header that cannot be read"),
        (packed(("outputs/y.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xff")), "a header of 4294967295 bytes"),
        (packed(("outputs/\u00e9.npy", b"")).replace(b"\xc3\xa9", b"\xc3\xc3"), "cannot be read as an .npz"),
        (damaged_lzma(), "cannot be read as an .npz file"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    _, found = saved(tmp_path, {}, {"y": np.float32(1)})
    (tmp_path / "reference.npz").write_bytes(content)
    with pytest.raises(ArraysError) as raised:
        compare_outputs(tmp_path / "reference.npz", found)
    assert message in str(raised.value)


def test_the_inputs_of_a_reference_become_a_file_of_their_own(tmp_path: Path) -> None:
    np.savez(tmp_path / "reference.npz", **{"inputs/x.1": FLOATS, "outputs/y": FLOATS})  # type: ignore[arg-type]
    copy_arrays(tmp_path / "reference.npz", "inputs/", tmp_path / "inputs.npz")
    with np.load(tmp_path / "inputs.npz") as inputs:
        assert inputs.files == ["x.1"]
        np.testing.assert_array_equal(inputs["x.1"], FLOATS)


@pytest.mark.parametrize("damaged", [0, 1], ids=["reference", "outputs"])
def test_the_damaged_file_of_two_is_named(tmp_path: Path, damaged: int) -> None:
    files = saved(tmp_path, {"y": LONG}, {"y": LONG})
    content = bytearray(files[damaged].read_bytes())
    content[len(content) // 2] ^= 1
    files[damaged].write_bytes(content)
    with pytest.raises(ArraysError, match=files[damaged].name):
        compare_outputs(*files)
