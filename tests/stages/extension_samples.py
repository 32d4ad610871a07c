"""Uploaded extensions, loaded in this process as a job's child loads them."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import tvm_ffi

from bessemer.contract.report import LoadedExtension
from worker.compiler.extensions import use_uploads
from worker.compiler.frontend.ir_modules.old_names import old_names
from worker.compiler.kernels.functions import registered_names
from worker.job.extensions import load_extensions
from worker.job.folder import JobFolder
from worker.protocol.order import ExtensionFile


@contextmanager
def uploaded(folder: Path, **files: str) -> Iterator[tuple[LoadedExtension, ...]]:
    """Load files by name, without the suffix; everything that they defined is gone afterwards."""
    job = JobFolder(folder / "job")
    job.scratch.mkdir(parents=True)
    orders = []
    for name, text in files.items():
        content = dedent(text).encode()
        digest = hashlib.sha256(content).hexdigest()
        job.extension(digest).write_bytes(content)
        orders.append(ExtensionFile(digest=digest, name=f"{name}.py"))
    modules, path, functions = set(sys.modules), list(sys.path), registered_names()
    try:
        with old_names():  # which the job's own process keeps
            yield load_extensions(orders, job)
    finally:
        use_uploads(())
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(job.scratch)):
                del sys.modules[name]
        for name in registered_names() - functions:
            tvm_ffi.registry.remove_global_func(name)
