"""Writes a real bundle: ``python make_runnable_bundle.py FOLDER``. Its model has one output of each kind.

A process of its own, since the tests that use the bundle must not have TVM in theirs.
"""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

import bessemer.bundle.run as runner

ROWS, COLUMNS, CORES = 2, 4, 2


def build(weight: np.ndarray) -> relax.VMExecutable:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((ROWS, COLUMNS), "float32"))
    i = relax.Var("i", relax.TensorType((ROWS,), "int64"))
    b = relax.Var("b", relax.TensorType((ROWS, COLUMNS), "bfloat16"))
    with builder.function("main", [x, i, b]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(x, relax.const(weight)))
            half = builder.emit(relax.op.astype(x, "float16"))
            doubled = builder.emit(relax.op.add(i, i))
            same = builder.emit(relax.op.add(b, relax.const(0.0, "bfloat16")))
            positive = builder.emit(relax.op.greater(x, relax.const(0.0)))
            result = relax.Tuple([product, relax.Tuple([half, doubled]), positive, same])
            output = builder.emit_output(result)
        builder.emit_func_output(output)
    return tvm.compile(builder.get(), tvm.target.Target({"kind": "llvm", "num-cores": CORES}))


def link(output: str, objects: list[str], *_: object, **__: object) -> None:
    command = [sys.executable, "-m", "ziglang", "ld.lld", "-shared", "-o", output, *objects]
    subprocess.run(command, check=True)


def specs(arrays: dict[str, np.ndarray]) -> list[dict[str, object]]:
    brain = ("b", "same")
    return [
        {
            "name": name,
            "shape": list(array.shape),
            "dtype": "bfloat16" if name in brain else str(array.dtype),
        }
        for name, array in arrays.items()
    ]


def described(folder: Path, name: str) -> dict[str, object]:
    content = (folder / name).read_bytes()
    return {"path": name, "digest": hashlib.sha256(content).hexdigest(), "size_bytes": len(content)}


def write(folder: Path) -> None:
    generator = np.random.default_rng(0)
    weight = generator.standard_normal((COLUMNS, 3)).astype("float32")
    x = generator.standard_normal((ROWS, COLUMNS)).astype("float32")
    inputs = {"x": x, "i": np.array([3, -4]), "b": (x.view("uint32") >> 16).astype("uint16")}
    outputs = {
        "file": x @ weight,
        "half": x.astype("float16"),
        "doubled": inputs["i"] * 2,
        "positive": x > 0,
        "same": inputs["b"],
    }
    (folder / "lib").mkdir(parents=True)
    (folder / "reference").mkdir()
    build(weight).export_library(str(folder / "model.so"), fcompile=link)
    shutil.copy(Path(tvm.__file__).parent / "lib" / "libtvm_runtime.so", folder / "lib")
    shutil.copy(Path(tvm_ffi.__file__).parent / "lib" / "libtvm_ffi.so", folder / "lib")
    shutil.copy(runner.__file__, folder / "run.py")
    runner.save_arrays(folder / "reference" / "inputs.npz", inputs)
    runner.save_arrays(folder / "reference" / "outputs.npz", outputs)
    manifest = {
        "schema_version": 1,
        "entry_point": "main",
        "target": {"cores": CORES},
        "inputs": specs(inputs),
        "outputs": specs(outputs),
        "library": "model.so",
        "runtime_libraries": ["lib/libtvm_runtime.so"],
        "reference": {"inputs": "reference/inputs.npz", "outputs": "reference/outputs.npz"},
        "tolerances": [{"name": "file", "relative": 1e-5, "absolute": 1e-6}],
        "files": [described(folder, name) for name in ("model.so", "lib/libtvm_runtime.so")],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))


write(Path(sys.argv[1]))
