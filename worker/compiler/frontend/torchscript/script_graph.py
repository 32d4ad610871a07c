"""A TorchScript graph as plain Python values: bodies of steps."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from bessemer.contract.problem import SourcePlace
from worker.compiler.source_locations import author_frame


@dataclass(frozen=True)
class Step:
    """One node. Values are named by strings, unique within a graph.

    Attributes:
        kind: the qualified name, such as ``aten::relu`` or ``prim::If``.
        schema: the node's schema, which names the overload; empty or ``(no schema)`` for most primitives.
        name: the attribute or method that ``prim::GetAttr``, ``SetAttr`` or ``CallMethod`` names.
        span: the bounds of ``prim::TupleSlice``.
        constant: the value of ``prim::Constant``.
        types: the types that ``prim::isinstance`` asks for.
        origin: returns torch's text of the node's source location.
    """

    kind: str
    schema: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    blocks: tuple["Body", ...]
    name: str
    span: tuple[int, int]
    constant: object
    types: tuple[Any, ...]
    origin: Callable[[], str] = field(repr=False)

    def place(self) -> SourcePlace:
        """The node's source location: the innermost line of the author's code, if any."""
        origin = self.origin()
        stack, innermost_first = origin.partition("Serialized ")[0], 'File "' not in origin[:9]
        file, line = author_frame(stack, innermost_first)
        return SourcePlace(operator=self.kind, file=file, line=line)


@dataclass(frozen=True)
class Body:
    """Steps in order, with the names of their inputs and outputs."""

    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]

    def all_steps(self) -> tuple[Step, ...]:
        """The steps, followed by those of all nested blocks."""
        inner = (body.all_steps() for step in self.steps for body in step.blocks)
        return self.steps + tuple(step for steps in inner for step in steps)

    def assignments(self) -> Iterator[tuple[str, Step]]:
        """Each assignment to an attribute: its path from the module, and the step that makes the value.

        torch records no source line for an assignment, but one for the value.
        """
        paths = {self.inputs[0]: ""}
        makers: dict[str, Step] = {}
        for step in self.all_steps():
            makers.update(dict.fromkeys(step.outputs, step))
            if step.kind in ("prim::GetAttr", "prim::SetAttr") and step.inputs[0] in paths:
                owner = paths[step.inputs[0]]
                path = f"{owner}.{step.name}" if owner else step.name
                if step.kind == "prim::SetAttr":
                    yield path, makers.get(step.inputs[1], step)
                else:
                    paths[step.outputs[0]] = path

    def changed(self) -> frozenset[str]:
        """The paths of the attributes that a run assigns or writes in place, also through views."""
        found = {path for path, _ in self.assignments()}
        paths = {self.inputs[0]: ""}
        for step in self.all_steps():
            path = paths.get(step.inputs[0]) if step.inputs else None
            if path is None:
                continue
            if step.kind == "prim::GetAttr":
                paths[step.outputs[0]] = f"{path}.{step.name}" if path else step.name
            elif step.kind.startswith("aten::") and "->" in step.schema:
                schema = torch._C.parse_schema(step.schema)
                if schema.is_mutable:
                    found.add(path)
                if any(result.alias_info is not None for result in schema.returns):
                    paths.update(dict.fromkeys(step.outputs, path))
        return frozenset(found)


def parse_graph(graph: torch.Graph | torch.Block) -> Body:
    """Read a graph or a block. The graph must outlive all calls of ``Step.place``."""
    return Body(
        inputs=tuple(value.debugName() for value in graph.inputs()),
        steps=tuple(_parse_node(node) for node in graph.nodes()),
        outputs=tuple(value.debugName() for value in graph.outputs()),
    )


def _parse_node(node: torch.Node) -> Step:
    attributes = set(node.attributeNames())
    kind = node.kind()
    return Step(
        kind=kind,
        schema=node.schema(),
        inputs=tuple(value.debugName() for value in node.inputs()),
        outputs=tuple(value.debugName() for value in node.outputs()),
        blocks=tuple(parse_graph(block) for block in node.blocks()),
        name=node.s("name") if "name" in attributes and kind != "prim::Constant" else "",
        span=(node.i("beg"), node.i("end")) if kind == "prim::TupleSlice" else (0, 0),
        constant=node.output().toIValue() if kind == "prim::Constant" else None,
        types=tuple(node.tys("types")) if kind == "prim::isinstance" else (),
        origin=node.sourceRange,
    )
