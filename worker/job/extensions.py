"""Loads a job's uploaded extensions, inside its confined child and before it forks.

A file runs as any Python file does. What it defines takes effect in this process and its children, and
ends with them.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import tvm

from bessemer.contract.extension import SUFFIX, shown_name
from bessemer.contract.offers import Offers
from bessemer.contract.options import STRATEGIES
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import LoadedExtension
from worker.compiler.extensions import ExtensionError, ExtensionPoint, UploadedModule, use_uploads
from worker.compiler.frontend.ir_modules.old_names import add_old_names
from worker.compiler.frontend.ir_modules.old_spellings import with_new_spellings
from worker.compiler.kernels import functions
from worker.compiler.kernels import registry as kernels
from worker.compiler.legalize import registry as legalizations
from worker.compiler.rewrites import registry as rewrites
from worker.compiler.spaces import registry as spaces
from worker.compiler.spaces.space import OWN_SPACES
from worker.compiler.translation import registry as translation
from worker.compiler.tuning import strategies
from worker.errors import JobError, failure_of, refusal
from worker.job.folder import JobFolder
from worker.protocol.order import ExtensionFile

BOOKS: tuple[tuple[ExtensionPoint[Any], Callable[[], object]], ...] = (
    (translation.POINT, translation.rule_book),
    (rewrites.POINT, rewrites.rewrite_book),
    (legalizations.POINT, legalizations.legalization_map),
    (spaces.POINT, spaces.space_book),
    (kernels.POINT, kernels.kernel_book),
    (functions.POINT, functions.function_book),
    (strategies.POINT, strategies.strategy_book),
)

_NOT_IN_MODULE_NAMES = re.compile(r"\W", re.ASCII)


def offers() -> Offers:
    """What requests can name: the built-in extensions, those of packages, and the uploaded files in force."""
    kernel_book = kernels.kernel_book()
    return Offers(
        rewrites=tuple(rewrites.rewrite_book().rewrites),
        strategies=(*STRATEGIES, *strategies.strategy_book()),
        spaces=(*OWN_SPACES, *spaces.space_book().spaces),
        kernels={operator: kernel_book.names(operator) for operator in kernel_book.operators},
    )


def load_extensions(files: Iterable[ExtensionFile], folder: JobFolder) -> tuple[LoadedExtension, ...]:
    """Run uploaded files and use what they define.

    Returns:
        What each file defines.

    Raises:
        JobError: ``extension-invalid``: a file does not load, or defines the wrong kind of object, or two
            files define the same name.
    """
    modules = folder.scratch / "extensions"
    files = tuple(files)
    if not files:
        return ()
    modules.mkdir()
    add_old_names()
    sys.path.append(str(modules))  # so that files can import each other, and pickles the classes in them
    placed = [_placed(file, folder, modules) for file in files]
    loaded = [
        UploadedModule(shown_name(*_named(file)), _run(file, path), file.digest) for file, path in placed
    ]
    use_uploads(loaded)
    try:
        for _, book in BOOKS:
            book()
        return tuple(
            LoadedExtension(digest=file.digest, name=module.name, defines=dict(_defined(module)))
            for file, module in zip(files, loaded, strict=True)
        )
    except ExtensionError as error:
        raise JobError(ErrorCode.EXTENSION_INVALID, str(error)) from error


def _defined(module: UploadedModule) -> Iterator[tuple[str, tuple[str, ...]]]:
    for point, _ in BOOKS:
        if names := point.names_in(module):
            yield point.attribute, names


def _named(file: ExtensionFile) -> tuple[str, str | None]:
    return file.digest, file.name


def _placed(file: ExtensionFile, folder: JobFolder, modules: Path) -> tuple[ExtensionFile, Path]:
    """Write a file to where Python finds it as a module; its name hides no other module."""
    name = shown_name(*_named(file)).removesuffix(SUFFIX)
    stem = _NOT_IN_MODULE_NAMES.sub("_", name)
    if not stem.isidentifier() or stem in sys.modules or importlib.util.find_spec(stem) is not None:
        stem = f"{stem}_{file.digest}"
    path = modules / f"{stem}{SUFFIX}"
    path.write_bytes(_in_new_spelling(folder.extension(file.digest).read_bytes()))
    importlib.invalidate_caches()  # a folder's time does not tell two writes in a few milliseconds apart
    return file, path


def _in_new_spelling(content: bytes) -> bytes:
    """The file with today's spellings of TVMScript; a file that is not Python as it is, for its error."""
    try:
        return with_new_spellings(content.decode("utf-8-sig")).encode()
    except (SyntaxError, ValueError, RecursionError):
        return content


def _run(file: ExtensionFile, path: Path) -> ModuleType:
    name = path.stem
    if name in sys.modules:  # another file has imported it
        return sys.modules[name]
    before = functions.registered_names()
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    try:
        specification.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise _failure(file, path, error) from error
    _add_registered(module, functions.registered_names() - before)
    return module


def _add_registered(module: ModuleType, names: Iterable[str]) -> None:
    """Add the functions that a file has registered with TVM itself."""
    own = getattr(module, functions.POINT.attribute, {})
    registered = {name: tvm.get_global_func(name) for name in sorted(names)}
    if registered and isinstance(own, Mapping):
        setattr(module, functions.POINT.attribute, {**registered, **own})


def _failure(file: ExtensionFile, path: Path, error: BaseException) -> JobError:
    name = shown_name(*_named(file))
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines.append(error.lineno)
        reason = f"{type(error).__name__}: {error.msg}"
    else:
        reason = refusal(error)
    place = f"{name}, line {lines[-1]}" if lines else name
    if isinstance(error, ModuleNotFoundError):
        reason += (
            "; the worker has no such module: send its file as another extension, or ask the operator to "
            "install its package"
        )
    return failure_of(ErrorCode.EXTENSION_INVALID, error, f"{place}: {reason}")
