"""The ways to run a model: our bundle, and what a user would run instead, each in a process of its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from benchmarks.models.side import Arrays, Loaded, MissingError
from examples.models import Example

OURS = "bessemer"
EAGER = "torch eager"
STOCK = "stock TVM"


@dataclass(frozen=True)
class Subject:
    """A model, the folder with everything that was made of it, and with how many threads it runs."""

    example: Example
    folder: Path
    threads: int

    @property
    def exported(self) -> Path:
        """The model as a `.pt2`."""
        return self.folder / "model.pt2"

    @property
    def onnx(self) -> Path:
        """The model as ONNX, where it could be exported."""
        return self.folder / "model.onnx"

    @property
    def bundle(self) -> Path:
        """What the service made of it."""
        return self.folder / "bundle"

    def inputs(self) -> tuple[torch.Tensor, ...]:
        """What every side gets."""
        return self.example.example_inputs()

    def arrays(self) -> Arrays:
        """The inputs as arrays."""
        return tuple(tensor.numpy() for tensor in self.inputs())


@dataclass(frozen=True)
class Runtime:
    """A way to run a model; ``package`` is whose version counts."""

    name: str
    package: str
    load: Callable[[Subject], Loaded]

    @property
    def version(self) -> str | None:
        """The installed version; None where it is not installed."""
        try:
            return version(self.package)
        except PackageNotFoundError:
            return None


def load_bundle(subject: Subject) -> Loaded:
    """Our library, loaded from its bundle as a user loads it."""
    os.environ["TVM_NUM_THREADS"] = str(subject.threads)
    from bessemer.bundle.run import load

    model = load(subject.bundle)
    names = [spec.name for spec in model.inputs]
    inputs = dict(zip(names, subject.arrays(), strict=True))

    def read(_result: object) -> Arrays:
        return tuple(model.run(inputs).values())

    return Loaded(model.bind(inputs), read)


def load_eager(subject: Subject) -> Loaded:
    """The model itself, under ``inference_mode``."""
    torch.set_num_threads(subject.threads)
    call = partial(subject.example.build(), *subject.inputs())
    return Loaded(call, tensors_to_arrays, torch.inference_mode)


def load_compiled(subject: Subject) -> Loaded:
    """``torch.compile`` with its defaults; a run of the suite has a cache of its own."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise MissingError(f"torch.compile needs a C++ compiler; there is no {compiler}")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(subject.folder.parent / "inductor")
    torch.set_num_threads(subject.threads)
    call = partial(torch.compile(subject.example.build(), dynamic=False), *subject.inputs())
    return Loaded(call, tensors_to_arrays, torch.inference_mode)


def load_onnxruntime(subject: Subject) -> Loaded:
    """ONNX Runtime's own kernels, all optimizations."""
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingError(str(error)) from error
    require_onnx(subject)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = subject.threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(str(subject.onnx), options, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]
    feed = dict(zip(names, subject.arrays(), strict=True))
    return Loaded(partial(session.run, None, feed), tuple)


def load_openvino(subject: Subject) -> Loaded:
    """OpenVINO in float32, for latency."""
    try:
        import openvino
    except ImportError as error:
        raise MissingError(str(error)) from error
    require_onnx(subject)
    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": subject.threads,
    }
    core = openvino.Core()
    request = core.compile_model(core.read_model(subject.onnx), "CPU", settings).create_infer_request()
    for index, array in enumerate(subject.arrays()):
        request.set_input_tensor(index, openvino.Tensor(array))
    return Loaded(
        partial(request.infer, share_outputs=True),
        lambda result: tuple(np.array(result[index]) for index in range(len(result))),
    )


def load_stock(subject: Subject, trials: int = 0) -> Loaded:
    """TVM as it comes: its importer and its own pipeline, without our passes and schedules.

    Args:
        subject: the model.
        trials: candidates for its own search, with its own builder and runner; 0 searches nothing.
    """
    os.environ["TVM_NUM_THREADS"] = str(subject.threads)
    import tvm
    from tvm import relax
    from tvm.relax.frontend.torch import from_exported_program
    from tvm.target import codegen

    processor = str(codegen.llvm_get_system_cpu())
    target = tvm.target.Target({"kind": "llvm", "mcpu": processor, "num-cores": subject.threads})
    module = from_exported_program(torch.export.load(subject.exported))
    if trials:
        folder = str(subject.folder / "stock")
        tuning = relax.get_pipeline(
            "static_shape_tuning", total_trials=trials, target=target, work_dir=folder
        )
        with target:
            module = tuning(module)
    machine = relax.VirtualMachine(tvm.compile(module, target), tvm.cpu())
    inputs = [tvm.runtime.tensor(array) for array in subject.arrays()]
    return Loaded(partial(machine["main"], *inputs), lambda result: tuple(_flat(result)))


def require_onnx(subject: Subject) -> None:
    """Raises ``MissingError`` where the model was not exported to ONNX."""
    if not subject.onnx.is_file():
        raise MissingError("the model was not exported to ONNX; the package onnx may be missing")


def tensors_to_arrays(result: object) -> Arrays:
    """What a model of torch returned, flat."""
    return tuple(tensor.numpy() for tensor in pytree.tree_leaves(result))


def _flat(value: Any) -> list[np.ndarray]:
    if hasattr(value, "numpy"):
        return [value.numpy()]
    return [array for item in value for array in _flat(item)]


BESSEMER = Runtime(OURS, "bessemer", load_bundle)
TORCH_EAGER = Runtime(EAGER, "torch", load_eager)
PEERS = (
    TORCH_EAGER,
    Runtime("torch.compile", "torch", load_compiled),
    Runtime("ONNX Runtime", "onnxruntime", load_onnxruntime),
    Runtime("OpenVINO", "openvino", load_openvino),
)


def stock_tvm(trials: int) -> Runtime:
    """TVM as it comes, after so many trials of its own search."""
    return Runtime(STOCK, "apache-tvm", partial(load_stock, trials=trials))
