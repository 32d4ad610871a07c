"""Functions and their target as text, which one compiler process reads, and whose digest names the object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import tvm
from tvm import tirx

from bessemer.contract.base import Digest
from worker.compiler.codegen.generate import write_object


def text_of(functions: Mapping[str, tirx.PrimFunc], target: tvm.target.Target) -> bytes:
    """Scheduled functions by name and the processor that they are for, in an order that the object follows.

    Equal functions give equal bytes in every process: TVM numbers the nodes of a function as it visits them.
    A module would not, since it keeps its functions by address.
    """
    own = {name: tvm.ir.save_json(function) for name, function in functions.items()}
    return json.dumps({"target": tvm.ir.save_json(target), "functions": own}).encode()


def key_of(text: bytes) -> Digest:
    """The digest of a text, which the object of its functions is kept by."""
    return sha256(text).hexdigest()


def write_object_of(text: bytes, path: Path, with_sources: bool = False) -> None:
    """Compile the functions of a text to an object file; see ``write_object``.

    Raises:
        ValueError: this is not a text of ``text_of``.
    """
    read = json.loads(text)
    functions = {name: tvm.ir.load_json(function) for name, function in read["functions"].items()}
    write_object(tvm.IRModule(functions), tvm.ir.load_json(read["target"]), path, with_sources)
