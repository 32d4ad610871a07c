"""Formats are recognized by the bytes that torch writes, not by the file name."""

import io
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from bessemer.contract.model import ModelFormat
from bessemer.contract.problem import ErrorCode
from examples.models import EXAMPLES
from examples.models.save import SavedAs, save
from worker.compiler.frontend.file_format import recognize
from worker.errors import JobError

EXPECTED = {
    SavedAs.PT2: ModelFormat.PT2,
    SavedAs.TRACED: ModelFormat.TORCHSCRIPT,
    SavedAs.SCRIPTED: ModelFormat.TORCHSCRIPT,
    SavedAs.FX: ModelFormat.FX,
}


def refusal(path: Path) -> JobError:
    with pytest.raises(JobError) as caught:
        recognize(path)
    return caught.value


@pytest.mark.parametrize("saved_as", SavedAs)
@pytest.mark.parametrize("name", ["model", "model.onnx", "weights.safetensors"])
def test_a_format_is_recognized_under_any_file_name(tmp_path: Path, saved_as: SavedAs, name: str) -> None:
    save(EXAMPLES["mlp"], saved_as, tmp_path / name)
    assert recognize(tmp_path / name) is EXPECTED[saved_as]


def test_a_graph_module_in_the_legacy_format_is_found(tmp_path: Path) -> None:
    graph_module = torch.fx.symbolic_trace(EXAMPLES["mlp"].build())
    torch.save(graph_module, tmp_path / "model", _use_new_zipfile_serialization=False)
    assert recognize(tmp_path / "model") is ModelFormat.FX


@pytest.mark.parametrize("saved_as", SavedAs)
def test_a_truncated_model_is_damaged(tmp_path: Path, saved_as: SavedAs) -> None:
    path = tmp_path / "model"
    save(EXAMPLES["mlp"], saved_as, path)
    path.write_bytes(path.read_bytes()[:100_000])
    assert refusal(path).code is ErrorCode.MODEL_DAMAGED


@pytest.mark.parametrize("saved_as", SavedAs)
def test_a_flipped_weight_is_damage(tmp_path: Path, saved_as: SavedAs) -> None:
    path = tmp_path / "model"
    save(EXAMPLES["mlp"], saved_as, path)
    content = bytearray(path.read_bytes())
    content[200_000] ^= 1
    path.write_bytes(content)
    assert refusal(path).code is ErrorCode.MODEL_DAMAGED


def test_checksums_that_torch_omitted_are_not_required(tmp_path: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        save(EXAMPLES["mlp"], SavedAs.FX, tmp_path / "model")
    finally:
        torch.serialization.set_crc32_options(True)
    assert recognize(tmp_path / "model") is ModelFormat.FX


def saved(value: object, legacy: bool = False) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer, _use_new_zipfile_serialization=not legacy)
    return buffer.getvalue()


def npz() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, a=np.zeros(3))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: saved(EXAMPLES["mlp"].build().state_dict()), "a state_dict or checkpoint"),
        (lambda: saved(EXAMPLES["mlp"].build().state_dict(), legacy=True), "a state_dict or checkpoint"),
        (lambda: saved({"model": {}, "epoch": 3}), "a state_dict or checkpoint"),
        (lambda: saved(torch.ones(3)), "a single tensor"),
        (lambda: saved(torch.nn.Linear(2, 2)), "a pickled object of torch.nn.modules.linear.Linear"),
        (lambda: pickle.dumps({"a": 1}), "a plain pickle of dict"),
        (lambda: np.random.default_rng(0).bytes(5000), "neither a zip archive"),
        (lambda: b"\x08\x09\x12\x07pytorch\x1a\x052.1.0:\x10", "an ONNX file"),
        (lambda: (80).to_bytes(8, "little") + b'{"a":{"dtype":"F32"', "a safetensors file"),
        (lambda: b"\x89HDF\r\n\x1a\n" + bytes(100), "an HDF5 file"),
        (lambda: b"GGUF" + bytes(100), "a GGUF file"),
        (npz, "a NumPy archive"),
        (lambda: b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (lambda: b"", "the file is empty"),
    ],
)
def test_other_file_formats_are_refused_by_name(
    tmp_path: Path, make: Callable[[], bytes], message: str
) -> None:
    path = tmp_path / "model.pt2"
    path.write_bytes(make())
    error = refusal(path)
    assert error.code is ErrorCode.MODEL_NOT_RECOGNIZED
    assert message in error.detail
