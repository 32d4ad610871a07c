"""Records of functions that are similar to a given one: of the same kind, with loops of other sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf, log2
from typing import Any

import sqlalchemy as sa

from bessemer.contract.base import Digest
from bessemer.contract.records import NearTrial, SearchScope, SizedFunction
from bessemer.store.rows.tables import TUNING_RECORDS

NEAREST = 2
"""The number of similar functions of a kind whose records a search gets."""

MAX_DISTANCE = 8.0
"""The limit of ``distance``. Half the height and width, and twice the input and output channels, make 4."""

MAX_LOOKED_AT = 2000
"""The most records of a kind that are searched: the newest."""

MAX_NEAR_CHARACTERS = 1 << 22
"""The limit for the length of all traces together."""

_AT_ONCE = 500
_R = TUNING_RECORDS.c


def find_near(
    connection: sa.Connection,
    scope: SearchScope,
    functions: Sequence[SizedFunction],
    visible: sa.ColumnElement[bool],
) -> tuple[NearTrial, ...]:
    """For each function, the best record of each similar one, the most similar first.

    A record that is known to be slower than the default schedule is left out.

    Args:
        connection: a transaction.
        scope: the target, threads and compiler that the records must have.
        functions: the functions.
        visible: the condition on visible records.
    """
    kinds = dict.fromkeys(kind for function in functions for kind in function.kinds)
    known = {kind: _best_of_kind(connection, scope.key_of_kind(kind), visible) for kind in kinds}
    chosen = [
        (function.workload, row)
        for function in functions
        for row in nearest(function, (known[kind] for kind in function.kinds))
    ]
    left, fitting = MAX_NEAR_CHARACTERS, []
    for workload, row in chosen:
        if row.characters <= left:
            left -= row.characters
            fitting.append((workload, row.id))
    traces = traces_of(connection, list(dict.fromkeys(record for _, record in fitting)))
    return tuple(
        NearTrial(workload=workload, trace=traces[record]) for workload, record in fitting if record in traces
    )


def nearest(function: SizedFunction, kinds: Iterable[Mapping[str, sa.Row[Any]]]) -> Iterator[sa.Row[Any]]:
    """The records of the functions of each kind that are most similar to a function."""
    for rows in kinds:
        others = [row for workload, row in rows.items() if workload != function.workload]
        far = {row.id: distance(function.extents, row.extents or ()) for row in others}
        near = [row for row in others if far[row.id] <= MAX_DISTANCE]
        yield from sorted(near, key=lambda row: (far[row.id], row.id))[:NEAREST]


def distance(own: Sequence[int], other: Sequence[int]) -> float:
    """The sum of ``|log2|`` of the loops' size ratios; infinite if the numbers of loops differ."""
    if len(own) != len(other):
        return inf
    return sum(abs(log2(one / two)) for one, two in zip(own, other, strict=True))


def _best_of_kind(
    connection: sa.Connection, key: Digest, visible: sa.ColumnElement[bool]
) -> dict[str, sa.Row[Any]]:
    """For each function of a kind, the record that won, or else the fastest."""
    characters = sa.func.length(_R.trace).label("characters")
    columns: tuple[sa.ColumnElement[Any], ...] = (
        *(_R.id, _R.workload, _R.extents, _R.won, _R.seconds),
        characters,
    )
    is_useful = sa.or_(_R.won, _R.default_seconds.is_(None), _R.seconds < _R.default_seconds)
    ran = sa.and_(_R.kind_key == key, visible, _R.seconds.is_not(None), is_useful)
    newest = sa.select(*columns).where(ran).order_by(_R.created_at.desc(), _R.id).limit(MAX_LOOKED_AT)
    best: dict[str, sa.Row[Any]] = {}
    rows: Sequence[sa.Row[Any]] = connection.execute(newest).all()
    for row in sorted(rows, key=lambda row: (not row.won, row.seconds, row.id)):
        best.setdefault(row.workload, row)
    return best


def traces_of(connection: sa.Connection, ids: Sequence[str]) -> dict[str, str]:
    """The traces of records by their ids."""
    traces: dict[str, str] = {}
    for start in range(0, len(ids), _AT_ONCE):
        query = sa.select(_R.id, _R.trace).where(_R.id.in_(ids[start : start + _AT_ONCE]))
        traces |= {row.id: row.trace for row in connection.execute(query)}
    return traces
