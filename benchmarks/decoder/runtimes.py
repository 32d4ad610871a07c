"""The runtimes: each loads the decoder and becomes a function from tokens and their place to logits."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.decoder.model import (
    HEAD,
    HEADS,
    LAYERS,
    MAX_LENGTH,
    WORDS,
    Plain,
    with_static_cache,
)
from benchmarks.models.side import MissingError

Logits = np.ndarray[Any, Any]
Step = Callable[[Sequence[int], int], Logits]
"""Takes tokens and the position of the first one; returns the logits ``[WORDS]`` after the last one.

The cache holds the tokens before the position; what stands there or later is overwritten.
"""


@dataclass(frozen=True)
class Place:
    """Where the runtimes find their files, and how many threads they use."""

    folder: Path
    threads: int

    @property
    def bundle(self) -> Path:
        """Our bundle."""
        return self.folder / "bundle"

    @property
    def log(self) -> Path:
        """The file for the runtimes' output."""
        return self.folder / "log.txt"


@dataclass(frozen=True)
class Runtime:
    """A runtime; ``package`` gives its version. ``form`` says how the model is given to it."""

    name: str
    package: str
    form: str
    load: Callable[[Place], Step]

    @property
    def version(self) -> str | None:
        """The installed version, or None."""
        try:
            return version(self.package)
        except PackageNotFoundError:
            return None


def load_bundle(place: Place) -> Step:
    """Our library; the prompt in chunks, then token by token, as ``bessemer generate`` does."""
    os.environ["TVM_NUM_THREADS"] = str(place.threads)
    from bessemer.bundle.run import load

    model = load(place.bundle)
    session, piece = model.session(), model.inputs[0].shape[1]
    entries = {piece: "prefill", 1: "decode"}

    def step(tokens: Sequence[int], position: int) -> Logits:
        size = piece if len(tokens) % piece == 0 else 1
        for start in range(0, len(tokens), size):
            places = np.arange(position + start, position + start + size)
            inputs = {"input_ids": np.array([tokens[start : start + size]]), "cache_position": places}
            (logits,) = session.run(inputs, entries[size]).values()
        return logits[0, -1]

    return step


def load_eager(place: Place) -> Step:
    """torch eager with transformers' static cache."""
    torch.set_num_threads(place.threads)
    return _torch_step(with_static_cache())


