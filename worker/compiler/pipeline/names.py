"""The names in a request that only this worker can know: rewrites, kernel libraries and search spaces."""

from __future__ import annotations

from bessemer.contract.request import CompilationRequest
from worker.compiler.kernels.choose import check_choices
from worker.compiler.kernels.registry import kernel_book
from worker.compiler.rewrites.registry import rewrite_book
from worker.compiler.spaces.registry import space_book
from worker.compiler.spaces.space import OWN_SPACES
from worker.compiler.target import CompileTarget
from worker.compiler.tuning.assignment import check_spaces


def check_names(request: CompilationRequest, target: CompileTarget) -> None:
    """Refuse what names nothing here, before any work is spent on the model.

    Raises:
        JobError: ``rewrite-unknown``, ``kernel-unknown``, ``kernel-unavailable`` or ``space-unknown``; where
            a name is near, it says so.
    """
    rewrite_book().chosen(request.optimize)
    check_choices(request.kernels, kernel_book(), target.architecture)
    if request.tune.spaces:
        check_spaces(request.tune.spaces, (*OWN_SPACES, *space_book().spaces))
