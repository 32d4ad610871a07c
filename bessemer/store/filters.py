"""Filters of the contract as conditions on the rows of jobs and models."""

from collections.abc import Iterator

import sqlalchemy as sa

from bessemer.contract.listing import CompilationFilter, Filter, ModelFilter
from bessemer.contract.request import CompilationRequest
from bessemer.contract.target import PresetTarget
from bessemer.store.tables import JOBS, LABELS, MODELS


def conditions(wanted: CompilationFilter) -> tuple[sa.ColumnElement[bool], ...]:
    """What a job's row must be to be listed."""
    state = wanted.state.value if wanted.state else None
    equal = {"state": state, "model": wanted.model, "target_name": wanted.target}
    found = (JOBS.c[name] == value for name, value in equal.items() if value is not None)
    return (*found, *_created(JOBS, wanted), *map(_labelled, wanted.label))


def model_conditions(wanted: ModelFilter) -> tuple[sa.ColumnElement[bool], ...]:
    """What a model's row must be to be listed."""
    state = () if wanted.state is None else (MODELS.c.state == wanted.state.value,)
    found_format = MODELS.c.inspection["format"].as_string()
    in_format = () if wanted.format is None else (found_format == wanted.format.value,)
    return (*state, *in_format, *_created(MODELS, wanted))


def target_name(request: CompilationRequest) -> str:
    """What a target is found by: the preset's name, or the mcpu of an explicit one."""
    target = request.target
    return target.preset if isinstance(target, PresetTarget) else target.mcpu


def _created(table: sa.Table, wanted: Filter) -> Iterator[sa.ColumnElement[bool]]:
    if wanted.created_after is not None:
        yield table.c.created_at > wanted.created_after
    if wanted.created_before is not None:
        yield table.c.created_at < wanted.created_before


def _labelled(selector: str) -> sa.ColumnElement[bool]:
    key, equals, value = selector.partition("=")
    chosen = sa.select(LABELS.c.job).where(LABELS.c.key == key)
    return JOBS.c.id.in_(chosen.where(LABELS.c.value == value) if equals else chosen)
