"""The tree of a function in a snapshot, read from its TVMScript without executing it."""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Iterator, Sequence
from textwrap import dedent

from pydantic import Field

from bessemer.contract.base import Document
from bessemer.contract.names import did_you_mean
from bessemer.errors import InvalidArgumentError

TENSORIR = "tensorir"
_KINDS = {"prim_func": TENSORIR, "function": "relax"}
_LOOPS = {
    "range": "serial",
    "grid": "serial",
    "serial": "serial",
    "unroll": "unrolled",
    "thread_binding": "bound",
}
_ITERATORS = {"S": "spatial", "R": "reduce", "O": "opaque"}
_ALLOCATIONS = frozenset(
    {"sblock_alloc_buffer", "alloc_buffer", "alloc_local", "alloc_shared", "allocate", "decl_buffer"}
)
_NUMBER = re.compile(r"\bT\.(?:int\d+|float\d+|bool)\((-?\d[\d.]*(?:e[+-]\d+)?)\)")


class IrNode(Document):
    """A part of a function. Which fields have values depends on ``kind``."""

    kind: str = Field(
        description="`parameter`, `attributes`, `buffer`, `dataflow`, `binding`, `outputs`, `branch`, "
        "`else`, `loop`, `block`, `iterator`, `reads`, `writes`, `annotations`, "
        "`where`, `init`, `statement` or `result`."
    )
    name: str = Field(default="", description="The name of what the part defines.")
    type: str = Field(
        default="",
        description="The type; of a loop, how it runs; of an iterator, `spatial` or `reduce`.",
    )
    value: str = Field(
        default="",
        description="The expression; of a loop, its extents. Of a parameter of TensorIR: `input`, `output`, "
        "or `exposed` if another statement reads what one wrote: an intermediate that the caller sees. Of a "
        "buffer: `allocated`, which is hidden from the caller, or `matched`, a view of a parameter.",
    )
    body: tuple[IrNode, ...] = Field(default=(), description="The parts inside.")


class IrTree(Document):
    """A function of a snapshot."""

    name: str = Field(description="The function.")
    kind: str = Field(description="`relax` or `tensorir`.")
    returns: str = Field(default="", description="The type of the result; empty for TensorIR.")
    body: tuple[IrNode, ...] = Field(description="Parameters, then statements.")


def function_text(text: str, name: str) -> str:
    """One function of a snapshot's text. Raises ``InvalidArgumentError`` if it has no such function."""
    found = _function(text, name)
    first = min((each.lineno for each in found.decorator_list), default=found.lineno)
    return dedent("".join(_lines(text)[first - 1 : found.end_lineno]))


def _lines(text: str) -> list[str]:
    """The lines as Python's parser counts them; a form feed does not end a line."""
    return io.StringIO(text, newline="").readlines()


def function_tree(text: str, name: str) -> IrTree:
    """The tree of a function of a snapshot.

    Raises:
        InvalidArgumentError: the text has no such function, or it is cut.
    """
    found = _function(text, name)
    roles = _roles(found) if _kind_of(found) == TENSORIR else {}
    try:
        parameters = tuple(_parameter(each, roles.get(each.arg, "")) for each in found.args.args)
        body = (*parameters, *_statements(found.body))
    except RecursionError as error:
        raise InvalidArgumentError(f"function '{name}' is nested too deeply") from error
    returns = "" if found.returns is None else _source(found.returns)
    return IrTree(name=name, kind=_kind_of(found), returns=returns, body=body)


def _function(text: str, name: str) -> ast.FunctionDef:
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidArgumentError(f"the snapshot is cut, or not TVMScript: {error}") from error
    classes = (each.body for each in module.body if isinstance(each, ast.ClassDef))
    functions = {
        each.name: each
        for scope in (module.body, *classes)
        for each in scope
        if isinstance(each, ast.FunctionDef)
    }
    if name in functions:
        return functions[name]
    near = did_you_mean(name, functions, count=3) or f"; it has {', '.join(functions) or 'none'}"
    raise InvalidArgumentError(f"the module has no function '{name}'{near}")


