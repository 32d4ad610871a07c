"""Branches and loops of a script on values that only a run knows, as torch's ``cond`` and ``while_loop``.

    if c: y = f(x)            y, = cond(c, lambda x: f(x), lambda x: x, x)
    else: y = x

    while c(i, x):            i, x = while_loop(c, lambda i, x: step(i, x), i, x)
        i, x = step(i, x)

torch takes functions of tensors that see nothing else, change nothing, and return the same types on every
path. A block of a script reads and changes variables, attributes, lists and tensors around it. So a
block is first run on tensors without data, beside the export. That outline shows what it reads, what it
changes, and the types of its results. What all paths leave the same constant stays constant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch._higher_order_ops.cond import cond_op
from torch._higher_order_ops.while_loop import while_loop_op
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

from worker.compiler.frontend.torchscript.data_numbers import (
    ON_TENSORS,
    DataNumber,
    compute,
    kind_of,
    symbol_of,
    tensor_of,
)
from worker.compiler.frontend.torchscript.module_state import ModuleState
from worker.compiler.frontend.torchscript.nested_values import (
    ControlFlowError,
    Grown,
    Operands,
    are_same,
    flat,
    leaves,
    rebuilt,
    stand_in_number,
    unaliased,
    unflat,
    unified,
    varies,
)
from worker.compiler.frontend.torchscript.plain_values import as_number
from worker.compiler.frontend.torchscript.primitives import ScriptRaisedError

if TYPE_CHECKING:
    from worker.compiler.frontend.torchscript.script_graph import Body, Step

ENDLESS = 2**62
"""A loop with more trips than this is a ``while``."""

ROUNDS = 20
"""How often a loop's outline may find one more number that is not constant."""

TRIPS = " trips"

Key = str | tuple[ModuleState, str]
"""A variable, or an attribute of a module."""

Environment = dict[Key, object]
Run = Callable[["Body", Sequence[object], Environment], list[object]]
"""Runs a block in an environment, which it may change."""


@dataclass(frozen=True)
class _Outline:
    """What a block does, from a run without data.

    Attributes:
        outputs: its outputs.
        changed: the variables and attributes that it changes, with their values after it.
        written: the operands that it writes in place, by number.
    """

    outputs: list[object]
    changed: Environment
    written: frozenset[int]


@dataclass(frozen=True)
class _LoopOutline:
    """What the steps of a loop do, once the types of their values are the same in every step.

    Attributes:
        state: the number of the step, the condition, and the values that steps carry.
        changed: the variables and attributes that steps change.
        grown: the items that a step appends, by list.
        fixed: all else that steps see.
        operands: the tensors and numbers in it.
        written: the operands that steps write in place, by number.
    """

    state: list[Any]
    changed: Environment
    grown: dict[Key, list[torch.Tensor]]
    fixed: Environment
    operands: Operands
    written: list[int]


