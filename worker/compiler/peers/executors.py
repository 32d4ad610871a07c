"""Other runtimes that run the user's model, each in a process of its own, as torch eager does.

A runtime gets what the user's own code would give it: torch.compile the loaded model, ONNX Runtime and
OpenVINO its export to ONNX.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from bessemer.contract.model import ModelFormat
from bessemer.contract.options import Baseline, Peer
from worker.candidates.library import Command, Run, Time
from worker.compiler.frontend.load import load_model
from worker.compiler.frontend.outputs import flatten_outputs
from worker.compiler.values import Selection
from worker.measure.timed import timed
from worker.tensors import as_array, as_tensor

Arrays = tuple[np.ndarray, ...]

_PACKAGES = {
    Peer.TORCH_COMPILE: ("torch",),
    Peer.ONNX_RUNTIME: ("onnxruntime", "onnx"),
    Peer.OPENVINO: ("openvino", "onnx"),
}
_ONNX = "model.onnx"
EAGER = Baseline.TORCH_EAGER
Runtime = Peer | Baseline
"""What runs the model besides the library; among the baselines, only torch eager."""


class PeerError(Exception):
    """A runtime cannot run the model."""


class Bound(NamedTuple):
    """A model with its inputs: ``call`` runs it, ``read`` makes arrays of the result."""

    call: Callable[[], object]
    read: Callable[[Any], Arrays]


@dataclass(frozen=True)
class PeerModel:
    """The upload, the number of threads, and a folder for what a runtime writes."""

    path: Path
    selection: Selection
    form: ModelFormat
    threads: int
    folder: Path

    @property
    def eager(self) -> torch.nn.Module:
        """The model as torch runs it."""
        return load_model(self.path, self.selection, self.form).eager


def missing_package(peer: Peer) -> str | None:
    """The first package that a runtime needs and this worker lacks."""
    return next((name for name in _PACKAGES[peer] if find_spec(name) is None), None)


@dataclass
class PeerExecutor:
    """A runtime in this process; the first run loads the model, for its inputs."""

    runtime: Runtime
    model: PeerModel
    _bound: Bound | None = None

    def execute(self, command: Command) -> Any:
        """See ``Executor.execute``.

        Raises:
            PeerError: the runtime cannot run the model.
            TypeError: the command is not for a runtime.
        """
        match command:
            case Run(inputs):
                with torch.inference_mode():
                    self._bound = _BINDERS[self.runtime](self.model, inputs)
                    return self._bound.read(self._bound.call())
            case Time(runs, most_seconds, warm_up):
                assert self._bound is not None
                with torch.inference_mode():
                    return timed(self._bound.call, runs, most_seconds, warm_up)
        raise TypeError(f"{type(command).__name__} is not for other runtimes")


def _bind_eager(model: PeerModel, inputs: Arrays) -> Bound:
    torch.set_num_threads(model.threads)
    return Bound(partial(model.eager, *map(as_tensor, inputs)), _tensors_to_arrays)


def _bind_compiled(model: PeerModel, inputs: Arrays) -> Bound:
    if model.form is ModelFormat.TORCHSCRIPT:
        raise PeerError("torch.compile does not compile TorchScript")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(model.folder / "inductor")
    torch.set_num_threads(model.threads)
    from torch._inductor import config

    config.freezing = True
    config.cpp_cache_precompile_headers = False  # they would be cached where the sandbox allows no writing
    config.compile_threads = 1  # a pool of compilers needs sockets, which the sandbox denies
    call = partial(torch.compile(model.eager, dynamic=False), *map(as_tensor, inputs))
    return Bound(call, _tensors_to_arrays)


def _bind_onnxruntime(model: PeerModel, inputs: Arrays) -> Bound:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = model.threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    path = str(_exported(model, inputs))
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]
    return Bound(partial(session.run, None, dict(zip(names, inputs, strict=True))), tuple)


def _bind_openvino(model: PeerModel, inputs: Arrays) -> Bound:
    import openvino

    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": model.threads,
    }
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(_exported(model, inputs)), "CPU", settings)
    request = compiled.create_infer_request()
    for index, array in enumerate(inputs):
        request.set_input_tensor(index, openvino.Tensor(array))
    return Bound(
        partial(request.infer, share_outputs=True),
        lambda result: tuple(np.array(result[index]) for index in range(len(result))),
    )


_BINDERS: dict[Runtime, Callable[[PeerModel, Arrays], Bound]] = {
    EAGER: _bind_eager,
    Peer.TORCH_COMPILE: _bind_compiled,
    Peer.ONNX_RUNTIME: _bind_onnxruntime,
    Peer.OPENVINO: _bind_openvino,
}


def _exported(model: PeerModel, inputs: Arrays) -> Path:
    """The model as ONNX, which the first runtime that needs it exports.

    By tracing: ONNX Runtime runs BERT three times slower from torch's newer exporter.
    """
    path = model.folder / _ONNX
    if path.is_file():
        return path
    unfinished = path.with_suffix(".part")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arguments = tuple(map(as_tensor, inputs))
            torch.onnx.export(_without_modes(model.eager), arguments, str(unfinished), dynamo=False)
    except Exception as error:
        raise PeerError(f"torch cannot export the model to ONNX: {error}") from error
    return unfinished.rename(path)


def _without_modes(model: torch.nn.Module) -> torch.nn.Module:
    """A model without a mode to switch to: the exporter switches, and exported programs refuse."""
    if not isinstance(model, torch.jit.ScriptModule):
        model.training = False
        model.train = lambda mode=True: model
    return model


def _tensors_to_arrays(result: object) -> Arrays:
    return tuple(map(as_array, flatten_outputs(result)))
