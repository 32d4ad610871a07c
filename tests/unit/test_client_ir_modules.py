"""IRModules with arrays beside them, as one file."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
import tvm
from tvm import relax

from bessemer.cli.model_argument import call_entry_point, resolved_model, with_beside
from bessemer.client.ir_modules import Beside, ir_module_bytes, is_ir_module, packed
from bessemer.errors import InvalidArgumentError

SCRIPT = b"import tvm\n"


def module() -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.add(x, x)))
    return builder.get()


def test_an_ir_module_is_uploaded_as_tvms_json() -> None:
    assert is_ir_module(module())
    tvm.ir.assert_structural_equal(tvm.ir.load_json(ir_module_bytes(module()).decode()), module())
    assert not is_ir_module(torch.nn.ReLU())


def test_arrays_lie_beside_the_module_and_equal_contents_give_equal_bytes(tmp_path: Path) -> None:
    weights = tmp_path / "w.safetensors"
    weights.write_bytes(b"tensors")
    beside = Beside(weights, {"x": np.ones(4, np.float32), "output": torch.ones(4)})

    archive = packed(SCRIPT, beside)

    assert archive == packed(SCRIPT, beside)
    with zipfile.ZipFile(io.BytesIO(archive)) as found:
        assert found.namelist() == ["module.py", "weights.safetensors", "reference.npz"]
        with np.load(io.BytesIO(found.read("reference.npz"))) as arrays:
            assert sorted(arrays.files) == ["output", "x"]
    assert zipfile.ZipFile(io.BytesIO(packed(b' {"nodes": []}', beside))).namelist()[0] == "module.json"


@pytest.mark.parametrize(
    ("beside", "words"),
    [
        (Beside(weights="weights.pt"), "weights.pt is not a .npz or .safetensors file"),
        (Beside(reference="outputs.safetensors"), "outputs.safetensors is not a .npz file"),
        (Beside(weights="/nowhere/weights.npz"), "cannot be read: No such file"),
    ],
)
def test_other_files_are_refused(beside: Beside, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        packed(SCRIPT, beside)


def test_a_python_file_that_uses_tvm_is_uploaded_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_bytes(SCRIPT)
    with resolved_model(str(tmp_path / "program.py")) as found:
        assert found.source == tmp_path / "program.py"
        with with_beside(found, Beside(weights={"w": np.ones(2)})) as both:
            assert isinstance(both.source, Path) and zipfile.is_zipfile(both.source)

    (tmp_path / "net.py").write_text("import torch\n")
    with (
        pytest.raises(InvalidArgumentError, match=r"name the function"),
        resolved_model(str(tmp_path / "net.py")),
    ):
        pass


def test_a_function_may_return_an_ir_module(tmp_path: Path) -> None:
    (tmp_path / "building.py").write_text(
        "from tvm import relax\n"
        "def export():\n"
        "    builder = relax.BlockBuilder()\n"
        "    x = relax.Var('x', relax.TensorType((4,), 'float32'))\n"
        "    with builder.function('main', [x]):\n"
        "        builder.emit_func_output(x)\n"
        "    return builder.get()\n"
    )
    found = call_entry_point(f"{tmp_path / 'building.py'}:export", tmp_path)

    assert isinstance(found.source, Path)
    assert isinstance(tvm.ir.load_json(found.source.read_text()), tvm.IRModule)
