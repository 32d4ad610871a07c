"""Compose tensor expressions, with the intermediate hidden and exposed, and show the functions as trees."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from tvm import te

from bessemer.client import Client
from bessemer.client.ir_tree import IrNode, IrTree, function_tree, tree_lines
from bessemer.contract.options import InspectOptions, TranslateOptions, TranslationLevel
from bessemer.contract.stage import Stage
from examples.course.session import exported, run


def show(client: Client, folder: Path) -> None:
    """Print a ReLU of a product written in TE, then a softmax that the service translates to TE."""
    hidden, exposed = composed(expose=False), composed(expose=True)
    for name, tree in (("hidden", hidden), ("exposed", exposed)):
        print(f"the product is {name}:")
        print("\n".join(tree_lines(tree)), end="\n\n")
    assert parameters(hidden) == {"A": "input", "B": "input", "relu": "output"}
    assert buffers(hidden) == {"product": "allocated"}
    assert parameters(exposed) == {"A": "input", "B": "input", "product": "exposed", "relu": "output"}
    assert buffers(exposed) == {}

    model = exported(nn.Softmax(dim=-1), (torch.zeros(1, 10),), folder / "softmax.pt2")
    job = client.submit(
        model,
        target="host",
        translate=TranslateOptions(level=TranslationLevel.TENSOR_EXPRESSIONS),
        inspect=InspectOptions(ir=True),
        stop_after=Stage.OPTIMIZE,
    ).wait()
    softmax = job.ir_tree("translate", "softmax")
    print("\n".join(tree_lines(softmax)))
    assert list(parameters(softmax).values()) == ["input", "output"]
    assert len(buffers(softmax)) >= 2
    assert set(buffers(softmax).values()) == {"allocated"}


def composed(expose: bool) -> IrTree:
    """The TensorIR of ``relu(A @ B)``, with the product as a parameter if it is exposed."""
    a, b = te.placeholder((128, 64), name="A"), te.placeholder((64, 32), name="B")
    k = te.reduce_axis((0, 64), name="k")
    product = te.compute((128, 32), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product")
    relu = te.compute((128, 32), lambda i, j: te.max(product[i, j], 0.0), name="relu")
    arguments = [a, b, product, relu] if expose else [a, b, relu]
    return function_tree(te.create_prim_func(arguments).script(), "main")


def parameters(tree: IrTree) -> dict[str, str]:
    """The role of each parameter, such as ``input``, by name."""
    return {node.name: node.value for node in tree.body if node.kind == "parameter"}


def buffers(tree: IrTree) -> dict[str, str]:
    """The role of each other buffer, such as ``allocated``, by name."""
    return {node.name: node.value for node in _nodes(tree.body) if node.kind == "buffer"}


def _nodes(body: tuple[IrNode, ...]) -> list[IrNode]:
    return [each for node in body for each in (node, *_nodes(node.body))]


if __name__ == "__main__":
    run(show)
