"""Filters of the contract as conditions on the rows of jobs and models."""

from collections.abc import Iterator

import sqlalchemy as sa

from bessemer.contract.listing import CompilationFilter, Filter, ModelFilter
from bessemer.store.rows.prefixes import starts_with
from bessemer.store.rows.tables import JOBS, LABELS, MODELS


def conditions(wanted: CompilationFilter) -> tuple[sa.ColumnElement[bool], ...]:
    """What a job's row must be to be listed."""
    state = wanted.state.value if wanted.state else None
    equal = {"state": state, "name": wanted.name, "target_name": wanted.target}
    found = (JOBS.c[name] == value for name, value in equal.items() if value is not None)
    of_model = () if wanted.model is None else (starts_with(JOBS.c.model, wanted.model),)
    return (*found, *of_model, *_created(JOBS, wanted), *map(_labelled, wanted.label))


def model_conditions(wanted: ModelFilter) -> tuple[sa.ColumnElement[bool], ...]:
    """What a model's row must be to be listed."""
    state = () if wanted.state is None else (MODELS.c.state == wanted.state.value,)
    found_format = MODELS.c.inspection["format"].as_string()
    in_format = () if wanted.format is None else (found_format == wanted.format.value,)
    named = () if wanted.name is None else (MODELS.c.name == wanted.name,)
    return (*state, *named, *in_format, *_created(MODELS, wanted))


def _created(table: sa.Table, wanted: Filter) -> Iterator[sa.ColumnElement[bool]]:
    if wanted.created_after is not None:
        yield table.c.created_at > wanted.created_after
    if wanted.created_before is not None:
        yield table.c.created_at < wanted.created_before


def _labelled(selector: str) -> sa.ColumnElement[bool]:
    key, equals, value = selector.partition("=")
    chosen = sa.select(LABELS.c.job).where(LABELS.c.key == key)
    return JOBS.c.id.in_(chosen.where(LABELS.c.value == value) if equals else chosen)
