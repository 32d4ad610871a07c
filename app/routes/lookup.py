"""Looking up resources by id or prefix."""

from collections.abc import Callable
from typing import Annotated, TypeVar

from fastapi import Depends, Path

from app.http.problems import refuse
from app.observability.log_fields import is_job_prefix
from app.openapi import document as documentation
from app.service import ServiceDep, TenantService
from bessemer.contract.base import MIN_PREFIX
from bessemer.contract.job import Artifact, Compilation
from bessemer.contract.problem import ErrorCode
from bessemer.telemetry.logs import add_log_fields


def _compilation(
    service: ServiceDep,
    job_id: Annotated[
        str,
        Path(
            alias="id",
            description="The compilation's id, or a unique prefix of at least 4 characters.",
            examples=[documentation.COMPILATION.id],
        ),
    ],
) -> Compilation:
    job = find_compilation(service, job_id)
    add_log_fields(job=job.id)
    return job


def find_compilation(service: TenantService, job_id: str) -> Compilation:
    """The compilation with this id or prefix. Blocks.

    Raises:
        RefusalError: 404, none has the id; 409, several ids start with it.
    """
    jobs = service.data.jobs
    job = look_up("compilation", job_id, jobs.get, jobs.starting) if is_job_prefix(job_id) else None
    if job is None:
        raise refuse(ErrorCode.NOT_FOUND, f"Compilation '{job_id[:64]}' not found.{hint(job_id)}")
    return job


def named_artifact(job: Compilation, name: str) -> Artifact:
    """The artifact with this name.

    Raises:
        RefusalError: 404, the job does not have it, or not yet.
    """
    for artifact in job.artifacts:
        if artifact.name == name:
            return artifact
    known = ", ".join(artifact.name for artifact in job.artifacts) or "none"
    detail = f"Compilation {job.id} is {job.state} and has no artifact '{name[:128]}'. It has: {known}."
    raise refuse(ErrorCode.NOT_FOUND, detail)


CompilationDep = Annotated[Compilation, Depends(_compilation)]


MAX_SHOWN = 5

Found = TypeVar("Found")


def look_up(
    kind: str,
    given: str,
    get: Callable[[str], Found | None],
    starting: Callable[[str, int], tuple[str, ...]],
) -> Found | None:
    """Find a resource by its id or by a unique prefix; None if no id starts with it.

    Args:
        kind: the kind of resource, such as ``compilation``.
        given: an id or a prefix.
        get: returns the resource with an id.
        starting: lists the ids with a prefix, up to a number.

    Raises:
        RefusalError: 409, several ids start with it.
    """
    found = get(given)
    if found is not None:
        return found
    ids = starting(given, MAX_SHOWN + 1)
    if len(ids) > 1:
        shown = ", ".join(ids[:MAX_SHOWN]) + (", …" if len(ids) > MAX_SHOWN else "")
        detail = f"Several {kind}s have an id that starts with '{given}': {shown}."
        raise refuse(ErrorCode.ID_AMBIGUOUS, detail)
    return get(ids[0]) if ids else None


def hint(given: str) -> str:
    """A sentence on prefixes that are too short."""
    return f" A prefix needs at least {MIN_PREFIX} characters." if len(given) < MIN_PREFIX else ""
