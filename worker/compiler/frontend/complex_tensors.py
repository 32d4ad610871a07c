"""Complex inputs and outputs as real ones with a last axis of two, the real and the imaginary part.

::

    (weight, z) -> (y,)                                 z and y are complex
    (weight, z) -> (view_as_real(y),)                   z is real, and view_as_complex(z) takes its place
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument
from torch.fx import Node

from worker.compiler.frontend.program_edits import fake_mode, with_signature

_aten = torch.ops.aten
_HELD = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def take_parts(program: ExportedProgram) -> ExportedProgram:
    """The program with real inputs and outputs; itself if it has no complex ones.

    Complex parameters, buffers and constants without a use are left out: TVM has no type for them.

    Args:
        program: takes and returns flat tuples of tensors.
    """
    graph, signature = program.graph, program.graph_signature
    nodes = {node.name: node for node in graph.nodes}
    given = [
        nodes[spec.arg.name]
        for spec in signature.input_specs
        if spec.kind == InputKind.USER_INPUT and _is_complex(nodes[spec.arg.name])
    ]
    returned = {
        spec.arg.name
        for spec in signature.output_specs
        if spec.kind == OutputKind.USER_OUTPUT and _is_complex(nodes[spec.arg.name])
    }
    unused = {
        spec.arg.name
        for spec in signature.input_specs
        if spec.kind in _HELD and _is_complex(nodes[spec.arg.name]) and not nodes[spec.arg.name].users
    }
    if not given and not returned and not unused:
        return program
    with fake_mode(graph):
        _join_inputs(graph, given)
        parts = _split_results(graph, returned)
    outputs = [
        replace(spec, arg=TensorArgument(name)) if spec.kind == OutputKind.USER_OUTPUT else spec
        for spec, name in zip(signature.output_specs, parts, strict=True)
    ]
    for name in unused:
        graph.erase_node(nodes[name])
    inputs = [spec for spec in signature.input_specs if spec.arg.name not in unused]
    return with_signature(program, graph, inputs, outputs)


def _is_complex(node: Node) -> bool:
    return isinstance(node.meta["val"], torch.Tensor) and node.meta["val"].is_complex()


def _join_inputs(graph: torch.fx.Graph, given: Collection[Node]) -> None:
    first = next(node for node in graph.nodes if node.op != "placeholder")
    for node in given:
        whole = node.meta["val"]
        with graph.inserting_before(first):
            joined = graph.call_function(_aten.view_as_complex.default, (node,))
        joined.meta["val"] = whole
        node.replace_all_uses_with(joined, delete_user_cb=lambda user, joined=joined: user is not joined)
        node.meta["val"] = torch.empty((*whole.shape, 2), dtype=whole.real.dtype)


def _split_results(graph: torch.fx.Graph, returned: Collection[str]) -> list[str]:
    """Split complex results in place, and return the names of all results."""
    (result,) = graph.find_nodes(op="output")
    results = []
    for node in result.args[0]:
        if node.name in returned or (node.target is _aten.view_as_complex.default and _is_complex(node)):
            with graph.inserting_before(result):
                plain = graph.call_function(_aten.resolve_conj.default, (node,))
                parts = graph.call_function(_aten.view_as_real.default, (plain,))
            plain.meta["val"] = torch.empty_like(node.meta["val"])
            parts.meta["val"] = torch.view_as_real(plain.meta["val"])
            node = parts
        results.append(node)
    result.args = (tuple(results),)
    return [node.name for node in results]