class DataControlFlow:
    """Writes branches and loops on data.

    Attributes:
        branches: how many it has written.

    Args:
        run: runs a block.
        change: sets a variable or an attribute of the surroundings.
        relate: notes that the second tensor has the first one's value.
        wrote: notes that a tensor was written in place.
    """

    def __init__(
        self,
        run: Run,
        change: Callable[[Key, object, object], None],
        relate: Callable[[object, object], None],
        wrote: Callable[[torch.Tensor], None],
    ) -> None:
        self._run = run
        self._change = change
        self._relate = relate
        self._wrote = wrote
        self._is_aside = False
        self.branches = 0

    def branch(self, step: Step, condition: DataNumber, environment: Environment) -> list[object]:
        """Take one of two blocks.

        Raises:
            ControlFlowError: the blocks leave values of different types.
            ScriptRaisedError: both raise.
        """
        operands = Operands(list(environment.values()))
        outlines = [self._outline_or_error(block, operands, environment) for block in step.blocks]
        for block, other in zip(step.blocks, reversed(outlines), strict=True):
            if isinstance(other, ScriptRaisedError):  # it checks a value: the library does not
                return self._run(block, [], environment)
        first, second = (outline for outline in outlines if isinstance(outline, _Outline))
        outputs = [
            unified(one, other, name)
            for one, other, name in zip(first.outputs, second.outputs, _names(step.outputs), strict=True)
        ]
        keys = list(dict.fromkeys([*first.changed, *second.changed]))
        before = dict(zip(environment, operands.values(_stand_ins(operands)), strict=True))
        changed = [
            unified(first.changed.get(key, before[key]), second.changed.get(key, before[key]), _name(key))
            for key in keys
        ]
        written = sorted(first.written | second.written)
        pattern = [outputs, changed, [operands.found[place] for place in written]]
        if not keys and not written and _is_choice(step, outputs):
            return self._choose(step, condition, environment, outputs)

        def function(block: Body) -> Callable[..., list[torch.Tensor]]:
            def call(*given: Any) -> list[torch.Tensor]:
                own = [value.clone() if place in written else value for place, value in enumerate(given)]
                inner = self._related(operands, own, environment)
                returned = self._run(block, [], inner)
                result = [returned, [inner[key] for key in keys], [own[place] for place in written]]
                return unaliased(flat(result, pattern), given)

            return call

        given = tuple(operands.given())
        if self._is_aside:
            results = flat(pattern, pattern)
            results = [torch.empty_like(result) for result in results]
        elif not any(map(varies, leaves(pattern))):
            results = []
        else:
            self.branches += 1
            results = cond_op(condition.tensor, *map(function, step.blocks), given)
        return self._leave(pattern, results, keys, operands, written, environment)

    def loop(
        self,
        step: Step,
        trip: int,
        trips: object,
        condition: object,
        carried: Sequence[object],
        environment: Environment,
    ) -> list[object]:
        """Repeat a block as long as a condition holds, and return what it carries at the end.

        Args:
            step: the loop.
            trip: the number of steps so far.
            trips: the largest number of steps.
            condition: whether to take another step.
            carried: the values that steps carry.
            environment: all else that steps see.

        Raises:
            ControlFlowError: a step changes the type of a value.
        """
        body = step.blocks[0]
        counted = not isinstance(trips, int) or trips < ENDLESS
        around = {**environment, TRIPS: trips}
        growing = _growing(body, environment)
        around.update((name, []) for name in growing)
        names = ["trip", "condition", *_names(step.outputs)]
        state: list[Any] = rebuilt([trip, condition, *carried], _unfixed, {})
        limit = trips if counted else _limit(body, environment, trip, carried)
        if counted or growing or any(body.inputs[0] in each.inputs for each in body.all_steps()):
            state[0] = stand_in_number(int)
        outline = self._loop_outline(body, state, names, around, growing)
        state, keys, grown = outline.state, list(outline.changed), outline.grown
        operands, written = outline.operands, outline.written
        buffers = [_buffer(items, limit, trip) for items in grown.values()]
        changed = list(outline.changed.values())
        pattern = [state, changed, [operands.found[place] for place in written], buffers]
        start = [[trip, condition, *carried], [around[key] for key in keys], *pattern[2:]]
        given = operands.given()
        kept = [value for place, value in enumerate(given) if place not in written]
        first = unaliased(flat(start, pattern), [])
        count = len(first)

        def opened(tensors: Sequence[Any]) -> tuple[list[Any], list[Any], Environment, list[Any]]:
            values, inner_states, changing, rows = unflat(pattern, iter(tensors[:count]))
            changing = [value.clone() for value in changing]
            rest, all_given = iter(tensors[count:]), list(given)
            for place in range(len(given)):
                all_given[place] = changing[written.index(place)] if place in written else next(rest)
            inner = self._related(operands, all_given, outline.fixed)
            return values, changing, {**inner, **dict(zip(keys, inner_states, strict=True))}, rows

        def test(*tensors: Any) -> torch.Tensor:
            values, _, inner, _ = opened(tensors)
            holds = values[1]
            if counted:
                holds = compute("aten::__and__", [compute("aten::lt", [values[0], inner[TRIPS]]), holds])
            return tensor_of(holds, torch.bool).ne(False)  # torch allows no input itself

        def next_of(*tensors: Any) -> tuple[torch.Tensor, ...]:
            values, changing, inner, rows = opened(tensors)
            outputs = self._run(body, [values[0], *values[2:]], inner)
            filled = [
                _filled(buffer, inner[name], values[0], trip)
                for name, buffer in zip(grown, rows, strict=True)
            ]
            result = [[_next(values[0]), *outputs], [inner[key] for key in keys], changing, filled]
            return tuple(unaliased(flat(result, pattern), tensors))

        if self._is_aside:
            results = [torch.empty_like(tensor) for tensor in first]
        else:
            results = while_loop_op(test, next_of, tuple(first), tuple(kept))
        outputs = self._leave(
            pattern[:3], results[: count - len(buffers)], keys, operands, written, environment
        )
        for (name, items), rows in zip(grown.items(), results[count - len(buffers) :], strict=True):
            if condition is not True or state[1] is not True:
                steps: Any = symbol_of(compute("aten::sub", [outputs[0], trip]))
                rows = rows.index_select(0, torch.arange(steps * len(items)))
            environment[name].append(Grown(rows))  # type: ignore[attr-defined]
        return outputs[2:]

    def _loop_outline(
        self,
        body: Body,
        state: list[Any],
        names: Sequence[str],
        around: Environment,
        growing: Sequence[str],
    ) -> _LoopOutline:
        """Run a loop's block on tensors without data until its values have the same types as before it.

        Args:
            body: the block.
            state: the number of the step, the condition, and the carried values, before the first step.
            names: their names, for errors.
            around: all else that steps see.
            growing: the lists to which each step only appends.

        Raises:
            ControlFlowError: the types differ after every step.
        """
        keys: list[Key] = []
        states: list[Any] = []
        for _ in range(ROUNDS):
            fixed = {key: value for key, value in around.items() if key not in keys}
            operands = Operands(list(fixed.values()))
            varying = Operands([state, states])
            inner_state, inner_states = varying.values(_stand_ins(varying))
            outline = self._outline(
                body,
                inner_state[:1] + inner_state[2:],
                operands,
                fixed,
                dict(zip(keys, inner_states, strict=True)),
            )
            after = [_next(inner_state[0]), *outline.outputs]
            grown: dict[Key, list[torch.Tensor]] = {
                name: _items(outline.changed.pop(name), name) for name in growing if name in outline.changed
            }
            found = [unified(*each) for each in zip(state, after, names, strict=True)]
            others = [key for key in outline.changed if key not in keys]
            found_states = [
                unified(value, outline.changed.get(key, value), _name(key))
                for key, value in zip(keys, states, strict=True)
            ]
            is_stable = not others and _is_pattern(found, state) and _is_pattern(found_states, states)
            state, states = found, found_states
            if is_stable:
                changed = dict(zip(keys, states, strict=True))
                return _LoopOutline(state, changed, grown, fixed, operands, sorted(outline.written))
            keys += others
            states += [unified(around[key], outline.changed[key], _name(key)) for key in others]
        raise ControlFlowError("the types of the loop's variables do not settle")

    def _leave(
        self,
        pattern: list[Any],
        results: Sequence[torch.Tensor],
        keys: Sequence[Key],
        operands: Operands,
        written: Sequence[int],
        environment: Environment,
    ) -> list[object]:
        """The outputs, after the surroundings got what the blocks changed."""
        outputs, changed, changing = unflat(pattern, iter(results))
        for key, value in zip(keys, changed, strict=True):
            self._change(key, environment[key], value)
        for place, value in zip(written, changing, strict=True):
            operands.found[place].copy_(value)
            self._wrote(operands.found[place])
        return list(outputs)

    def _choose(
        self, step: Step, condition: DataNumber, environment: Environment, pattern: list[Any]
    ) -> list[object]:
        """Compute both blocks, which only compute numbers, and choose."""
        sides = [flat(self._run(block, [], dict(environment)), pattern) for block in step.blocks]
        chosen = (torch.where(condition.tensor, *pair) for pair in zip(*sides, strict=True))
        return list(unflat(pattern, chosen))

    def _outline_or_error(
        self, block: Body, operands: Operands, environment: Environment
    ) -> _Outline | ScriptRaisedError:
        try:
            return self._outline(block, [], operands, environment, {})
        except ScriptRaisedError as error:
            return error

    def _outline(
        self,
        block: Body,
        arguments: list[object],
        operands: Operands,
        environment: Environment,
        more: Environment,
    ) -> _Outline:
        with self._aside():
            given = _stand_ins(operands)
            versions = [_version(value) for value in given]
            inner = {**self._related(operands, given, environment), **more}
            before = rebuilt(inner, lambda leaf: leaf, {})
            outputs = self._run(block, arguments, inner)
            changed = {key: value for key, value in inner.items() if not are_same(before[key], value)}
            written = [place for place, value in enumerate(given) if _version(value) != versions[place]]
            return _Outline(outputs, changed, frozenset(written))

    def _related(self, operands: Operands, given: Sequence[Any], environment: Environment) -> Environment:
        """The environment on other operands."""
        for old, new in zip(operands.found, given, strict=True):
            self._relate(old, new)
        return dict(zip(environment, operands.values(given), strict=True))

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Run operators without a trace of them in the exported program."""
        was, self._is_aside = self._is_aside, True
        try:
            with disable_proxy_modes_tracing():
                yield
        finally:
            self._is_aside = was


def _unfixed(value: object) -> object:
    """A number that may differ from step to step in place of a size."""
    kind = kind_of(value)
    return value if kind is None or not varies(value) else stand_in_number(kind)


def _limit(body: Body, environment: Environment, trip: int, carried: Sequence[object]) -> object | None:
    """The most steps of a ``while``, if its condition ends with ``count + 1 < limit``; else None.

    A saved script has a ``for`` with a ``break`` in that form.
    """
    makers = {name: each for each in body.steps for name in each.outputs}
    values = {each.outputs[0]: each.constant for each in body.steps if each.kind == "prim::Constant"}
    asked = [body.outputs[0]]
    while asked:
        name = asked.pop()
        each = makers.get(name)
        if each is not None and each.kind == "aten::__and__":
            asked += each.inputs
        if each is None or each.kind != "aten::lt":
            continue
        count, bound = each.inputs
        place = body.outputs[1:].index(count) if count in body.outputs[1:] else -1
        added = makers.get(count)
        found = values.get(bound, environment.get(bound))
        if place < 0 or found is None or added is None or added.kind != "aten::add":
            continue
        one = values.get(added.inputs[1], environment.get(added.inputs[1]))
        if added.inputs[0] == body.inputs[1 + place] and as_number(one) == 1:
            bounds: Any = symbol_of(found)
            start: Any = symbol_of(carried[place])
            return bounds - start + trip
    return None


def _growing(body: Body, environment: Environment) -> list[str]:
    """The lists to which each step only appends."""
    appended = {each.inputs[0] for each in body.steps if each.kind == "aten::append"}
    uses = [
        (name, each.kind == "aten::append" and place == 0 and each in body.steps)
        for each in body.all_steps()
        for place, name in enumerate(each.inputs)
    ]
    uses += [(name, False) for block in _blocks(body) for name in block.outputs]
    read = {name for name, is_append in uses if not is_append}
    lists = (name for name, value in environment.items() if isinstance(name, str) and isinstance(value, list))
    return [name for name in lists if name in appended and name not in read]


def _blocks(body: Body) -> Iterator[Body]:
    yield body
    for each in body.all_steps():
        yield from each.blocks


def _items(items: Any, name: Key) -> list[torch.Tensor]:
    """The items that a step appends, which must be tensors of one type."""
    if not all(isinstance(item, torch.Tensor) for item in items):
        raise ControlFlowError(f"the list '{_name(name)}' grows by numbers: make them tensors")
    for item in items:
        unified(items[0], item, _name(name))
    return list(items)


def _buffer(items: list[torch.Tensor], limit: object | None, trip: int) -> torch.Tensor:
    """A tensor with a row for each item that the loop may append."""
    if limit is None:
        raise ControlFlowError(
            "a value decides how long a list grows: bound the steps by `for i in range(limit)` and `break`"
        )
    steps: Any = symbol_of(limit)
    count = torch.sym_max(steps - trip, 0) * len(items)
    return torch.zeros([count, *items[0].shape], dtype=items[0].dtype)


def _filled(buffer: torch.Tensor, items: Any, trip: Any, first: int) -> torch.Tensor:
    """The buffer with the items of one step in their rows."""
    start = compute("aten::mul", [compute("aten::sub", [trip, first]), len(items)])
    places = tensor_of(start).reshape(1)
    if len(items) > 1:
        places = places + torch.arange(len(items))
    return buffer.index_copy(0, places, torch.stack(items))


def _stand_ins(operands: Operands) -> list[Any]:
    """Tensors without values in place of operands."""
    with disable_proxy_modes_tracing():
        return [_stand_in(value) for value in operands.found]


def _stand_in(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.empty_like(value)
    kind = kind_of(value)
    assert kind is not None
    return value if isinstance(value, torch.SymInt) else stand_in_number(kind).tensor


def _version(value: object) -> int:
    return value._version if isinstance(value, torch.Tensor) else 0


def _next(trip: object) -> object:
    return compute("aten::add", [trip, 1]) if isinstance(trip, DataNumber) else trip


def _is_pattern(found: Any, pattern: Any) -> bool:
    """Whether a found pattern has the types and the constants of a pattern."""
    if isinstance(found, list | tuple):
        return len(found) == len(pattern) and all(map(_is_pattern, found, pattern))
    if isinstance(found, dict):
        return all(map(_is_pattern, found.values(), pattern.values()))
    if isinstance(found, torch.Tensor):
        return isinstance(pattern, torch.Tensor)
    if isinstance(found, DataNumber):
        return isinstance(pattern, DataNumber) and found.kind is pattern.kind
    return are_same(found, pattern)


UNSAFE = frozenset({"aten::floordiv", "aten::floor_divide", "aten::remainder"})
"""Operators that stop the process on some numbers."""


def _is_choice(step: Step, pattern: list[object]) -> bool:
    """Whether the blocks only compute numbers, so that computing both is cheaper than a branch."""
    if any(isinstance(each, torch.Tensor | list | tuple | dict) for each in pattern):
        return False
    kinds = {each.kind for block in step.blocks for each in block.all_steps()}
    return all(kind == "prim::Constant" or (kind in ON_TENSORS and kind not in UNSAFE) for kind in kinds)


def _names(names: Sequence[str]) -> list[str]:
    return [name.partition(".")[0] for name in names]


def _name(key: Key) -> str:
    return key.partition(".")[0] if isinstance(key, str) else key[1]
