"""What the client raises.

BessemerError
├── UnreachableError            no answer from the server
│   └── AnswerInvalidError      one that no Bessemer server of this version gives
├── ProblemError                the server said no; ``problem`` says why
│   ├── NotFoundError           404
│   ├── ConflictError           409
│   ├── RequestRefusedError     any other 4xx
│   ├── ServerFailedError       5xx
│   ├── CompilationFailedError  the compilation ended as ``failed``
│   ├── InvocationFailedError   the invocation ended as ``failed``
│   └── ModelRejectedError      the inspection refused the model
├── CompilationCancelledError   the compilation ended as ``cancelled``
├── InvocationCancelledError    the invocation ended as ``cancelled``
├── WaitTimeoutError            ``timeout`` ran out (a ``TimeoutError`` too)
├── NoWorkerError               no live worker takes the compilation
├── InvalidArgumentError        an argument cannot be used (a ``ValueError`` too)
├── ExportError                 a module could not be exported or saved, or the function that makes it raised
└── BundleError                 a download is damaged or unsafe
"""

from bessemer.contract.invocation import Invocation
from bessemer.contract.job import Compilation
from bessemer.contract.model import Model
from bessemer.contract.problem import ErrorCode, Problem, make_problem

__all__ = [
    "AnswerInvalidError",
    "BessemerError",
    "BundleError",
    "CompilationCancelledError",
    "CompilationFailedError",
    "ConflictError",
    "ExportError",
    "InvalidArgumentError",
    "InvocationCancelledError",
    "InvocationFailedError",
    "ModelRejectedError",
    "NoWorkerError",
    "NotFoundError",
    "ProblemError",
    "RequestRefusedError",
    "ServerFailedError",
    "UnreachableError",
    "WaitTimeoutError",
    "problem_error",
]


class BessemerError(Exception):
    """Every error of the client."""


class UnreachableError(BessemerError):
    """There was no answer from the server."""


class AnswerInvalidError(UnreachableError):
    """The answer is none that a Bessemer server of this version gives."""


class ProblemError(BessemerError):
    """The server said no. ``problem`` holds the stable code, the detail and the advice."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.title}: {problem.detail} [{problem.code}]")
        self.problem = problem


class NotFoundError(ProblemError):
    """What was asked for does not exist (404)."""


class ConflictError(ProblemError):
    """The state of things does not allow it (409)."""


class RequestRefusedError(ProblemError):
    """The request cannot be served as it is (any other 4xx)."""


class ServerFailedError(ProblemError):
    """The server cannot serve at present (5xx)."""


class CompilationFailedError(ProblemError):
    """The compilation ended as ``failed``; ``compilation`` is its final document."""

    def __init__(self, compilation: Compilation) -> None:
        detail = "The server gave no reason."
        super().__init__(compilation.problem or make_problem(ErrorCode.INTERNAL, detail))
        self.compilation = compilation


class InvocationFailedError(ProblemError):
    """The invocation ended as ``failed``; ``invocation`` is its final document."""

    def __init__(self, invocation: Invocation) -> None:
        detail = "The server gave no reason."
        super().__init__(invocation.problem or make_problem(ErrorCode.INTERNAL, detail))
        self.invocation = invocation


class CompilationCancelledError(BessemerError):
    """The compilation ended as ``cancelled``; ``compilation`` is its final document."""

    def __init__(self, compilation: Compilation) -> None:
        super().__init__(f"compilation {compilation.id} was cancelled")
        self.compilation = compilation


class InvocationCancelledError(BessemerError):
    """The invocation ended as ``cancelled``; ``invocation`` is its final document."""

    def __init__(self, invocation: Invocation) -> None:
        super().__init__(f"invocation {invocation.id} was cancelled")
        self.invocation = invocation


class ModelRejectedError(ProblemError):
    """The inspection refused the model; ``model`` is its document."""

    def __init__(self, model: Model) -> None:
        detail = "The server gave no reason."
        super().__init__(model.problem or make_problem(ErrorCode.INTERNAL, detail))
        self.model = model


class WaitTimeoutError(BessemerError, TimeoutError):
    """``timeout`` ran out; what was waited for goes on."""


class NoWorkerError(BessemerError):
    """No live worker takes the compilation; ``missing`` says what one would need."""

    def __init__(self, missing: str) -> None:
        super().__init__(f"no live worker takes this compilation. It needs {missing}")
        self.missing = missing


class InvalidArgumentError(BessemerError, ValueError):
    """An argument cannot be used; the message says what was expected."""


class ExportError(BessemerError):
    """A module could not be exported or saved, or the function that makes it raised the cause."""


class BundleError(BessemerError):
    """A download is damaged, or holds what no bundle holds."""


def problem_error(problem: Problem) -> ProblemError:
    """The error for a problem that a server answered with."""
    by_status = {404: NotFoundError, 409: ConflictError}
    if problem.status in by_status:
        return by_status[problem.status](problem)
    return ServerFailedError(problem) if problem.status >= 500 else RequestRefusedError(problem)
