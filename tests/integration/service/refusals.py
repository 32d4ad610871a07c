"""The table of bad input: each upload or request, with the expected refusal."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from refused_models import (
    PAIR,
    Counting,
    Dense,
    Doubled,
    EighthWeights,
    Endless,
    Hungry,
    Lookup,
    Raising,
    Repeated,
    Unsupported,
    WithoutOutputs,
    exported,
    graph,
    of_another_schema,
    of_half_precision,
    on_cuda,
    quantized,
    saved,
    scripted,
    with_a_leaf_of_the_users,
    zip_bomb,
)
from torch import nn

from bessemer.contract.problem import ErrorCode
from tests.integration.malicious_models import malicious_model

SOURCE = str(Path(__file__).with_name("refused_models.py"))
UNPROCESSABLE = 422
ACCEPTED = 202


def inputs(shape: tuple[int, ...] = (2, 3), name: str = "x", dtype: str = "float32") -> dict[str, Any]:
    return {"inputs": [{"name": name, "shape": shape, "dtype": dtype}]}


@dataclass(frozen=True)
class Refusal:
    """Bad input.

    Attributes:
        make: the upload.
        code: of the problem.
        messages: parts of the expected detail and advice.
        at: a file, a module path or a field that the problem names.
        line: of that file.
        status: of the last response; ``ACCEPTED`` if the job fails.
        fields: of the request.
        digest: declared for the upload.
        declared_bytes: the size declared for the upload.
    """

    make: Callable[[], bytes]
    code: ErrorCode
    messages: tuple[str, ...]
    at: str | None = None
    status: int = UNPROCESSABLE
    fields: Mapping[str, Any] = field(default_factory=dict)
    digest: str | None = None
    declared_bytes: int | None = None
    line: int | None = None


def unrecognized(make: Callable[[], bytes], *messages: str) -> Refusal:
    return Refusal(
        make, ErrorCode.MODEL_NOT_RECOGNIZED, (*messages, "Upload a file written by `torch.export.save`")
    )


def invalid_request(message: str, at: str, **fields: Any) -> Refusal:
    return Refusal(doubled, ErrorCode.REQUEST_INVALID, (message, "the named fields"), at, fields=fields)


def unknown(code: ErrorCode, message: str, at: str, **fields: Any) -> Refusal:
    return Refusal(doubled, code, (message,), at, fields=fields)


def failed(
    make: Callable[[], bytes],
    code: ErrorCode,
    *messages: str,
    at: str | None = None,
    line: int | None = None,
    **fields: Any,
) -> Refusal:
    return Refusal(make, code, messages, at, ACCEPTED, fields, line=line)


def line_of(source: str) -> int:
    """The line of a text in the file of refused models."""
    (line,) = [n for n, text in enumerate(Path(SOURCE).read_text().splitlines(), 1) if source in text]
    return line


def doubled() -> bytes:
    return exported(Doubled(), PAIR)


def linear() -> bytes:
    return exported(nn.Linear(3, 2), PAIR)


WEIGHTS = "load them into their module"
KINDS = "Use dense, non-empty tensors"
SIGNATURE = "Take and return tensors"

REFUSALS: dict[str, Refusal] = {
    # the upload
    "nothing": Refusal(bytes, ErrorCode.MODEL_EMPTY, ("has 0 bytes", "Save the model again")),
    "another digest": Refusal(doubled, ErrorCode.DIGEST_MISMATCH, ("Hash the file again",), digest="0" * 64),
    "too large": Refusal(
        bytes,
        ErrorCode.MODEL_TOO_LARGE,
        ("the limit is", "Ask the operator"),
        status=413,
        declared_bytes=1 << 40,
    ),
    # not a model
    "text": unrecognized(lambda: b"import torch\n", "does not import TVM", "net.py:FUNCTION"),
    "a program": unrecognized(lambda: b"\x7fELF" + bytes(100), "compiled program"),
    "a state_dict": unrecognized(lambda: saved(nn.Linear(3, 2).state_dict()), "state_dict", WEIGHTS),
    "a checkpoint": unrecognized(lambda: saved({"model": {}, "epoch": 3}), "checkpoint", WEIGHTS),
    "a pickled module": unrecognized(
        lambda: saved(nn.Linear(3, 2)),
        "pickled object of torch.nn.modules.linear.Linear",
        "torch.export.export",
    ),
    "ONNX": unrecognized(
        lambda: b"\x08\x09\x12\x07pytorch\x1a\x052.1.0:\x10", "ONNX", "export the PyTorch model"
    ),
    "safetensors": unrecognized(
        lambda: (80).to_bytes(8, "little") + b'{"a":{"dtype":"F32"' + bytes(80), "safetensors", WEIGHTS
    ),
    "TFLite": unrecognized(
        lambda: b"\x1c\0\0\0TFL3" + bytes(100), "TensorFlow Lite", "export the PyTorch model"
    ),
    # a damaged or unsafe one
    "cut off": Refusal(
        lambda: linear()[:2000], ErrorCode.MODEL_DAMAGED, ("may be truncated", "Save the model again")
    ),
    "a zip bomb": Refusal(
        zip_bomb, ErrorCode.MODEL_UNSAFE_ARCHIVE, ("would expand to", "Save the model with torch")
    ),
    "another schema": Refusal(
        of_another_schema,
        ErrorCode.MODEL_LOAD_FAILED,
        ("export schema 99.1", f"this worker 8.20 (torch {torch.__version__})", "Save it again"),
    ),
    "on a GPU": Refusal(on_cuda, ErrorCode.MODEL_LOAD_FAILED, ("CUDA device", "`.cpu()`")),
    "an IRModule with a mistake": Refusal(
        lambda: b"import tvm\nfrom tvm.script import tirx as T\nT.nothing()\n",
        ErrorCode.MODEL_MODULE_INVALID,
        ("module.py:3: AttributeError", "TVM 0.27"),
        at="module.py",
        line=3,
    ),
    "an IRModule that ends its process": Refusal(
        lambda: b"import tvm, sys\nsys.exit(1)\n",
        ErrorCode.MODEL_MODULE_INVALID,
        ("module.py:2: SystemExit: 1",),
    ),
    "an unavailable leaf": Refusal(
        with_a_leaf_of_the_users,
        ErrorCode.MODEL_LEAF_UNAVAILABLE,
        ("users_own_package.Own (1)", "Export the model"),
        at="1",
    ),
    # kinds of tensors that no library accepts
    "complex inputs of half precision": Refusal(
        of_half_precision,
        ErrorCode.MODEL_TENSORS_UNSUPPORTED,
        ("'x' is of dtype complex32", KINDS),
    ),
    "no elements": Refusal(
        lambda: exported(Doubled(), torch.ones(0, 3)),
        ErrorCode.MODEL_TENSORS_UNSUPPORTED,
        ("'x' has no elements", KINDS),
    ),
    "float8 weights": Refusal(
        lambda: exported(EighthWeights(), PAIR),
        ErrorCode.MODEL_TENSORS_UNSUPPORTED,
        ("'scale' is float8_e4m3fn", KINDS),
        at="scale",
    ),
    "quantized weights": Refusal(
        quantized, ErrorCode.MODEL_TENSORS_UNSUPPORTED, ("quantized modules: '0'", KINDS), at="0"
    ),
    "integers as inputs": Refusal(
        lambda: scripted(Repeated()),
        ErrorCode.CONSTANTS_MISSING,
        ("times has the type int and no default", "--constant NAME=VALUE"),
    ),
    # the request
    "an unknown field": invalid_request("did you mean 'tune'?", "tunes", tunes={}),
    "an unknown field below": invalid_request("did you mean 'trials'?", "tune.trial", tune={"trial": 5}),
    "an unknown value": invalid_request(
        "did you mean 'patterns'?", "optimize.fusion", optimize={"fusion": "patern"}
    ),
    "an unknown stage": invalid_request("did you mean 'translate'?", "stop_after", stop_after="translation"),
    "an unknown target": invalid_request("did you mean 'znver4'?", "target", target="znver44"),
    "an unknown dtype": invalid_request(
        "did you mean 'float32'?", "inputs[0].dtype", **inputs(dtype="float31")
    ),
    "a name in another script": invalid_request("ASCII letters", "inputs[0].name", **inputs(name="größe")),
    "two names alike": invalid_request("the same name", "inputs", inputs=inputs()["inputs"] * 2),
    "a negative dimension": invalid_request("at least 1", "inputs[0].shape[0]", **inputs((-2, 3))),
    "a dimension out of range": invalid_request(
        "at most 2147483648", "inputs[0].shape[0]", **inputs((1 << 40, 3))
    ),
    "an integer out of range": invalid_request(
        "less than 2147483648", "verify.seed", verify={"seed": 1 << 40}
    ),
    "no inputs": Refusal(
        lambda: scripted(Doubled()),
        ErrorCode.INPUTS_MISSING,
        ("takes, in this order: x", "--input"),
        "inputs",
    ),
    "another name": Refusal(
        doubled,
        ErrorCode.INPUTS_MISMATCH,
        ("no input 'y'", "bessemer inspect"),
        "inputs[0].name",
        fields=inputs(name="y"),
    ),
    "another rank": Refusal(
        doubled,
        ErrorCode.INPUTS_MISMATCH,
        ("'x' has rank 3, the model takes rank 2",),
        "inputs[0].shape",
        fields=inputs((2, 3, 4)),
    ),
    "another dtype": Refusal(
        doubled,
        ErrorCode.INPUTS_MISMATCH,
        ("'x' is int64, the model takes float32",),
        "inputs[0].dtype",
        fields=inputs(dtype="int64"),
    ),
    "another size": Refusal(
        doubled,
        ErrorCode.INPUTS_MISMATCH,
        ("expected 3, not 4: the export fixed axis 1 of 'x'", "dynamic_shapes="),
        "inputs[0].shape[1]",
        fields=inputs((2, 4)),
    ),
    # found only by the job
    "huge inputs": failed(
        lambda: scripted(Doubled()),
        ErrorCode.LIMIT_MEMORY,
        "the inputs alone need",
        "the largest is x=2147483648x2147483648:float32",
        "Use a smaller model or smaller inputs",
        **inputs((1 << 31, 1 << 31)),
    ),
    "sparse inputs": failed(
        lambda: exported(Dense(), torch.eye(3).to_sparse()),
        ErrorCode.MODEL_TENSORS_UNSUPPORTED,
        "'x' is sparse",
        KINDS,
    ),
    "an integer that depends on a size as an output": failed(
        lambda: scripted(Counting()),
        ErrorCode.MODEL_SIGNATURE_UNSUPPORTED,
        "output 1 is not a tensor but SymInt",
        SIGNATURE,
        inputs=[{"name": "x", "shape": ["rows", 3]}],
        dimensions={"rows": {"maximum": 8}},
    ),
    "no outputs": failed(
        lambda: exported(WithoutOutputs(), PAIR),
        ErrorCode.MODEL_SIGNATURE_UNSUPPORTED,
        "returns no tensor",
        SIGNATURE,
    ),
    "batch norm in training": failed(
        lambda: exported(nn.Sequential(nn.ReLU(), nn.BatchNorm1d(3)), PAIR, training=True),
        ErrorCode.MODEL_STATEFUL,
        "training mode: aten.batch_norm.default in module 1",
        "Call `eval()`",
        at="1",
    ),
    "unsupported operators": failed(
        lambda: exported(Unsupported(), PAIR),
        ErrorCode.OPERATOR_UNSUPPORTED,
        "aten.special_airy_ai.default in module inner",
        "Rewrite the listed places",
        at="inner",
    ),
    "unsupported operators in the source": failed(
        lambda: exported(Unsupported(), PAIR),
        ErrorCode.OPERATOR_UNSUPPORTED,
        at=SOURCE,
        line=line_of("torch.special.airy_ai(x)"),
    ),
    "a model that raises": failed(
        lambda: scripted(Raising()),
        ErrorCode.MODEL_RAISED,
        "ValueError: one at a time",
        "Reproduce it in torch",
        at=SOURCE,
        line=line_of('raise ValueError("one at a time")'),
        **inputs(),
    ),
    "a graph that raises": failed(
        lambda: graph(nn.Sequential(nn.ReLU(), nn.Linear(4, 2))),
        ErrorCode.MODEL_RAISED,
        "in module '1'",
        "Reproduce it in torch",
        at="1",
        **inputs(name="input"),
    ),
    "indices out of range": failed(
        lambda: scripted(Lookup()),
        ErrorCode.MODEL_RAISED,
        "index out of range",
        at=SOURCE,
        **inputs((2,), dtype="int64"),
    ),
    "a segmentation fault": failed(
        lambda: malicious_model("import ctypes\nctypes.string_at(0)"),
        ErrorCode.CHILD_CRASHED,
        "SIGSEGV; in ",
        "Python at ",
        "(string_at)",
        "some models crash torch itself",
        **inputs(name="input"),
    ),
    "an abort": failed(
        lambda: malicious_model("os.abort()"),
        ErrorCode.CHILD_CRASHED,
        "SIGABRT",
        "(attack)",
        **inputs(name="input"),
    ),
    "too much memory": failed(
        lambda: scripted(Hungry()),
        ErrorCode.LIMIT_MEMORY,
        "allocate",
        "BESSEMER_LIMIT_MEMORY_BYTES",
        at=SOURCE,
        **inputs(),
    ),
    "an endless model": failed(
        lambda: scripted(Endless()),
        ErrorCode.TIMEOUT,
        "2.0 s",
        "allow the job more time with `timeout_seconds`",
        timeout_seconds=2,
        **inputs(),
    ),
    "an unknown processor": invalid_request(
        "did you mean 'znver4'?", "target.mcpu", target={"mcpu": "znver44"}
    ),
    "an unknown feature": invalid_request(
        "did you mean '+avx2'?", "target.features[0]", target={"mcpu": "x86-64-v3", "features": ["+avx22"]}
    ),
    "an unknown architecture": invalid_request(
        "did you mean 'x86_64-unknown-linux-gnu'?",
        "target.triple",
        target={"mcpu": "znver4", "triple": "x86_46-linux-gnu"},
    ),
    # names that a worker announces
    "an unknown rewrite": unknown(
        ErrorCode.REWRITE_UNKNOWN,
        "did you mean 'ewise_fma'?",
        "optimize.enable[0]",
        optimize={"enable": ["ewise_fna"]},
    ),
    "an unknown kernel": unknown(
        ErrorCode.KERNEL_UNKNOWN, "did you mean 'openblas'?", "kernels.linear", kernels={"linear": "openbla"}
    ),
    "an unknown space": unknown(
        ErrorCode.SPACE_UNKNOWN,
        "did you mean 'metaschedule'?",
        "tune.spaces.*",
        tune={"trials": 1, "spaces": {"*": "metaschedul"}},
    ),
    "an unknown strategy": unknown(
        ErrorCode.STRATEGY_UNKNOWN,
        "did you mean 'replay-func'?",
        "tune.strategy",
        tune={"trials": 1, "strategy": "replay-fun"},
    ),
    # options that only the job can check
    "an unknown function": failed(
        linear,
        ErrorCode.FUNCTION_UNKNOWN,
        "did you mean 'fused_linear",
        tune={"trials": 1, "spaces": {"fusd_linear": "metaschedule"}},
    ),
}
