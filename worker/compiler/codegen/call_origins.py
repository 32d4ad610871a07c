"""Finds the operators of the user's model that each call of a fused function computes. Emits no code."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import getitem

import torch
import tvm
from torch._ops import OpOverload
from torch.fx import Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves
from tvm import relax

from bessemer.contract.code import (
    MAX_CALLS,
    MAX_INPUTS,
    MAX_NAME,
    MAX_OPERATORS,
    CodeCall,
    CodeOperator,
    listed_name,
)
from bessemer.contract.problem import SourcePlace
from worker.compiler.codegen.argument_checks import bindings_of
from worker.compiler.source_locations import place_of

MAX_PLACES = 100

_CALL = tvm.ir.Op.get("relax.call_tir")
_TRANSPARENT = frozenset(
    {"view", "reshape", "permute", "transpose", "t", "clone", "contiguous", "expand", "unsqueeze", "squeeze"}
    | {"unsafe_view", "alias", "detach", "dropout", "to_copy", "<built-in function getitem>", "flatten"}
    | {"native_batch_norm_legit_no_training", "batch_norm"}
)
"""Operators that move or rename elements, or that are folded into others."""

_CONVOLUTIONS = ("convolution", "conv1d", "conv2d", "conv3d")
_ITEM = "<built-in function getitem>"
_PRODUCTS = ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm")
_SAME: Mapping[str, tuple[str, ...]] = {
    "conv1d": _CONVOLUTIONS,
    "conv2d": _CONVOLUTIONS,
    "conv3d": _CONVOLUTIONS,
    "attend": ("matmul", "bmm", "baddbmm"),
    "linear": _PRODUCTS,
    "matmul": _PRODUCTS,
    "multiply": ("mul",),
    "subtract": ("sub",),
    "divide": ("div",),
    "take": ("embedding", "index_select", "index"),
    "cut": ("select", "slice"),
    "norm": ("native_layer_norm", "layer_norm", "native_group_norm", "rms_norm"),
    "pool": ("max_pool2d_with_indices", "max_pool2d", "mean", "avg_pool2d", "adaptive_avg_pool2d"),
}
_PARTS: Mapping[str, tuple[str, ...]] = {
    "attention": ("scaled_dot_product", "attend", "mul", "softmax", "attend")
}


@dataclass
class _Call:
    """A call before its nodes are known; ``made`` says which arguments are results of calls."""

    function: str
    arguments: tuple[relax.Expr, ...]
    made: tuple[bool, ...]
    inputs: tuple[int, ...]
    results: list[relax.Expr]

    @property
    def reads_inputs(self) -> bool:
        """Whether an argument is one of the model's own."""
        pairs = zip(self.arguments, self.made, strict=True)
        return any(isinstance(each, relax.Var) and not made for each, made in pairs)


@dataclass(frozen=True)
class Origins:
    """The calls of a module in order, and the operators of the exported program that they compute."""

    calls: tuple[CodeCall, ...]
    operators: tuple[CodeOperator, ...]

    def places(self) -> dict[str, tuple[SourcePlace, ...]]:
        """Up to a hundred distinct places of each function, by the name in its calls."""
        found: dict[str, dict[SourcePlace, None]] = {}
        for call in self.calls:
            places = (self.operators[number].place for number in call.operators)
            found.setdefault(call.function, {}).update(dict.fromkeys(places))
        return {function: tuple(places)[:MAX_PLACES] for function, places in found.items()}


