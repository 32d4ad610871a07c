"""A refusal names the cause and its line in the model, and gives advice."""

import io
import re
import sys
import types
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from capture_samples import Within, capture_file, exported, graph, refusal, scripted, traced
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from bessemer.contract.problem import ErrorCode
from worker.compiler.frontend.load import inspect_model


def line_of(text: str) -> int:
    """The line of this file that ends with a text."""
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(text))


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1  # counts
        return x + self.calls


def test_a_number_that_changes_is_named_with_the_line_that_changes_it(tmp_path: Path) -> None:
    error = refusal(scripted(Within(Counting().eval()).eval(), tmp_path / "model"), "x=2x4")
    assert error.code is ErrorCode.MODEL_STATEFUL
    assert "forward changes 'inner.calls'" in error.detail
    assert error.places[0].module_path == "inner"
    assert error.places[0].line == line_of("# counts")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("save", [scripted, traced])
def test_a_submodule_in_training_mode_is_named(
    tmp_path: Path, save: Callable[[nn.Module, Path], Path]
) -> None:
    module = Within(nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.BatchNorm1d(4))).train()
    error = refusal(save(module, tmp_path / "model"), "x=2x4")
    assert error.code is ErrorCode.MODEL_STATEFUL
    assert error.detail.endswith("submodules in training mode: inner.2")


class Packing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 4, batch_first=True)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x)[0]


def quantized(module: nn.Module, kind: type[nn.Module]) -> nn.Module:
    with warnings.catch_warnings(action="ignore"):
        return torch.ao.quantization.quantize_dynamic(module.eval(), {kind}, dtype=torch.qint8)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("save", [scripted, traced, graph])
def test_a_dynamically_quantized_model_names_its_modules_once(
    tmp_path: Path, save: Callable[[nn.Module, Path], Path]
) -> None:
    module = quantized(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), nn.Linear)
    error = refusal(save(module, tmp_path / "model"))
    assert error.code is ErrorCode.MODEL_TENSORS_UNSUPPORTED
    assert error.detail.startswith("quantized modules: '0', '2'; compile the float model")
    assert [place.module_path for place in error.places] == ["0", "2"]


@pytest.mark.filterwarnings("ignore")
def test_a_dynamically_quantized_recurrent_layer_is_named(tmp_path: Path) -> None:
    error = refusal(scripted(quantized(Recurrent(), nn.LSTM), tmp_path / "model"), "x=3x2x4")
    assert error.code is ErrorCode.MODEL_TENSORS_UNSUPPORTED
    assert error.detail.startswith("quantized modules: 'lstm';")


@pytest.mark.parametrize(
    ("package", "says"),
    [
        ("torchao", "save `torch.export.export(model, inputs).run_decompositions()`"),
        ("users_own", "the file needs the package 'users_own'"),
    ],
)
def test_a_program_that_needs_a_package_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, says: str
) -> None:
    module, pickled = types.ModuleType(package), io.BytesIO()
    exec("class Tensor: pass", module.__dict__)
    monkeypatch.setitem(sys.modules, package, module)
    torch.save(module.Tensor(), pickled)
    monkeypatch.delitem(sys.modules, package)
    exported(nn.Linear(4, 4), tmp_path / "float")
    with zipfile.ZipFile(tmp_path / "float") as old, zipfile.ZipFile(tmp_path / "model", "w") as new:
        for entry in old.infolist():
            data = old.read(entry)
            if entry.filename.endswith("_weights_config.json"):
                data = re.sub(rb'"use_pickle": *false', b'"use_pickle": true', data)
            elif "/weights/" in entry.filename:
                data = pickled.getvalue()
            new.writestr(entry.filename, data)

    error = refusal(tmp_path / "model")

    assert error.code is ErrorCode.MODEL_LOAD_FAILED
    assert says in error.detail
    assert f"No module named '{package}'" in error.detail


class WithMethods(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    @torch.jit.export
    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)

    @torch.jit.export
    def decode(self, x: torch.Tensor) -> torch.Tensor:
        return self._activated(self.linear(x))

    def _activated(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu()


class WithForward(WithMethods):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.decode(self.encode(x))


def test_a_script_without_forward_lists_its_methods(tmp_path: Path) -> None:
    error = refusal(scripted(WithMethods(), tmp_path / "model"), "x=2x4")
    assert error.code is ErrorCode.MODEL_FORWARD_MISSING
    assert error.detail == "the model has 'decode', 'encode', but no 'forward'"


def test_the_methods_besides_forward_are_found(tmp_path: Path) -> None:
    path = scripted(WithForward(), tmp_path / "model")
    assert inspect_model(path).other_methods == ("decode", "encode")
    assert capture_file(path, "x=2x4").other_methods == ("decode", "encode")


def test_a_missing_input_is_named_as_one_of_forward(tmp_path: Path) -> None:
    error = refusal(scripted(Packing(), tmp_path / "model"), "x=2x3x4")
    assert error.code is ErrorCode.INPUTS_MISMATCH
    assert error.detail.startswith("forward's input 'lengths' is missing; expected x, lengths")
