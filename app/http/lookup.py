"""The compilation that an address names."""

from typing import Annotated

from fastapi import Depends, Path

from app.http.problems import refuse
from app.http.shortened import hint, look_up
from app.observability.log_fields import is_job_prefix
from app.openapi import document as documentation
from app.service import ServiceDep
from bessemer.contract.job import Artifact, Compilation
from bessemer.contract.problem import ErrorCode
from bessemer.telemetry.logs import add_log_fields


def _compilation(
    service: ServiceDep,
    job_id: Annotated[
        str,
        Path(
            alias="id",
            description="The compilation's id, or enough of its first characters (at least 4).",
            examples=[documentation.COMPILATION.id],
        ),
    ],
) -> Compilation:
    jobs = service.store.jobs
    job = look_up("compilation", job_id, jobs.get, jobs.starting) if is_job_prefix(job_id) else None
    if job is None:
        raise refuse(ErrorCode.NOT_FOUND, f"There is no compilation '{job_id[:64]}'.{hint(job_id)}")
    add_log_fields(job=job.id)
    return job


def named_artifact(job: Compilation, name: str) -> Artifact:
    """The artifact of that name.

    Raises:
        RefusalError: 404 where the job has none of that name (yet).
    """
    for artifact in job.artifacts:
        if artifact.name == name:
            return artifact
    known = ", ".join(artifact.name for artifact in job.artifacts) or "none"
    detail = f"Compilation {job.id} is {job.state} and has no artifact '{name[:128]}'. It has: {known}."
    raise refuse(ErrorCode.NOT_FOUND, detail)


CompilationDep = Annotated[Compilation, Depends(_compilation)]
