"""What identifies the result of a compilation: equal identities have interchangeable results."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from bessemer.contract.base import Digest
from bessemer.contract.request import CompilationRequest
from bessemer.contract.target import resolve_target

WITHOUT_EFFECT = frozenset({"target", "name", "labels", "priority", "timeout_seconds", "cache"})
"""Fields of a request that don't change its result. The resolved target stands for the requested one."""


@dataclass(frozen=True)
class WorkerKind:
    """What makes two workers interchangeable.

    Attributes:
        compiler: the digest of the compiler's code and of the installed packages.
        mcpu: LLVM's name of the processor.
        processor: the model of the processor, on which the figures depend.
        cores: the number of threads if a request names none.
        gpus: the models of the GPUs, on which the figures of libraries for GPUs depend.
    """

    compiler: Digest
    mcpu: str
    processor: str
    cores: int
    gpus: tuple[str, ...] = ()


def identity_of(request: CompilationRequest, names: Mapping[Digest, str | None], kind: WorkerKind) -> Digest:
    """The identity of the result that a worker of this kind would make.

    Args:
        request: the request; its target is known.
        names: the names of uploaded extensions and records, which apply where the request names none.
        kind: the kind of worker.
    """
    target = resolve_target(request.target, kind.mcpu, kind.cores)
    parts = [
        request.model_dump(mode="json", exclude=set(WITHOUT_EFFECT)),
        [request.extension_names.get(digest, names.get(digest)) for digest in request.uploads],
        target.model_dump(mode="json"),
        [kind.compiler, kind.mcpu, kind.processor, kind.cores, *(kind.gpus if target.gpus else ())],
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