def origins_of(module: tvm.IRModule, nodes: Mapping[str, Node]) -> Origins:
    """The calls of a module in order, and the operators that each computes.

    Fusion names a function's parameters after the variables that its first call reads. These names and the
    order of the outputs identify the nodes whose values pass between functions; a call computes the nodes
    between them. Later calls of the same function compute nodes of the same operators, in the same order,
    from what they read. Equal nodes were merged, so the call that computes one computes all.

    Args:
        module: legalized and fused.
        nodes: nodes of the exported program by the names of the variables that they became.
    """
    calls = _calls(module)
    program = list(next(iter(nodes.values())).graph.nodes) if nodes else []
    known = {**_outputs(module, program), **_named_values(calls, module, nodes)}
    equals = _equal_nodes(program, set(known.values()))
    read_later = {place for call in calls for place in call.inputs}
    placeholders = [node for node in program if node.op == "placeholder"]
    order = {node: number for number, node in enumerate(program)}
    claimed: set[Node] = set()
    templates: dict[str, tuple[tuple[Node, ...], tuple[Node | None, ...]]] = {}
    found: list[list[Node]] = []
    for place, call in enumerate(calls):
        read = tuple(known.get(argument) for argument in call.arguments)
        ends = [known[result] for result in call.results if result in known]
        if not ends and place not in read_later:
            ends = [node for node in _returned(program) if node not in claimed]
        computed: list[Node] = []
        if ends and all(node is not None for node, each in zip(read, call.made, strict=True) if each):
            unclaimed = [node for node in ends if node not in claimed]
            computed = sorted(_between({*known.values(), *claimed}, unclaimed), key=order.__getitem__)
        elif not ends:
            if call.function in templates:
                computed = _like(*templates[call.function], read, claimed)
            sources = [each for node in read if node for each in (node, *equals.get(node, ()))]
            sources += placeholders if call.reads_inputs else []
            computed = computed or _grown(call.function, sources, claimed)
            ends = computed[-1:]
            if not computed and len(read) == 1 and read[0] is not None:
                ends = [read[0]]  # only the layout changes
        for result in call.results:
            if ends and result not in known:
                known[result] = ends[0]
        if computed:
            templates.setdefault(call.function, (tuple(computed), read))
        computed = [each for node in computed for each in (node, *equals.get(node, ()))]
        claimed.update(computed)
        found.append(computed)
    operators = [node for node in program if isinstance(node.target, OpOverload)][:MAX_OPERATORS]
    number = {node: place for place, node in enumerate(operators)}
    return Origins(
        tuple(
            CodeCall(
                function=listed_name(call.function),
                inputs=call.inputs[:MAX_INPUTS],
                operators=tuple(sorted(number[node] for node in computed if node in number)),
            )
            for call, computed in zip(calls, found, strict=True)
        )[:MAX_CALLS],
        tuple(_operator(node, number) for node in operators),
    )


def _operator(node: Node, number: Mapping[Node, int]) -> CodeOperator:
    inputs = tuple(number[each] for each in node.all_input_nodes if each in number)
    return CodeOperator(
        name=node.name[:MAX_NAME], place=place_of(node), value=_value(node), inputs=inputs[:MAX_INPUTS]
    )


def _value(node: Node) -> str:
    value = node.meta.get("val")
    if isinstance(value, list | tuple):
        value = next(iter(value), None)
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None:
        return ""
    return f"{str(dtype).removeprefix('torch.')}[{', '.join(map(str, shape))}]"[:MAX_NAME]


def _calls(module: tvm.IRModule) -> list[_Call]:
    calls: list[_Call] = []
    maker: dict[relax.Expr, int] = {}
    for binding in bindings_of(module):
        value = binding.value
        if isinstance(value, relax.Call) and value.op == _CALL:
            arguments = tuple(value.args[1].fields)
            inputs = tuple(dict.fromkeys(maker[each] for each in arguments if each in maker))
            maker[binding.var] = len(calls)
            made = tuple(each in maker for each in arguments)
            calls.append(_Call(str(value.args[0].name_hint), arguments, made, inputs, [binding.var]))
            continue
        for source in _passed_on(value):
            if source in maker:
                maker[binding.var] = maker[source]
                calls[maker[source]].results.append(binding.var)
                break
    return calls


def _passed_on(value: relax.Expr) -> Iterator[relax.Expr]:
    """The operands of a value that no kernel computes, such as a view."""
    if isinstance(value, relax.TupleGetItem):
        yield value.tuple_value
    elif isinstance(value, relax.Call):
        yield from value.args
    elif isinstance(value, relax.Var):
        yield value


def _named_values(
    calls: Sequence[_Call], module: tvm.IRModule, nodes: Mapping[str, Node]
) -> dict[relax.Expr, Node]:
    """The nodes of values that pass between functions, by the names in the first call of each function."""
    known: dict[relax.Expr, Node] = {}
    seen: set[str] = set()
    for call in calls:
        if call.function in seen:
            continue
        seen.add(call.function)
        for argument, parameter in zip(call.arguments, module[call.function].params, strict=False):
            name = str(parameter.name)
            if name in nodes:
                known.setdefault(argument, nodes[name])
    return known


def _outputs(module: tvm.IRModule, program: Sequence[Node]) -> dict[relax.Expr, Node]:
    """The nodes of the values that ``main`` returns; none if it returns more or fewer than the program."""
    results = module["main"].body.body
    values = next((each.value for each in bindings_of(module) if each.var.same_as(results)), results)
    fields = tuple(values.fields) if isinstance(values, relax.Tuple) else (values,)
    ends = tuple(end for node in program if node.op == "output" for end in tree_leaves(node.args))
    if len(ends) != len(fields):
        return {}
    return {
        value: node
        for value, node in zip(fields, ends, strict=True)
        if isinstance(value, relax.Var) and isinstance(node, Node) and node.op == "call_function"
    }


