"""Recognizes an uploaded IRModule by its bytes, without running anything."""

from __future__ import annotations

import re
from collections.abc import Collection

SCRIPT, JSON = "module.py", "module.json"
"""The names of a module in a zip archive."""

_JSON_HEAD = re.compile(rb'\s*\{\s*"(root_index|nodes|root|attrs)"')
_IMPORTS_TVM = re.compile(rb"^[ \t]*(import|from)[ \t]+tvm\b", re.MULTILINE)
_PYTHON = re.compile(rb"^(import|from|def|class)[ \t]+\w", re.MULTILINE)


def is_module_archive(names: Collection[str]) -> bool:
    """Whether an archive with these entries has a module."""
    return SCRIPT in names or JSON in names


def is_module_text(head: bytes) -> bool:
    """Whether a file that begins so is a script that imports TVM, or TVM's JSON."""
    return b"\0" not in head and (is_module_json(head) or _IMPORTS_TVM.search(head) is not None)


def is_module_json(head: bytes) -> bool:
    """Whether a file that begins so may be TVM's JSON."""
    return _JSON_HEAD.match(head) is not None


def is_python(head: bytes) -> bool:
    """Whether a file that begins so may be a Python file."""
    return b"\0" not in head and _PYTHON.search(head) is not None
