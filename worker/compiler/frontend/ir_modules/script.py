"""Runs a Python file that defines an IRModule. Call it only in the sandbox: TVMScript is Python."""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx

from bessemer.contract.problem import ErrorCode, SourcePlace
from worker.compiler.frontend.ir_modules.notebooks import missing_imports, stand_ins, tables
from worker.compiler.frontend.ir_modules.old_names import old_names
from worker.compiler.frontend.ir_modules.old_spellings import lines_of, with_new_spellings
from worker.errors import JobError, failure_of, refusal

FILE = "module.py"
"""The name of the file in errors; an upload has no other."""
_MODULE = "uploaded_module"
_DIAGNOSTIC = re.compile(rf"error: (?P<message>.*?)\n --> {re.escape(FILE)}:(?P<line>\d+):", re.DOTALL)
_NO_ATTRIBUTE = re.compile(r"has no attribute '(?P<name>\w+)'|No module named '(?P<module>[\w.]+)'")

_NEW_NAMES = {
    "block": "T.sblock",
    "alloc_buffer": "T.sblock_alloc_buffer",
    "match_shape": "R.match_cast",
    "get_block": "get_sblock",
    "tir": "tvm.tirx",
    "tvm.tir": "tvm.tirx",
    "nd": "tvm.runtime.tensor",
    "meta_schedule": "tvm.s_tir.meta_schedule",
    "vm": "tvm.compile and relax.VirtualMachine",
    "allocate": "T.alloc_buffer",
    "DynTensorType": "relax.TensorType(shape, dtype), as the second argument of relax.Var",
}
"""Today's names for what earlier versions of TVM called otherwise, for errors."""

_NO_CLANG = "cannot find clang"
_WITHOUT_CLANG = (
    "a job has no C compiler: compile the function to LLVM IR beforehand, and write its text into the file; "
    "see docs/spaces.md#add-a-tensor-intrinsic"
)


@dataclass(frozen=True)
class Script:
    """What a Python file defines.

    Attributes:
        module: its module.
        functions: the Python functions that may be its reference, by name.
        registered: the names of the packed functions that it has registered with TVM.
    """

    module: tvm.IRModule
    functions: Mapping[str, Callable[..., Any]]
    registered: frozenset[str] = frozenset()


def run_script(source: str) -> Script:
    """Run a Python file and find its module.

    The module is the last IRModule that a variable of the file holds. A file without one may define
    functions, which become a module. Packages that the worker lacks have stand-ins.

    Raises:
        JobError: ``model-module-invalid`` with the line.
    """
    before = _packed_functions()
    try:
        tree = ast.parse(source)
        lacking = missing_imports(tree)
        text = with_new_spellings(_blanked(source, lacking))
        names = _run(text, stand_ins(lacking))
    except SyntaxError as error:
        raise _failed(f"{error.msg}", error.lineno) from error
    except (ValueError, RecursionError) as error:  # a NUL, or deeper nesting than Python's parser takes
        raise failure_of(ErrorCode.MODEL_MODULE_INVALID, error) from error
    module = _module_of(names)
    if module is None:
        raise _failed("the file defines no IRModule; write one as a class with the decorator @I.ir_module")
    own = {
        name: value
        for name, value in names.items()
        if inspect.isfunction(value) and value.__module__ == _MODULE
    }
    return Script(module, own, _packed_functions() - before)


def _packed_functions() -> frozenset[str]:
    return frozenset(map(str, tvm_ffi.registry.list_global_func_names()))


def _run(text: str, given: Mapping[str, Any]) -> dict[str, Any]:
    uploaded = ModuleType(_MODULE)
    uploaded.__file__ = FILE
    uploaded.__dict__.update(given)
    sys.modules[_MODULE] = uploaded
    # `inspect` reads the source of a decorated class from here; without a time, the entry is never checked
    linecache.cache[FILE] = (len(text), None, lines_of(text), FILE)
    try:
        with old_names(), tables(), _reasons_of_malformed_modules():
            exec(compile(text, FILE, "exec"), uploaded.__dict__)
    except SyntaxError:
        raise
    except (Exception, SystemExit) as error:
        raise _raised(error) from error
    return dict(uploaded.__dict__)


@contextmanager
def _reasons_of_malformed_modules() -> Iterator[None]:
    """While the context lasts, TVM's parser also says why a module is not well formed."""
    check, relax.analysis.check_well_formed = relax.analysis.check_well_formed, _check_well_formed
    try:
        yield
    finally:
        relax.analysis.check_well_formed = check


def _check_well_formed(module: Any, check_ty: bool = True) -> bool:
    relax.analysis.well_formed(module, check_ty)
    return True


def _blanked(source: str, statements: list[ast.stmt]) -> str:
    lines = lines_of(source)
    for statement in statements:
        assert statement.end_lineno is not None
        lines[statement.lineno - 1] = "pass\n"
        lines[statement.lineno : statement.end_lineno] = ["\n"] * (statement.end_lineno - statement.lineno)
    return "".join(lines)


def _module_of(names: Mapping[str, Any]) -> tvm.IRModule | None:
    modules = [value for value in names.values() if isinstance(value, tvm.IRModule)]
    if modules:
        return modules[-1]
    kinds = tirx.PrimFunc | relax.Function
    functions = {name: value for name, value in names.items() if isinstance(value, kinds)}
    return tvm.IRModule(functions) if functions else None


def _raised(error: BaseException) -> JobError:
    found = _DIAGNOSTIC.search(str(error))
    if found is not None:
        return _failed(_advised(found["message"].strip()), int(found["line"]))
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == FILE]
    message = _advised(refusal(error))
    return failure_of(
        ErrorCode.MODEL_MODULE_INVALID, error, *_described(message, lines[-1] if lines else None)
    )


def _advised(message: str) -> str:
    """The message, with today's spelling of a name that TVM no longer has, or with what a job lacks."""
    if _NO_CLANG in message:
        return f"{message} ({_WITHOUT_CLANG})"
    found = _NO_ATTRIBUTE.search(message)
    new = _NEW_NAMES.get(found["name"] or found["module"]) if found else None
    return f"{message} (TVM {tvm.__version__} spells it {new})" if new else message


def _failed(message: str, line: int | None = None) -> JobError:
    return JobError(ErrorCode.MODEL_MODULE_INVALID, *_described(message, line))


def _described(message: str, line: int | None) -> tuple[str, tuple[SourcePlace, ...]]:
    if line is None:
        return message, ()
    return f"{FILE}:{line}: {message}", (SourcePlace(file=FILE, line=line),)