def _roles(function: ast.FunctionDef) -> dict[str, str]:
    """What the statements of a TensorIR function do with each buffer.

    A statement that adds to what it writes, as reductions do, does not count as a reader.
    """
    written, read = set[str](), set[str]()
    for statement in ast.walk(function):
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
            target = _source(statement.targets[0].value)
            written.add(target)
            loads = (each for each in ast.walk(statement.value) if isinstance(each, ast.Subscript))
            read |= {_source(each.value) for each in loads} - {target}
    roles = dict.fromkeys(read, "input") | dict.fromkeys(written, "output")
    return roles | dict.fromkeys(read & written, "exposed")


def _kind_of(function: ast.FunctionDef) -> str:
    names = (_called(each) for each in function.decorator_list)
    return next((_KINDS[name] for name in names if name in _KINDS), "")


def _parameter(argument: ast.arg, role: str) -> IrNode:
    kind = "" if argument.annotation is None else _source(argument.annotation)
    return IrNode(kind="parameter", name=argument.arg, type=kind, value=role)


def _statements(body: Sequence[ast.stmt]) -> Iterator[IrNode]:
    for statement in body:
        yield from _statement(statement)


def _statement(statement: ast.stmt) -> Iterator[IrNode]:
    match statement:
        case ast.With(items=[ast.withitem(context_expr=ast.Call() as call)], body=body):
            yield _scope(call, body)
        case ast.For(target=target, iter=ast.Call() as call, body=body):
            yield _loop(target, call, body)
        case ast.If(test=test, body=body, orelse=others):
            yield IrNode(kind="branch", value=_source(test), body=tuple(_statements(body)))
            if others:
                yield IrNode(kind="else", body=tuple(_statements(others)))
        case ast.While(test=test, body=body):
            yield IrNode(kind="loop", type="while", value=_source(test), body=tuple(_statements(body)))
        case ast.AnnAssign(target=target, annotation=annotation, value=value):
            text = "" if value is None else _source(value)
            yield IrNode(kind="binding", name=_source(target), type=_source(annotation), value=text)
        case ast.Assign(targets=[target], value=value):
            yield from _assignment(target, value)
        case ast.Expr(value=ast.Call() as call):
            yield _call(call)
        case ast.Return(value=value) if value is not None:
            yield IrNode(kind="result", value=_source(value))
        case _:
            yield IrNode(kind="statement", value=_source(statement))


def _scope(call: ast.Call, body: Sequence[ast.stmt]) -> IrNode:
    inside = tuple(_statements(body))
    match _called(call):
        case "dataflow":
            return IrNode(kind="dataflow", body=inside)
        case "sblock" | "block":
            return IrNode(kind="block", name=_literal(call), body=inside)
        case "init":
            return IrNode(kind="init", body=inside)
        case _:
            return IrNode(kind="statement", value=_source(call), body=inside)


def _loop(target: ast.expr, call: ast.Call, body: Sequence[ast.stmt]) -> IrNode:
    name = _called(call)
    bounds = (f"{each.arg}={_source(each.value)}" for each in call.keywords)
    extents = ", ".join((*map(_source, call.args), *bounds))
    kind = _LOOPS.get(name, name)
    return IrNode(
        kind="loop", name=_unpacked(target), type=kind, value=extents, body=tuple(_statements(body))
    )


def _assignment(target: ast.expr, value: ast.expr) -> Iterator[IrNode]:
    name = _unpacked(target)
    if not isinstance(value, ast.Call):
        kind = "statement" if isinstance(target, ast.Subscript) else "binding"
        if not (kind == "binding" and name == "cls"):
            text = f"{name} = {_source(value)}" if kind == "statement" else _source(value)
            yield IrNode(kind=kind, name="" if kind == "statement" else name, value=text)
        return
    called = _called(value)
    if called in _ALLOCATIONS:
        yield IrNode(kind="buffer", name=name, type=_arguments(value), value="allocated")
    elif called == "match_buffer":
        yield IrNode(kind="buffer", name=name, type=_arguments(value), value="matched")
    elif isinstance(value.func, ast.Attribute) and _source(value.func).startswith("T.axis."):
        yield from _iterators(target, called, value)
    elif isinstance(target, ast.Subscript):
        yield IrNode(kind="statement", value=f"{name} = {_source(value)}")
    else:
        kind, text = _typed(value)
        yield IrNode(kind="binding", name=name, type=kind, value=text)


