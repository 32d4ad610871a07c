"""Interprets a script module's graph step by step, so that ``torch.export`` sees ordinary torch calls.

The graph of ``forward`` is inlined. Sizes are plain integers, or symbols if they are dynamic, and control
flow on them is followed. Control flow on the values of tensors makes ``torch.export`` fail.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from bessemer.contract.problem import SourcePlace
from bessemer.contract.structure import ArgumentStructure
from worker.compiler.frontend.dynamic_export import SizeTracker
from worker.compiler.frontend.structures import build
from worker.compiler.frontend.torchscript.data_control_flow import ENDLESS, DataControlFlow, Environment, Key
from worker.compiler.frontend.torchscript.data_numbers import DataNumber, decided
from worker.compiler.frontend.torchscript.data_places import DataPlaces
from worker.compiler.frontend.torchscript.known_values import KnownValues
from worker.compiler.frontend.torchscript.module_state import ModuleState, ScriptModule, writable
from worker.compiler.frontend.torchscript.nested_values import ControlFlowError
from worker.compiler.frontend.torchscript.plain_values import NUMBER_DTYPES, ScalarConstant, as_number
from worker.compiler.frontend.torchscript.primitives import PRIMITIVES
from worker.compiler.frontend.torchscript.script_graph import Body, Step, parse_graph
from worker.compiler.frontend.torchscript.script_operators import UnknownOperatorError, call_operator

FORWARD = "forward"
MOST_UNROLLED = 256
"""Loops of more steps stay loops, if their steps carry values of fixed types."""

CONSTANT_PREFIX = "constant_of_graph_"

Values = Sequence[object]
Scope = dict[str, object]


@dataclass(frozen=True)
class ScriptCall:
    """How to call a method.

    Attributes:
        arguments: the structure of each argument; None for the method's own default.
        tensors: the names of the tensors, in the order in which they are given.
        method: the method.
        is_flat: whether it is ``forward``, which takes just these tensors.
    """

    arguments: tuple[ArgumentStructure, ...]
    tensors: tuple[str, ...]
    method: str = FORWARD
    is_flat: bool = True


class ScriptInterpreter:
    """Runs one of a script module's methods step by step.

    Attributes:
        module: a plain module with the script module's state that computes the same as the method.
        failed: the step that raised the first error.
        tracker: what becomes of dynamic sizes.
    """

    def __init__(self, script: torch.jit.ScriptModule, call: ScriptCall | None = None) -> None:
        self._root = ModuleState(script, ScriptModule(self.run))
        self.module = self._root.module
        method = FORWARD if call is None else call.method
        arguments = getattr(script, method).schema.arguments[1:]
        self._signature = tuple((argument.name, argument.default_value) for argument in arguments)
        self._call = call
        self._graph = self._root.method_graph(method)
        self._body = parse_graph(self._graph)
        self._register_assigned()
        self._changed = frozenset(self._owners(self._body.changed()))
        self._constants = {step.outputs[0]: self._register_constant(step) for step in _constants(self._body)}
        self.failed: Step | None = None
        self._known, self._places = KnownValues(), DataPlaces()
        self._attributes: Environment | None = None
        self._on_data = DataControlFlow(self._run_aside, self._change, self._relate, self._wrote)
        self.tracker = SizeTracker()
        self._with_scope: dict[str, Callable[[Step, list[object], Scope], Values]] = {
            "prim::Constant": self._constant,
            "prim::GetAttr": self._get_attribute,
            "prim::SetAttr": self._set_attribute,
            "prim::CallMethod": self._call_method,
            "prim::tolist": self._to_list,
            "prim::If": self._if,
            "prim::Loop": self._loop,
        }

    def run(self, *inputs: object) -> object:
        """Run the script module's method. Missing inputs take the defaults of its signature.

        Raises:
            ScriptRaisedError: the model raised an exception.
            UnknownOperatorError: a step calls an unknown operator.
        """
        self.tracker.begin(inputs)
        self._known, self._places = KnownValues(), DataPlaces()
        try:
            arguments = [self._root, *self._arguments(inputs)]
            results = [_as_result(result) for result in self._run(self._body, arguments, {})]
            if self._root.keep():
                results = pytree.tree_map_only(torch.Tensor, torch.clone, results)  # one may be an old value
        finally:
            self._root.forget()
        return results[0] if len(results) == 1 else tuple(results)

    def _arguments(self, inputs: tuple[object, ...]) -> Iterator[object]:
        """A value for each argument: what the call makes of the inputs, or the next input, or the default."""
        if self._call is None:
            given = iter(inputs)
            yield from (next(given, default) for _, default in self._signature)
            return
        named = dict(zip(self._call.tensors, inputs, strict=True))
        for argument, (_, default) in zip(self._call.arguments, self._signature, strict=True):
            yield default if argument.structure is None else build(argument.structure, named)

    def _register_assigned(self) -> None:
        """Register tensors that ``forward`` assigns to attributes of types such as Optional[Tensor]."""
        for owner, name in self._owners(path for path, _ in self._body.assignments()):
            value = owner.read(name)
            if isinstance(value, torch.Tensor) and name not in owner.module._buffers:
                owner.module.register_buffer(name, writable(value), persistent=False)

    def _owners(self, paths: Iterable[str]) -> Iterator[tuple[ModuleState, str]]:
        """The owner and the name of each attribute."""
        for path in paths:
            owner_path, _, name = path.rpartition(".")
            owner = self._root.descendant(owner_path)
            if owner is not None:
                yield owner, name

    def _register_constant(self, step: Step) -> object:
        if not isinstance(step.constant, torch.Tensor):
            return step.constant
        name = f"{CONSTANT_PREFIX}{step.outputs[0].replace('.', '_')}"
        self.module.register_buffer(name, step.constant, persistent=False)
        if step.constant.dim() == 0 and step.constant.dtype in NUMBER_DTYPES:
            number, dtype = step.constant.item(), step.constant.dtype
            return ScalarConstant(number, lambda: self._scalar(name, number, dtype))
        return _Buffer(name)

    def _run(self, body: Body, arguments: Values, scope: Scope) -> Values:
        scope.update(zip(body.inputs, arguments, strict=True))
        for step in body.steps:
            values = [scope[name] for name in step.inputs]
            try:
                results = self._compute(step, values, scope)
            except Exception:
                self.failed = self.failed or step
                raise
            finally:
                self.tracker.after(step.place)
            scope.update(zip(step.outputs, results, strict=True))
        return [scope[name] for name in body.outputs]

    def _compute(self, step: Step, values: list[object], scope: Scope) -> Values:
        if step.kind in self._with_scope:
            return self._with_scope[step.kind](step, values, scope)
        if step.kind in PRIMITIVES:
            return PRIMITIVES[step.kind](step, values)
        inside = self._attributes is not None
        arguments = (step.kind, step.schema, values, self._known, self._places, inside)
        result = call_at(step.place(), call_operator, *arguments)
        if len(step.outputs) == 1:
            return [result]
        return result if isinstance(result, tuple) else []

    def _scalar(self, name: str, number: int | float | bool, dtype: torch.dtype) -> torch.Tensor:
        if self._attributes is None:
            return self.module._buffers[name]
        return torch.scalar_tensor(number, dtype=dtype)

    def _constant(self, step: Step, values: list[object], scope: Scope) -> Values:
        value = self._constants.get(step.outputs[0], step.constant)
        if not isinstance(value, _Buffer):
            return [value]
        tensor = self._attribute(self._root, value.name)
        self._known.add(tensor, step.constant)
        return [tensor]

    def _get_attribute(self, step: Step, values: list[object], scope: Scope) -> Values:
        owner = values[0]
        if not isinstance(owner, ModuleState):
            return [getattr(owner, step.name)]
        value = self._attribute(owner, step.name)
        if (owner, step.name) not in self._changed:
            self._known.add(value, owner.original_buffer(step.name))
        return [value]

    def _attribute(self, owner: ModuleState, name: str) -> object:
        """An attribute as the innermost branch or loop sees it."""
        attributes = self._attributes
        if attributes is not None and (owner, name) in attributes:
            return attributes[owner, name]
        return owner.read(name)

    def _set_attribute(self, step: Step, values: list[object], scope: Scope) -> Values:
        owner, value = values
        assert isinstance(owner, ModuleState)
        self._write(owner, step.name, value)
        return []

    def _write(self, owner: ModuleState, name: str, value: object) -> None:
        if self._attributes is None:
            owner.write(name, value)
        else:
            self._attributes[owner, name] = value

    def _call_method(self, step: Step, values: list[object], scope: Scope) -> Values:
        owner = values[0]
        assert isinstance(owner, ModuleState)
        return self._run(parse_graph(owner.method_graph(step.name)), values, {})

    def _to_list(self, step: Step, values: list[object], scope: Scope) -> Values:
        known = self._known
        if not known.has(values[0]):
            raise UnknownOperatorError("tolist of a tensor that is not a constant")
        return [known.computed(torch.Tensor.tolist, [known.of(values[0])], {})]

    def _if(self, step: Step, values: list[object], scope: Scope) -> Values:
        chosen = decided(values[0])
        if chosen is None:
            condition = values[0]
            assert isinstance(condition, DataNumber)
            try:
                return self._on_data.branch(step, condition, self._environment(step, scope))
            except ControlFlowError:
                if condition.depends_on_data:
                    raise
                chosen = bool(condition.symbol)
        return self._run(step.blocks[0] if chosen else step.blocks[1], [], scope)

    def _loop(self, step: Step, values: list[object], scope: Scope) -> Values:
        trips, condition, *carried = values
        trips = as_number(trips)
        trip, branches, is_tried = 0, self._on_data.branches, False
        while True:
            goes_on = decided(condition)
            if isinstance(trips, int):
                goes_on = goes_on if trip < trips else False
            if goes_on is False:
                return carried
            must_stay = goes_on is None or not isinstance(trips, int)
            left = trips - trip if isinstance(trips, int) else 0
            has_branches = self._on_data.branches > branches
            may_stay = not is_tried and 1 < left < ENDLESS and (left > MOST_UNROLLED or has_branches)
            if must_stay or may_stay:
                environment = self._environment(step, scope)
                try:
                    return self._on_data.loop(step, trip, trips, condition, carried, environment)
                except Exception as error:
                    if must_stay and not (
                        isinstance(error, ControlFlowError) and isinstance(trips, torch.SymInt)
                    ):
                        raise
                    trips, is_tried = int(trips), True  # type: ignore[call-overload]
                    continue
            condition, *carried = self._run(step.blocks[0], [trip, *carried], scope)
            trip += 1

    def _environment(self, step: Step, scope: Scope) -> Environment:
        """All variables and attributes around a step that its blocks use."""
        inner = [each for block in step.blocks for each in block.all_steps()]
        used = [name for each in inner for name in each.inputs]
        used += [name for block in step.blocks for name in block.outputs]
        used += [name for each in inner for block in each.blocks for name in block.outputs]
        own = {name for each in inner for name in each.outputs}  # an earlier step may have left values
        own |= {name for block in step.blocks for name in block.inputs}
        own |= {name for each in inner for block in each.blocks for name in block.inputs}
        seen = {name: value for name, value in scope.items() if name not in own}
        found: Environment = {name: seen[name] for name in dict.fromkeys(used) if name in seen}
        for each in inner:
            owner: object = None
            name = each.name
            if each.kind in ("prim::GetAttr", "prim::SetAttr"):
                owner = seen.get(each.inputs[0])
            constant = self._constants.get(each.outputs[0]) if each.kind == "prim::Constant" else None
            if isinstance(constant, _Buffer):
                owner, name = self._root, constant.name
            if not isinstance(owner, ModuleState):
                continue
            value = self._attribute(owner, name)
            if each.kind == "prim::GetAttr":
                seen[each.outputs[0]] = value
            if not isinstance(value, ModuleState):
                found[owner, name] = value
        return found

    def _run_aside(self, body: Body, arguments: Values, environment: Environment) -> list[object]:
        """Run a block that sees an environment only."""
        around = self._attributes
        self._attributes = {key: value for key, value in environment.items() if not isinstance(key, str)}
        scope = {key: value for key, value in environment.items() if isinstance(key, str)}
        try:
            outputs = list(self._run(body, arguments, scope))
            environment.update(self._attributes)
        finally:
            self._attributes = around
        return outputs

    def _change(self, key: Key, old: object, new: object) -> None:
        if not isinstance(key, str):
            self._write(*key, new)
        elif isinstance(old, list):
            assert isinstance(new, list)
            old[:] = new
        elif isinstance(old, dict):
            assert isinstance(new, dict)
            old.clear()
            old.update(new)

    def _relate(self, old: object, new: object) -> None:
        if self._known.has(old):
            self._known.add(new, self._known.of(old))

    def _wrote(self, tensor: torch.Tensor) -> None:
        self._places.written(tensor)


class _Buffer:
    """Refers to a constant tensor that is registered as a buffer."""

    def __init__(self, name: str) -> None:
        self.name = name


def _constants(body: Body) -> list[Step]:
    return [step for step in body.all_steps() if step.kind == "prim::Constant"]


def _as_result(value: object) -> object:
    """Convert numbers that are tensors of rank 0 in the graph back to tensors."""
    return value.tensor() if isinstance(value, ScalarConstant) else value


def call_at(place: SourcePlace, function: Callable[..., Any], *arguments: object) -> Any:
    """Call a function through a frame with the file and line of the author's code.

    ``torch.export`` records the stack of every operator, so errors can name the model's line although the
    operator was interpreted here.
    """
    if place.file is None or place.line is None:
        return function(*arguments)
    code = _call.__code__.replace(co_filename=place.file, co_firstlineno=place.line, co_name="forward")
    return FunctionType(code, {})(function, arguments)


_call: Any = lambda function, arguments: function(*arguments)  # noqa: E731 - the frame needs a single line
