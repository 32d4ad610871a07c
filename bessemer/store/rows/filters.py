"""Filters as conditions on rows."""

from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa

from bessemer.contract.base import Digest
from bessemer.contract.listing import CompilationFilter, Filter, ModelFilter
from bessemer.store.rows.lifecycle import JOB_LIFECYCLE
from bessemer.store.rows.tables import JOBS, LABELS, MODELS

_ID_LENGTH = 64


def starts_with(column: sa.Column[str], prefix: str) -> sa.ColumnElement[bool]:
    """Whether an id starts with a prefix; the bounds let the database use the column's index."""
    if len(prefix) >= _ID_LENGTH:
        return column == prefix
    highest = prefix.ljust(_ID_LENGTH, "z")
    return sa.and_(column >= prefix, column <= highest, sa.func.substr(column, 1, len(prefix)) == prefix)


def may_need_upload(digest: Digest | sa.Column[str]) -> sa.ColumnElement[bool]:
    """Whether a job that is not final may need an upload: a model, an extension or records of its request.

    A label or a constant with the digest counts as well; ``uploads_of`` does not count these. The database
    cannot tell them apart, because PostgreSQL reads no parts of JSON that contains ``\\u0000``.
    """
    mentioned = sa.cast(JOBS.c.request, sa.Text).contains(digest)
    return sa.and_(JOB_LIFECYCLE.in_progress, sa.or_(JOBS.c.model == digest, mentioned))


def uploads_of(request: Mapping[str, Any]) -> frozenset[Digest]:
    """The models, extensions and files of records that a stored request names."""
    entries = request.get("entries", {}).values()
    models = (entry["model"] for entry in entries if entry.get("model"))
    records = request.get("tune", {}).get("records", ())
    return frozenset((request["model"], *models, *request.get("extensions", ()), *records))


def conditions(wanted: CompilationFilter) -> tuple[sa.ColumnElement[bool], ...]:
    """The conditions on a job's row."""
    state = wanted.state.value if wanted.state else None
    equal = {"state": state, "name": wanted.name, "target_name": wanted.target, "group": wanted.group}
    found = (JOBS.c[name] == value for name, value in equal.items() if value is not None)
    of_model = () if wanted.model is None else (starts_with(JOBS.c.model, wanted.model),)
    return (*found, *of_model, *_created(JOBS, wanted), *map(_labelled, wanted.label))


def model_conditions(wanted: ModelFilter) -> tuple[sa.ColumnElement[bool], ...]:
    """The conditions on a model's row."""
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
