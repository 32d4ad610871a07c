"""Stand-ins for packages of a notebook that the worker lacks.

What only displays something does nothing. Any other package fails where the file first uses it.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

_DISPLAYS = {"IPython", "matplotlib", "graphviz"}


class _Display:
    """Takes every call and attribute of a package that displays something."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *arguments: object, **named: object) -> Any:
        return self

    def __getitem__(self, key: object) -> Any:
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter((self, self))  # `figure, axes = plt.subplots()`


class _Missing:
    """Refuses every call and attribute of a package that the worker lacks."""

    def __init__(self, package: str) -> None:
        self._package = package

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._error()

    def __call__(self, *arguments: object, **named: object) -> Any:
        raise self._error()

    def _error(self) -> ModuleNotFoundError:
        return ModuleNotFoundError(f"the worker has no package '{self._package}': leave out what uses it")


def missing_imports(tree: ast.Module) -> list[ast.stmt]:
    """The file's imports of packages that the worker does not have, such as a notebook's."""
    return [statement for statement in tree.body if all(map(_is_missing, _packages(statement)))]


def stand_ins(imports: Iterable[ast.stmt]) -> dict[str, Any]:
    """What the names stand for that these imports would define."""
    return {
        (alias.asname or alias.name).partition(".")[0]: _stand_in(package)
        for statement in imports
        if isinstance(statement, ast.Import | ast.ImportFrom)
        for alias in statement.names
        for package in (_packages(statement)[0],)
    }


@contextmanager
def tables() -> Iterator[None]:
    """While the context lasts, torch can print the table of a graph, which needs ``tabulate``."""
    name = "tabulate"
    if not _is_missing(name):
        yield
        return
    module = ModuleType(name)
    module.__dict__[name] = _tabulate
    sys.modules[name] = module
    try:
        yield
    finally:
        del sys.modules[name]


def _tabulate(rows: Iterable[Iterable[object]], headers: Iterable[object] = ()) -> str:
    lines = [[str(cell) for cell in row] for row in (headers, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines
    )
    return "\n".join(line.rstrip() for line in padded)


def _stand_in(package: str) -> Any:
    return _Display() if package in _DISPLAYS else _Missing(package)


def _packages(statement: ast.stmt) -> list[str]:
    match statement:
        case ast.Import(names=names):
            return [name.name.partition(".")[0] for name in names]
        case ast.ImportFrom(module=str(module), level=0):
            return [module.partition(".")[0]]
    return [sys.__name__]


def _is_missing(package: str) -> bool:
    return package not in sys.modules and importlib.util.find_spec(package) is None
