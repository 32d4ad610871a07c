"""The runtimes: our bundle and its alternatives, each in its own process."""

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

from benchmarks.models.results import STOCK
from benchmarks.models.side import Arrays, Loaded, MissingError
from examples.models import Example

OURS = "bessemer"
EAGER = "torch eager"
_OPENVINO_PRECISIONS = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


@dataclass(frozen=True)
class Subject:
    """A model, its folder, its number of threads, and the dtype in which it computes."""

    example: Example
    folder: Path
    threads: int
    dtype: str = "float32"

    @property
    def exported(self) -> Path:
        """The model as a `.pt2`."""
        return self.folder / "model.pt2"

    @property
    def onnx(self) -> Path:
        """The model as ONNX, if it could be exported."""
        return self.folder / "model.onnx"

    @property
    def bundle(self) -> Path:
        """The service's bundle."""
        return self.folder / "bundle"

    def inputs(self) -> tuple[torch.Tensor, ...]:
        """The inputs of every side."""
        return self.example.example_inputs()

    def arrays(self) -> Arrays:
        """The inputs as arrays."""
        return tuple(tensor.numpy() for tensor in self.inputs())


@dataclass(frozen=True)
class Runtime:
    """A runtime; ``package`` provides its version."""

    name: str
    package: str
    load: Callable[[Subject], Loaded]

    @property
    def version(self) -> str | None:
        """The installed version, or None."""
        try:
            return version(self.package)
        except PackageNotFoundError:
            return None


def load_bundle(subject: Subject) -> Loaded:
    """Our library, loaded from its bundle."""
    os.environ["TVM_NUM_THREADS"] = str(subject.threads)
    from bessemer.bundle.run import load

    model = load(subject.bundle)
    names = [spec.name for spec in model.inputs]
    inputs = dict(zip(names, subject.arrays(), strict=True))

    def read(_result: object) -> Arrays:
        return tuple(model.run(inputs).values())

    return Loaded(model.bind(inputs), read)


def load_eager(subject: Subject) -> Loaded:
    """The model, under ``inference_mode``."""
    torch.set_num_threads(subject.threads)
    call = partial(subject.example.build(), *subject.inputs())
    return Loaded(call, tensors_to_arrays, torch.inference_mode)


def load_compiled(subject: Subject) -> Loaded:
    """``torch.compile`` with frozen weights; each run of the suite has its own cache."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise MissingError(f"torch.compile needs a C++ compiler: {compiler} not found")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(subject.folder.parent / "inductor")
    torch.set_num_threads(subject.threads)
    from torch._inductor import config

    config.freezing = True
    call = partial(torch.compile(subject.example.build(), dynamic=False), *subject.inputs())
    return Loaded(call, tensors_to_arrays, torch.inference_mode)


def load_onnxruntime(subject: Subject) -> Loaded:
    """ONNX Runtime with its own kernels and all optimizations."""
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
    """OpenVINO in the model's dtype, for latency."""
    try:
        import openvino
    except ImportError as error:
        raise MissingError(str(error)) from error
    require_onnx(subject)
    settings = {
        "INFERENCE_PRECISION_HINT": _OPENVINO_PRECISIONS[subject.dtype],
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
    """Stock TVM: its importer and pipeline, without our passes and schedules.

    Args:
        subject: the model.
        trials: candidates of its own search; 0 disables the search.
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
    """Raise ``MissingError`` if the model was not exported to ONNX."""
    if not subject.onnx.is_file():
        raise MissingError("the model was not exported to ONNX; the package onnx may be missing")


def tensors_to_arrays(result: object) -> Arrays:
    """Flatten a torch model's outputs to arrays."""
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
    """Stock TVM after its own search."""
    return Runtime(STOCK, "apache-tvm", partial(load_stock, trials=trials))
