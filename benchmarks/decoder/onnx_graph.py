"""The decoder as ONNX, as onnxruntime-genai's builder writes it: one fused operator per attention.

``GroupQueryAttention`` rotates queries and keys, writes to a cache that inputs and outputs share, and reads
only its filled part: the form of a decoder that ONNX Runtime runs fastest.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.decoder.model import EPSILON, HEAD, HEADS, LAYERS, MAX_LENGTH, WORDS, build, rotations

_FUSED = "com.microsoft"


class _Writer:
    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._weights = {name: value.numpy() for name, value in build().state_dict().items()}

    def constant(self, name: str, value: np.ndarray[Any, Any]) -> str:
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def call(self, operator: str, inputs: Sequence[str], *outputs: str, domain: str = "", **rest: Any) -> str:
        names = outputs or (f"{operator}_{len(self.nodes)}",)
        self.nodes.append(helper.make_node(operator, inputs, names, domain=domain, **rest))
        return names[0]

    def norm(self, name: str, x: str) -> str:
        weight = self.constant(name, self._weights[f"{name}.weight"])
        return self.call("SimplifiedLayerNormalization", (x, weight), axis=-1, epsilon=EPSILON)

    def linear(self, x: str, *names: str) -> str:
        """A product with the transposed matrices side by side."""
        weights = np.concatenate([self._weights[f"{name}.weight"] for name in names]).T
        return self.call("MatMul", (x, self.constant(names[0], weights)))

    def layer(self, number: int, x: str) -> str:
        layer = f"model.layers.{number}"
        parts = [f"{layer}.self_attn.{part}_proj" for part in "qkv"]
        joined = self.linear(self.norm(f"{layer}.input_layernorm", x), *parts)
        past, present = ((f"{when}_key_{number}", f"{when}_value_{number}") for when in ("past", "present"))
        inputs = (joined, "", "", *past, "last", "total", "cosines", "sines")
        mixed = self.call(
            "GroupQueryAttention",
            inputs,
            f"mixed_{number}",
            *present,
            domain=_FUSED,
            num_heads=HEADS,
            kv_num_heads=HEADS,
            do_rotary=1,
        )
        x = self.call("Add", (x, self.linear(mixed, f"{layer}.self_attn.o_proj")))
        normed = self.norm(f"{layer}.post_attention_layernorm", x)
        gate = self.linear(normed, f"{layer}.mlp.gate_proj")
        gate = self.call("Mul", (gate, self.call("Sigmoid", (gate,))))
        product = self.call("Mul", (gate, self.linear(normed, f"{layer}.mlp.up_proj")))
        return self.call("Add", (x, self.linear(product, f"{layer}.mlp.down_proj")))


def write_onnx(path: Path) -> None:
    """Write the model: ``tokens [1, T]``, ``last [1]``, ``total []`` and the cache to the last logits."""
    writer = _Writer()
    for name, values in zip(("cosines", "sines"), rotations(), strict=True):
        writer.constant(name, values.numpy())
    x = writer.call(
        "Gather", (writer.constant("embedding", writer._weights["model.embed_tokens.weight"]), "tokens")
    )
    for number in range(LAYERS):
        x = writer.layer(number, x)
    x = writer.call("Gather", (x, writer.constant("end", np.array([-1]))), axis=1)
    normed = writer.norm("model.norm", x)
    matrix = writer.constant("head", writer._weights["model.embed_tokens.weight"].T)
    writer.call("MatMul", (normed, matrix), "logits")
    cache = (1, HEADS, MAX_LENGTH, HEAD)
    names = [f"{kind}_{number}" for number in range(LAYERS) for kind in ("key", "value")]
    floats, numbers = TensorProto.FLOAT, TensorProto.INT32
    graph = helper.make_graph(
        writer.nodes,
        "decoder",
        [
            helper.make_tensor_value_info("tokens", TensorProto.INT64, (1, "count")),
            helper.make_tensor_value_info("last", numbers, (1,)),
            helper.make_tensor_value_info("total", numbers, ()),
            *(helper.make_tensor_value_info(f"past_{name}", floats, cache) for name in names),
        ],
        [
            helper.make_tensor_value_info("logits", floats, (1, 1, WORDS)),
            *(helper.make_tensor_value_info(f"present_{name}", floats, cache) for name in names),
        ],
        writer.constants,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(_FUSED, 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
