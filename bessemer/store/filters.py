"""A filter of the contract as conditions on the rows of jobs."""

import sqlalchemy as sa

from bessemer.contract.listing import CompilationFilter
from bessemer.contract.request import CompilationRequest
from bessemer.contract.target import PresetTarget
from bessemer.store.tables import JOBS, LABELS


def conditions(wanted: CompilationFilter) -> tuple[sa.ColumnElement[bool], ...]:
    """What a job's row must be to be listed."""
    state = wanted.state.value if wanted.state else None
    equal = {"state": state, "model": wanted.model, "target_name": wanted.target}
    found = [JOBS.c[name] == value for name, value in equal.items() if value is not None]
    if wanted.created_after is not None:
        found.append(JOBS.c.created_at > wanted.created_after)
    if wanted.created_before is not None:
        found.append(JOBS.c.created_at < wanted.created_before)
    return (*found, *map(_labelled, wanted.label))


def target_name(request: CompilationRequest) -> str:
    """What a target is found by: the preset's name, or the mcpu of an explicit one."""
    target = request.target
    return target.preset if isinstance(target, PresetTarget) else target.mcpu


def _labelled(selector: str) -> sa.ColumnElement[bool]:
    key, equals, value = selector.partition("=")
    chosen = sa.select(LABELS.c.job).where(LABELS.c.key == key)
    return JOBS.c.id.in_(chosen.where(LABELS.c.value == value) if equals else chosen)
