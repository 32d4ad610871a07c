"""What edits of an exported program's inputs and outputs share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch._subclasses import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind, InputSpec, OutputKind, OutputSpec
from torch.utils import _pytree as pytree


def with_signature(
    program: ExportedProgram, graph: torch.fx.Graph, inputs: list[InputSpec], outputs: list[OutputSpec]
) -> ExportedProgram:
    """The program with another graph and signature. It takes and returns flat tuples of tensors.

    Args:
        program: the program; parameters, buffers and constants without an input in ``inputs`` are left out.
        graph: its new graph.
        inputs: one for each placeholder, in order.
        outputs: one for each result, in order.
    """
    kept = {spec.target for spec in inputs}
    dropped = {spec.target for spec in program.graph_signature.input_specs} - kept
    call = program.module_call_graph[0]
    structure = replace(
        call.signature,
        inputs=[],
        outputs=[],
        forward_arg_names=None,
        in_spec=_flat(sum(spec.kind == InputKind.USER_INPUT for spec in inputs), with_keywords=True),
        out_spec=_flat(sum(spec.kind == OutputKind.USER_OUTPUT for spec in outputs)),
    )
    program.graph_module.recompile()
    return ExportedProgram(
        root=program.graph_module,
        graph=graph,
        graph_signature=ExportGraphSignature(inputs, outputs),
        state_dict={name: value for name, value in program.state_dict.items() if name not in dropped},
        range_constraints=program.range_constraints,
        module_call_graph=[replace(call, signature=structure)],
        constants={name: value for name, value in program.constants.items() if name not in dropped},
        verifiers=program.verifiers,
    )


def _flat(count: int, with_keywords: bool = False) -> Any:
    values = (0,) * count
    return pytree.tree_structure((values, {}) if with_keywords else values)


def fake_mode(graph: torch.fx.Graph) -> Any:
    """The mode of the graph's fake tensors, in which new ones are made."""
    return next(tensor.fake_mode for tensor in _fakes(graph))


def _fakes(graph: torch.fx.Graph) -> Iterator[FakeTensor]:
    for node in graph.nodes:
        if isinstance(node.meta.get("val"), FakeTensor):
            yield node.meta["val"]
