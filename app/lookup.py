"""The compilation that an address names."""

from typing import Annotated

from fastapi import Depends, Path

from app import documentation
from app.problems import refuse
from app.service import ServiceDep
from app.subjects import is_job_id
from bessemer.contract.job import Artifact, Compilation
from bessemer.contract.problem import ErrorCode


def _compilation(
    service: ServiceDep,
    job_id: Annotated[
        str, Path(alias="id", description="The compilation's id.", examples=[documentation.COMPILATION.id])
    ],
) -> Compilation:
    job = service.store.jobs.get(job_id) if is_job_id(job_id) else None
    if job is None:
        raise refuse(ErrorCode.NOT_FOUND, f"There is no compilation '{job_id[:64]}'.")
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