def load_compiled(place: Place) -> Step:
    """``torch.compile`` with frozen weights."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise MissingError(f"torch.compile needs a C++ compiler: {compiler} not found")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(place.folder / "inductor")
    import torch._inductor.config as settings

    settings.freezing = True
    torch.set_num_threads(place.threads)
    return _torch_step(torch.compile(with_static_cache(), dynamic=False))


def _torch_step(module: Any) -> Step:
    def step(tokens: Sequence[int], position: int) -> Logits:
        places = torch.arange(position, position + len(tokens))
        with torch.no_grad():
            return module(input_ids=torch.tensor([list(tokens)]), cache_position=places)[0, -1].numpy()

    return step


def load_onnxruntime(place: Place) -> Step:
    """ONNX Runtime with its fused attention; inputs and outputs share the cache."""
    try:
        import onnxruntime

        from benchmarks.decoder.onnx_graph import write_onnx
    except ImportError as error:
        raise MissingError(str(error)) from error
    path = place.folder / "decoder.onnx"
    write_onnx(path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = place.threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    kept = onnxruntime.OrtValue.ortvalue_from_numpy
    cache = {
        f"{kind}_{number}": kept(np.zeros((1, HEADS, MAX_LENGTH, HEAD), np.float32))
        for number in range(LAYERS)
        for kind in ("key", "value")
    }
    for name, value in cache.items():
        binding.bind_ortvalue_input(f"past_{name}", value)
        binding.bind_ortvalue_output(f"present_{name}", value)
    logits = kept(np.zeros((1, 1, WORDS), np.float32))
    binding.bind_ortvalue_output("logits", logits)

    def step(tokens: Sequence[int], position: int) -> Logits:
        end = position + len(tokens)
        binding.bind_cpu_input("tokens", np.array([tokens]))
        binding.bind_cpu_input("last", np.array([end - 1], np.int32))
        binding.bind_cpu_input("total", np.array(end, np.int32))
        session.run_with_iobinding(binding)
        return logits.numpy()[0, -1].copy()

    return step


def load_openvino(place: Place) -> Step:
    """OpenVINO with the cache as its state, in float32 throughout."""
    try:
        import openvino
        from openvino._offline_transformations import apply_make_stateful_transformation
    except ImportError as error:
        raise MissingError(str(error)) from error
    names = [f"{kind}_{number}" for number in range(LAYERS) for kind in ("key", "value")]
    examples = [torch.zeros(1, HEADS, 5, HEAD)] * len(names)
    with torch.no_grad():
        example = (torch.ones(1, 3, dtype=torch.long), torch.arange(5, 8), *examples)
        model = openvino.convert_model(Plain().eval(), example_input=example)
    inputs = ["tokens", "positions", *(f"past_{name}" for name in names)]
    for port, name in zip(model.inputs, inputs, strict=True):
        port.get_tensor().set_names({name})
    for port, name in zip(model.outputs, ["logits", *(f"present_{name}" for name in names)], strict=True):
        port.get_tensor().set_names({name})
    cache = {f"past_{name}": [1, HEADS, -1, HEAD] for name in names}
    model.reshape({"tokens": [1, -1], "positions": [-1], **cache})
    apply_make_stateful_transformation(model, {f"past_{name}": f"present_{name}" for name in names})
    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "KV_CACHE_PRECISION": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": place.threads,
    }
    request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
    filled = [0]

    def step(tokens: Sequence[int], position: int) -> Logits:
        if position != filled[0]:
            _cut(request, position)
        places = np.arange(position, position + len(tokens))
        result = request.infer({"tokens": np.array([tokens]), "positions": places}, share_inputs=True)
        filled[0] = position + len(tokens)
        return np.array(result["logits"])[0, -1]

    return step


def _cut(request: Any, length: int) -> None:
    """Cut OpenVINO's cache, which grows with each run, to a length, or pad it with zeros."""
    import openvino

    for state in request.query_state():
        if not length:
            state.reset()
            continue
        rows = state.state.data[:, :, :length] if state.state.shape[2] else np.zeros((1, HEADS, 0, HEAD))
        missing = ((0, 0), (0, 0), (0, length - rows.shape[2]), (0, 0))
        state.state = openvino.Tensor(np.ascontiguousarray(np.pad(rows, missing), np.float32))


def load_llama_cpp(place: Place) -> Step:
    """llama.cpp, with weights and cache in float32."""
    try:
        import llama_cpp

        from benchmarks.decoder.gguf_file import write_gguf
    except ImportError as error:
        raise MissingError(f"{error}; it needs: pip install llama-cpp-python gguf") from error
    path = place.folder / "decoder.gguf"
    write_gguf(path)
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx = settings.n_batch = MAX_LENGTH
    settings.n_threads = settings.n_threads_batch = place.threads
    settings.type_k = settings.type_v = 0  # GGML_TYPE_F32
    context = llama_cpp.llama_init_from_model(model, settings)
    memory = llama_cpp.llama_get_memory(context)
    batch = llama_cpp.llama_batch_init(MAX_LENGTH, 0, 1)
    filled = [0]

    def decode(tokens: Sequence[int], position: int) -> None:
        batch.n_tokens = len(tokens)
        for number, token in enumerate(tokens):
            batch.token[number], batch.pos[number] = token, position + number
            batch.n_seq_id[number], batch.seq_id[number][0] = 1, 0
            batch.logits[number] = number == len(tokens) - 1
        if llama_cpp.llama_decode(context, batch):
            raise RuntimeError("llama_decode failed")
        filled[0] = position + len(tokens)

    def step(tokens: Sequence[int], position: int) -> Logits:
        if position < filled[0]:
            llama_cpp.llama_memory_seq_rm(memory, 0, position, -1)
        elif position > filled[0]:  # it refuses positions that follow a gap
            decode([0] * (position - filled[0]), filled[0])
        decode(tokens, position)
        return np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, -1), (WORDS,)).copy()

    return step


EAGER = Runtime("torch eager", "torch", "transformers' static cache", load_eager)
OURS = Runtime("Bessemer", "bessemer", "bundle with prefill and decode", load_bundle)
PEERS = (
    EAGER,
    Runtime("torch.compile", "torch", "the same, with frozen weights", load_compiled),
    Runtime("ONNX Runtime", "onnxruntime", "GroupQueryAttention, shared cache bound once", load_onnxruntime),
    Runtime("OpenVINO", "openvino", "stateful, cache in float32", load_openvino),
    Runtime("llama.cpp", "llama-cpp-python", "GGUF and cache in float32", load_llama_cpp),
)
