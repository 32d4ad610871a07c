"""Exported programs, translated, built without schedules, and run in a process of their own."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tvm
from numpy.typing import NDArray

from bessemer.contract.triple import LINUX_X86_64
from worker.candidates.server import fork_server
from worker.compiler.codegen.link import link_shared
from worker.compiler.codegen.lowerings import register_lowerings
from worker.compiler.translation.decompositions import decomposed
from worker.compiler.translation.importer import Importer

Tensors = tuple[torch.Tensor, ...]

TARGET = tvm.target.Target({"kind": "llvm", "mtriple": LINUX_X86_64, "num-cores": 1, "opt-level": 0})
"""LLVM's optimizations take most of the time and do not change results."""


def run_program(program: torch.export.ExportedProgram, *calls: Tensors) -> list[list[NDArray[Any]]]:
    """The outputs of each call.

    Runs in another process: after a parallel region here, later forks would hang.
    """
    register_lowerings()
    program = decomposed(program)
    with TARGET:
        module = Importer().from_exported_program(program, False, False, False, None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "library.so"
        tvm.compile(module, TARGET).export_library(str(path), fcompile=link_shared, workspace_dir=folder)
        with fork_server(Path(folder)) as server, server.open_library(path, threads=1) as library:
            return [
                list(map(np.asarray, library.run(tuple(one.contiguous().numpy() for one in call))))
                for call in calls
            ]
