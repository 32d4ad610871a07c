"""Translates TVMScript as earlier versions of TVM, and courses that teach with them, spell it.

Only names change: what they mean has stayed the same. Lines keep their numbers, so errors name the author's
lines. A function that says ``s_tir`` is in today's dialect and stays as it is::

    from tvm.script import tir as T            from tvm.script import tirx as T
    @T.prim_func                               @T.prim_func(s_tir=True)
    T.Buffer[(4, 4), "float32"]                T.Buffer((4, 4), "float32")
    T.block("C"), T.block_attr(…)              T.sblock("C"), T.sblock_attr(…)
    T.alloc_buffer((4, 4))                     T.sblock_alloc_buffer((4, 4))
    T.var("int64")                             T.int64()
    from tvm.meta_schedule import …            from tvm.s_tir.meta_schedule import …
    R.call_tir(f, (x,), (1, 4), dtype="…")     R.call_tir(Module.f, (x,), out_ty=R.Tensor((1, 4), dtype="…"))
    R.call_tir(f, (x,), out_sinfo=…)           R.call_tir(Module.f, (x,), out_ty=…)
"""

from __future__ import annotations

import ast
import io
from collections.abc import Iterator
from typing import NamedTuple

_IN_FUNCTIONS = {"block": "sblock", "block_attr": "sblock_attr", "alloc_buffer": "sblock_alloc_buffer"}
_KEYWORDS = {"out_sinfo": "out_ty", "sinfo_args": "ty_args"}
_CALLS = ("call_tir", "call_dps_packed", "call_tir_inplace", "call_pure_packed", "call_packed")
_DIALECTS = {"tir": "tirx"}
_PACKAGES = {"tvm.tir": "tvm.tirx", "tvm.meta_schedule": "tvm.s_tir.meta_schedule"}


class _Edit(NamedTuple):
    """Replaces the text between two places, each a line from 1 and a column in UTF-8 bytes."""

    start: tuple[int, int]
    end: tuple[int, int]
    text: str


def with_new_spellings(source: str) -> str:
    """The script in today's spelling.

    Raises:
        SyntaxError: the source is not Python.
    """
    tree = ast.parse(source)
    edits = sorted(
        {*_imports(tree), *_functions(tree), *_calls(tree), *_buffers(tree), *_variables(tree)}, reverse=True
    )
    lines = [line.encode() for line in lines_of(source)]
    for (line, start), (last, end), text in edits:
        breaks = b"\n" * (last - line)
        lines[line - 1] = lines[line - 1][:start] + text.encode() + breaks + lines[last - 1][end:]
        lines[line:last] = [b""] * (last - line)
    return b"".join(lines).decode()


def lines_of(source: str) -> list[str]:
    """The lines as Python counts them, with their ends. A form feed, for example, does not end a line."""
    return io.StringIO(source, newline="").readlines()


def _imports(tree: ast.AST) -> Iterator[_Edit]:
    """``from tvm.script import tir``, also among other names, ``import tvm.script.tir as T``; packages."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.ImportFrom)
            and node.level == 0
            and (package := _renamed_package(node.module))
        ):
            names = ", ".join(map(ast.unparse, node.names))
            yield _Edit((node.lineno, node.col_offset), _end(node), f"from {package} import {names}")
        elif isinstance(node, ast.ImportFrom) and node.module == "tvm.script":
            for name in node.names:
                if name.name in _DIALECTS:
                    yield _over(name, f"{_DIALECTS[name.name]} as {name.asname or name.name}")
        elif isinstance(node, ast.Import):
            for name in node.names:
                if name.name == "tvm.script.tir" and name.asname:
                    yield _over(name, f"tvm.script.tirx as {name.asname}")
                elif package := _renamed_package(name.name):
                    yield _over(name, f"{package} as {name.asname}" if name.asname else package)


def _renamed_package(name: str | None) -> str | None:
    """Today's name of a package; None if it is the same."""
    for old, new in _PACKAGES.items():
        if name is not None and f"{name}.".startswith(f"{old}."):
            return new + name[len(old) :]
    return None


def _functions(tree: ast.AST) -> Iterator[_Edit]:
    """TensorIR functions that do not say ``s_tir``."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if not isinstance(called, ast.Attribute) or called.attr != "prim_func":
                continue
            keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
            if any(keyword.arg == "s_tir" for keyword in keywords) or not _has_blocks(node):
                continue
            rest = "".join(f", {ast.unparse(keyword)}" for keyword in keywords)
            yield _over(decorator, f"{ast.unparse(called)}(s_tir=True{rest})")
            yield from _renamed(node)


def _has_blocks(function: ast.FunctionDef) -> bool:
    names = {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
    return bool(names & {"block", "sblock", "axis"})


def _renamed(function: ast.FunctionDef) -> Iterator[_Edit]:
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Attribute)
            and node.attr in _IN_FUNCTIONS
            and isinstance(node.value, ast.Name)
        ):
            yield _over(node, f"{node.value.id}.{_IN_FUNCTIONS[node.attr]}")


def _variables(tree: ast.AST) -> Iterator[_Edit]:
    """``T.var("int64")`` in a decorated function."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef) or not function.decorator_list:
            continue
        for node in ast.walk(function):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="var", value=ast.Name(id=dialect)),
                    args=[ast.Constant(value=str(dtype))],
                ) if dtype.isidentifier():
                    yield _over(node, f"{dialect}.{dtype}()")


def _buffers(tree: ast.AST) -> Iterator[_Edit]:
    """``T.Buffer[shape, dtype]``."""
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=ast.Attribute(attr="Buffer")):
                fields = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
                arguments = ", ".join(map(ast.unparse, fields))
                yield _over(node, f"{ast.unparse(node.value)}({arguments})")


def _calls(tree: ast.AST) -> Iterator[_Edit]:
    """Calls in Relax: the type of the result, and functions of the same module by their bare names."""
    for module in ast.walk(tree):
        if not isinstance(module, ast.ClassDef):
            continue
        functions = {one.name for one in module.body if isinstance(one, ast.FunctionDef)}
        for node in ast.walk(module):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in _CALLS
            ):
                yield from _called(node, module.name, functions)
                yield from _result_type(node, node.func)


def _called(call: ast.Call, module: str, functions: set[str]) -> Iterator[_Edit]:
    first = call.args[0] if call.args else None
    if isinstance(first, ast.Name) and first.id in functions:
        yield _over(first, f"{module}.{first.id}")


def _result_type(call: ast.Call, function: ast.Attribute) -> Iterator[_Edit]:
    keywords = {keyword.arg: keyword for keyword in call.keywords}
    for old, new in _KEYWORDS.items():
        if old in keywords:
            start = (keywords[old].lineno, keywords[old].col_offset)
            yield _Edit(start, (start[0], start[1] + len(old)), new)
    if "dtype" in keywords and len(call.args) == 3 and isinstance(call.args[2], ast.Tuple | ast.Name):
        shape, dtype = call.args[2], keywords["dtype"]
        relax = ast.unparse(function.value)
        yield _over(shape, f"out_ty={relax}.Tensor({ast.unparse(shape)}, dtype={ast.unparse(dtype.value)})")
        yield _Edit(_end(shape), _end(dtype), "")


def _over(node: ast.expr | ast.alias, text: str) -> _Edit:
    return _Edit((node.lineno, node.col_offset), _end(node), text)


def _end(node: ast.expr | ast.stmt | ast.alias | ast.keyword) -> tuple[int, int]:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset
