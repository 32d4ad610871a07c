"""Random numbers as a function of an input: the model gets one more, its seed.

::

    (weight, x) -> (y,)          rand, dropout, … draw from torch's generator
    (weight, x, seed) -> (y,)    random_bits(seed, 0), random_bits(seed, 1), …
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx import Node

from bessemer.contract.tensor import DType, TensorSpec
from worker.compiler.frontend.program_edits import fake_mode, with_signature
from worker.compiler.frontend.random_operators import FUNCTIONS
from worker.compiler.random_numbers import RANDOM_BITS
from worker.compiler.torch_costs import linear_torch

SEED = "seed"


@dataclass(frozen=True)
class SeededProgram:
    """A program that takes the seed of all its random numbers."""

    program: ExportedProgram
    spec: TensorSpec


def take_seed(program: ExportedProgram, taken: Collection[str], states: int = 0) -> SeededProgram | None:
    """The program with a seed as an input; None if it draws no random numbers.

    Random operators without a function, and those in branches and loops, stay.

    Args:
        program: takes and returns flat tuples of tensors.
        taken: the names of its inputs and outputs.
        states: the number of inputs at the end that hold state; the seed comes before them.
    """
    if not any(map(draws, program.graph.nodes)):
        return None
    with linear_torch():
        drawn = program.run_decompositions(dict(FUNCTIONS))
    calls = [node for node in drawn.graph.nodes if node.target is RANDOM_BITS]
    if not calls:
        return None
    names = (SEED, *(f"{SEED}_{number}" for number in range(2, len(taken) + 3)))
    spec = TensorSpec(name=next(name for name in names if name not in taken), shape=(), dtype=DType.INT64)
    return SeededProgram(_with_input(drawn, calls, states), spec)


def _with_input(program: ExportedProgram, calls: list[Node], states: int) -> ExportedProgram:
    graph, signature = program.graph, program.graph_signature
    own = len(signature.input_specs) - states
    placeholders = {node.name: node for node in graph.find_nodes(op="placeholder")}
    following = [placeholders[spec.arg.name] for spec in signature.input_specs[own:]]
    following += [node for node in graph.nodes if node.op != "placeholder"]
    with graph.inserting_before(following[0]):
        seed = graph.placeholder("random_seed")
    with fake_mode(graph):
        seed.meta["val"] = torch.empty((), dtype=torch.int64)
    for stream, call in enumerate(calls):
        call.args = (seed, stream, call.args[2])
    spec = InputSpec(InputKind.USER_INPUT, TensorArgument(seed.name), None)
    inputs = [*signature.input_specs[:own], spec, *signature.input_specs[own:]]
    return with_signature(program, graph, inputs, list(signature.output_specs))


_SWITCHES = ("train", "training")


def draws(node: Node) -> bool:
    """Whether a call draws random numbers. A dropout of nothing, of everything or at inference does not."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    given = arguments_of(node)
    switches = [given[name] for name in _SWITCHES if name in given]
    if False in switches or given.get("num_layers") == 1:  # recurrent operators drop only between layers
        return False
    probability = given.get("dropout", given.get("dropout_p", given.get("p") if switches else None))
    return probability not in (0, 1)


def arguments_of(node: Node) -> dict[str, Any]:
    """The arguments of a call by their names in the operator's schema, with defaults."""
    arguments = node.target._schema.arguments
    defaults = {one.name: one.default_value for one in arguments if one.has_default_value()}
    return defaults | dict(zip((one.name for one in arguments), node.args, strict=False)) | node.kwargs
