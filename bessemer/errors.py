"""The exceptions that the client raises.

BessemerError
├── UnreachableError            the server did not answer
│   └── AnswerInvalidError      the response is not one that a Bessemer server of this version sends
├── ProblemError                the server reported an error; ``problem`` holds it
│   ├── NotFoundError           404
│   ├── ConflictError           409
│   ├── RequestRefusedError     any other 4xx
│   ├── ServerFailedError       5xx
│   ├── CompilationFailedError  the compilation ended as ``failed``
│   ├── InvocationFailedError   the invocation ended as ``failed``
│   └── ModelRejectedError      the inspection rejected the model
├── CompilationCancelledError   the compilation ended as ``cancelled``
├── InvocationCancelledError    the invocation ended as ``cancelled``
├── WaitTimeoutError            ``timeout`` expired (also a ``TimeoutError``)
├── NoWorkerError               no live worker can run the compilation
├── InvalidArgumentError        an argument is not valid (also a ``ValueError``)
├── ExportError                 torch could not export or save a module, or the function that builds it raised
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


NO_REASON = make_problem(ErrorCode.INTERNAL, "The server gave no reason.")


class BessemerError(Exception):
    """Base class of the client's errors."""


class UnreachableError(BessemerError):
    """The server did not answer."""


class AnswerInvalidError(UnreachableError):
    """The response is not one that a Bessemer server of this version sends."""


class ProblemError(BessemerError):
    """The server reported an error. ``problem`` holds the stable code, the detail and the advice."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.title}: {problem.detail} [{problem.code}]\n→ {problem.advice}")
        self.problem = problem


class NotFoundError(ProblemError):
    """The resource does not exist (404)."""


class ConflictError(ProblemError):
    """The resource's state does not allow the request (409)."""


class RequestRefusedError(ProblemError):
    """The server refused the request (any other 4xx)."""


class ServerFailedError(ProblemError):
    """The server failed (5xx)."""


class CompilationFailedError(ProblemError):
    """The compilation ended as ``failed``; ``compilation`` is its final document."""

    def __init__(self, compilation: Compilation) -> None:
        super().__init__(compilation.problem or NO_REASON)
        self.compilation = compilation


class InvocationFailedError(ProblemError):
    """The invocation ended as ``failed``; ``invocation`` is its final document."""

    def __init__(self, invocation: Invocation) -> None:
        super().__init__(invocation.problem or NO_REASON)
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
    """The inspection rejected the model; ``model`` is its document."""

    def __init__(self, model: Model) -> None:
        super().__init__(model.problem or NO_REASON)
        self.model = model


class WaitTimeoutError(BessemerError, TimeoutError):
    """``timeout`` expired; the job keeps running."""


class NoWorkerError(BessemerError):
    """No live worker can run the compilation.

    Attributes:
        missing: what it needs.
        can_be_unverified: whether a live worker can compile it without verification.
    """

    def __init__(self, missing: str, can_be_unverified: bool = False) -> None:
        super().__init__(f"no live worker can run this compilation. It needs {missing}")
        self.missing = missing
        self.can_be_unverified = can_be_unverified


class InvalidArgumentError(BessemerError, ValueError):
    """An argument is not valid; the message says what was expected."""


class ExportError(BessemerError):
    """torch could not export or save a module, or the function that builds it raised the cause."""


class BundleError(BessemerError):
    """A download is damaged or unsafe."""


def problem_error(problem: Problem) -> ProblemError:
    """The exception for a problem document from the server."""
    by_status = {404: NotFoundError, 409: ConflictError}
    if problem.status in by_status:
        return by_status[problem.status](problem)
    return ServerFailedError(problem) if problem.status >= 500 else RequestRefusedError(problem)