def _typed(call: ast.Call) -> tuple[str, str]:
    """The type of a call's result if the call names it, and the call without it."""
    types = [each for each in call.keywords if each.arg in ("out_ty", "out_sinfo")]
    others = [each for each in call.keywords if each not in types]
    kind = ", ".join(_source(each.value) for each in types)
    return kind, _source(ast.Call(func=call.func, args=call.args, keywords=others))


def _iterators(target: ast.expr, called: str, call: ast.Call) -> Iterator[IrNode]:
    names = target.elts if isinstance(target, ast.Tuple) else [target]
    if called != "remap":
        domain, *binding = map(_source, call.args)
        value = " = ".join((f"in {domain}", *binding))
        yield IrNode(kind="iterator", name=_unpacked(target), type=called, value=value)
        return
    bindings = call.args[1].elts if isinstance(call.args[1], ast.List) else []
    for one, letter, loop in zip(names, _literal(call), bindings, strict=False):
        kind = _ITERATORS.get(letter, letter)
        yield IrNode(kind="iterator", name=_source(one), type=kind, value=f"= {_source(loop)}")


def _call(call: ast.Call) -> IrNode:
    match _called(call):
        case "func_attr":
            return IrNode(kind="attributes", value=_arguments(call))
        case "sblock_attr" | "block_attr":
            return IrNode(kind="annotations", value=_arguments(call))
        case "reads" | "writes" | "where" as kind:
            return IrNode(kind=kind, value=_arguments(call))
        case "output":
            return IrNode(kind="outputs", value=_arguments(call))
        case _:
            return IrNode(kind="statement", value=_source(call))


def _arguments(call: ast.Call) -> str:
    named = (f"{each.arg}={_source(each.value)}" for each in call.keywords)
    return ", ".join((*map(_source, call.args), *named))


def _literal(call: ast.Call) -> str:
    """The first argument of a call, if it is a text."""
    match call.args:
        case [ast.Constant(value=str() as text), *_]:
            return text
        case _:
            return ""


def _unpacked(target: ast.expr) -> str:
    names = target.elts if isinstance(target, ast.Tuple) else [target]
    return ", ".join(map(_source, names))


def _called(node: ast.expr) -> str:
    """The last part of the name that an expression calls or names."""
    function = node.func if isinstance(node, ast.Call) else node
    return function.attr if isinstance(function, ast.Attribute) else _source(function)


def _source(node: ast.AST) -> str:
    """The node as Python, with plain numbers for ``T.int64(4)``."""
    return _NUMBER.sub(r"\1", ast.unparse(node))


def tree_lines(tree: IrTree) -> Iterator[str]:
    """The lines that show a tree."""
    yield f"{tree.kind} function {tree.name}" + (f" -> {tree.returns}" if tree.returns else "")
    yield from _node_lines(tree.body, 1)


def _node_lines(nodes: Sequence[IrNode], depth: int) -> Iterator[str]:
    for node in nodes:
        yield "  " * depth + _line(node)
        yield from _node_lines(node.body, depth + 1)


def _line(node: IrNode) -> str:
    named = f"{node.name}: {node.type}" if node.type else node.name
    match node.kind:
        case "binding":
            return f"{named} = {node.value}"
        case "statement":
            return node.value
        case "buffer" | "parameter" if node.value:
            return f"{node.value} {node.kind} {named}"
        case "loop":
            return f"{node.type} loop {node.name} in {node.value}".replace("  in", "")
        case "iterator":
            return f"{node.type} iterator {node.name} {node.value}"
        case _:
            return " ".join(filter(None, (node.kind, named, node.value)))
