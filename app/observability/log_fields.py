"""Log fields that name a request's resources."""

import re

from fastapi import Request
from pydantic import TypeAdapter, ValidationError

from bessemer.contract.base import JOB_PREFIX_PATTERN, Digest, JobId
from bessemer.telemetry.logs import add_log_fields

_JOB_ID: TypeAdapter[str] = TypeAdapter(JobId)
_DIGEST: TypeAdapter[str] = TypeAdapter(Digest)


async def name_subjects(request: Request) -> None:
    """Add the valid ids in the path to the log fields, on every route."""
    named = request.path_params
    if is_job_id(named.get("id")):
        add_log_fields(job=named["id"])
    if is_job_id(named.get("group")):
        add_log_fields(group=named["group"])
    if is_job_id(named.get("invocation")):
        add_log_fields(invocation=named["invocation"])
    if _is(_DIGEST, named.get("digest")):
        add_log_fields(model=named["digest"])


def is_job_prefix(text: str | None) -> bool:
    """Whether a text can be an id or a prefix."""
    return text is not None and re.fullmatch(JOB_PREFIX_PATTERN, text) is not None


def is_job_id(text: str | None) -> bool:
    """Whether a text can be an id."""
    return _is(_JOB_ID, text)


def _is(kind: TypeAdapter[str], text: str | None) -> bool:
    try:
        kind.validate_python(text)
    except ValidationError:
        return False
    return True
