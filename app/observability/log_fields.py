"""What a request is about, for the lines that are logged while it is answered."""

import re

from fastapi import Request
from pydantic import TypeAdapter, ValidationError

from bessemer.contract.base import JOB_PREFIX_PATTERN, Digest, JobId
from bessemer.telemetry.logs import add_log_fields

_JOB_ID: TypeAdapter[str] = TypeAdapter(JobId)
_DIGEST: TypeAdapter[str] = TypeAdapter(Digest)


async def name_subjects(request: Request) -> None:
    """For every route: the compilation, invocation or model of its address, where the text can be one's."""
    named = request.path_params
    if is_job_id(named.get("id")):
        add_log_fields(job=named["id"])
    if is_job_id(named.get("invocation")):
        add_log_fields(invocation=named["invocation"])
    if _is(_DIGEST, named.get("digest")):
        add_log_fields(model=named["digest"])


def is_job_prefix(text: str | None) -> bool:
    """Whether a text can be an id, or the start of one."""
    return text is not None and re.fullmatch(JOB_PREFIX_PATTERN, text) is not None


def is_job_id(text: str | None) -> bool:
    """Whether a text can be an id at all; a database need not see what cannot."""
    return _is(_JOB_ID, text)


def _is(kind: TypeAdapter[str], text: str | None) -> bool:
    try:
        kind.validate_python(text)
    except ValidationError:
        return False
    return True