def _equal_nodes(program: Sequence[Node], known: Collection[Node]) -> dict[Node, list[Node]]:
    """The later nodes that equal a node, which keep no value of their own when equal expressions merge."""
    first: dict[tuple[object, str], Node] = {}
    same: dict[Node, Node] = {}
    found: dict[Node, list[Node]] = {}
    for node in program:
        if node.op != "call_function" or not _is_pure(node):
            continue
        arguments = map_arg((node.args, dict(node.kwargs)), lambda each: same.get(each, each))
        kept = first.setdefault((node.target, str(arguments)), node)
        if kept is not node and node not in known:
            same[node] = kept
            found.setdefault(kept, []).append(node)
    return found


def _is_pure(node: Node) -> bool:
    if not isinstance(node.target, OpOverload):
        return node.target is getitem
    random = torch.Tag.nondeterministic_seeded in node.target.tags
    return not random and not node.target._schema.is_mutable


def _returned(program: Sequence[Node]) -> list[Node]:
    return [value for node in program if node.op == "output" for value in node.all_input_nodes]


def _between(passed: set[Node], ends: Sequence[Node]) -> set[Node]:
    """The nodes that some nodes depend on, back to those whose values pass between functions."""
    found: set[Node] = set()
    waiting = list(ends)
    while waiting:
        node = waiting.pop()
        if node.op != "call_function" or node in found or (node in passed and node not in ends):
            continue
        found.add(node)
        waiting.extend(node.all_input_nodes)
    return found


def _grown(function: str, read: Sequence[Node], claimed: set[Node]) -> list[Node]:
    """The nodes downstream of what a call reads, matched to the words of the function's name.

    Fusion names a function after its operators in order. A word without an operator, such as the addition of
    a bias, is skipped.
    """
    words = [
        part
        for word in function.removeprefix("fused_").split("_")
        for part in _PARTS.get(word.rstrip("0123456789"), (word.rstrip("0123456789"),))
    ]
    found: list[Node] = []
    items = (user for node in read for user in node.users if _base(user) == _ITEM)
    reached = dict.fromkeys((*read, *items))
    for word in words:
        passed: list[Node] = []
        while True:
            users = [node for node in _followers(reached, claimed, found) if node not in passed]
            match = next((node for node in users if _is(node, word)), None)
            step = match or next((node for node in users if _base(node) in _TRANSPARENT), None)
            if step is None:
                for each in passed:
                    del reached[each]
                break
            passed.append(step)
            reached[step] = None
            if match is not None:
                found += passed
                break
    for node in _followers(reached, claimed, found):
        if found and _base(node) in _TRANSPARENT and node.all_input_nodes[0] is found[-1]:
            found.append(node)
            break
    return found


def _followers(reached: Collection[Node], claimed: set[Node], found: Sequence[Node]) -> list[Node]:
    """Nodes that read only what is reached or held in parameters, and that no call computes yet."""
    return [
        user
        for node in reached
        for user in node.users
        if user.op == "call_function"
        and user not in claimed
        and user not in found
        and user not in reached
        and all(each in reached or each.op != "call_function" for each in user.all_input_nodes)
    ]


def _base(node: Node) -> str:
    """The name of an operator without its namespace and overload."""
    return str(node.target).removeprefix("aten.").partition(".")[0].strip("_")


def _is(node: Node, word: str) -> bool:
    base = _base(node)
    return base in _SAME.get(word, ()) or base == word or (len(word) > 3 and base.startswith(word))


def _like(
    template: Sequence[Node],
    template_read: Sequence[Node | None],
    read: Sequence[Node | None],
    claimed: set[Node],
) -> list[Node]:
    """The nodes that apply a template's operators to what this call reads; empty if one is missing."""
    pairs = zip(template_read, read, strict=False)
    same = {old: new for old, new in pairs if old is not None and new is not None}
    found: list[Node] = []
    for node in template:
        known = [(place, same[old]) for place, old in enumerate(node.all_input_nodes) if old in same]
        if not known:
            return []
        candidates = (user for _, source in known for user in source.users)
        match = next(
            (
                user
                for user in candidates
                if user.target == node.target
                and user not in claimed
                and user not in found
                and len(user.all_input_nodes) == len(node.all_input_nodes)
                and all(user.all_input_nodes[place] is source for place, source in known)
            ),
            None,
        )
        if match is None:
            return []
        same[node] = match
        found.append(match)
    return found
