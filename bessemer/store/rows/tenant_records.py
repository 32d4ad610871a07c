"""A tenant's tuning records, as its users list, import, export and delete them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from bessemer.contract.access import Tenant
from bessemer.contract.records import (
    EVERY_RECORD,
    MAX_DATABASE_BYTES,
    MAX_EXPORTED,
    MeasuredTrial,
    RecordFilter,
    RecordPage,
    SearchScope,
    TuningRecord,
)
from bessemer.store.database import Database
from bessemer.store.rows.cost_models import forget_plans
from bessemer.store.rows.paging import read_page
from bessemer.store.rows.tables import TUNING_RECORDS, TUNING_WORKLOADS
from bessemer.store.rows.tuning_records import (
    add_records,
    add_workloads,
    delete_unused_workloads,
    record_row,
)

READ_AT_ONCE = 50
MAX_READ_CHARACTERS = 4 * MAX_DATABASE_BYTES
"""The limit on what an export holds in memory: a job can make up records of many times the usual size."""

_R = TUNING_RECORDS.c
_SHOWN = tuple(_R[name] for name in TuningRecord.model_fields)


@dataclass(frozen=True)
class ImportedTrial:
    """A record of a file: its scope, and what was measured."""

    scope: SearchScope
    trial: MeasuredTrial


@dataclass(frozen=True)
class ExportedRecord:
    """The parts of a record that a file has; ``packed`` is the module of its function."""

    workload: str
    packed: str
    trace: str
    arguments: str
    tvm_target: str
    seconds: float

    @property
    def characters(self) -> int:
        """The length of its texts."""
        return sum(map(len, (self.packed, self.trace, self.arguments, self.tvm_target)))


class TenantRecords:
    """Each method is one transaction and raises ``StoreUnavailableError`` if the database is unreachable."""

    def __init__(self, database: Database, tenant: Tenant) -> None:
        self._database = database
        self._tenant = tenant

    def page(self, limit: int, cursor: str | None = None, wanted: RecordFilter = EVERY_RECORD) -> RecordPage:
        """Records, newest first.

        Raises:
            CursorInvalidError: ``cursor`` is not the ``next`` of an earlier page.
        """
        query = sa.select(*_SHOWN).where(*self._conditions(wanted))
        page = read_page(self._database, query, (_R.created_at, _R.id), limit, cursor)
        items = tuple(TuningRecord.read(dict(row._mapping)) for row in page.rows)
        return RecordPage(items=items, next=page.next)

    def add(self, imported: Sequence[ImportedTrial], workloads: Mapping[str, str], shared: bool) -> None:
        """Store imported records, and the packed modules of their functions."""
        rows = [
            record_row(
                self._tenant,
                each.scope.key_of_imports(each.trial.workload),
                each.scope,
                each.trial,
                shared,
                None,
            )
            for each in imported
        ]
        with self._database.write() as connection:
            add_workloads(self._database, connection, self._tenant, workloads)
            add_records(self._database, connection, rows)

    def export(
        self, wanted: RecordFilter = EVERY_RECORD, limit: int = MAX_EXPORTED
    ) -> tuple[ExportedRecord, ...]:
        """The newest records that ran, at most ``limit``; without those whose module is unknown.

        It stops when the texts exceed ``MAX_READ_CHARACTERS``.
        """
        query = (
            sa.select(
                _R.workload,
                TUNING_WORKLOADS.c.packed,
                _R.trace,
                _R.arguments,
                _R.tvm_target,
                _R.seconds,
            )
            .join_from(
                TUNING_RECORDS,
                TUNING_WORKLOADS,
                sa.and_(TUNING_WORKLOADS.c.tenant == _R.tenant, TUNING_WORKLOADS.c.workload == _R.workload),
            )
            .where(*self._conditions(wanted), _R.seconds.is_not(None))
            .order_by(_R.created_at.desc(), _R.id.desc())
            .limit(limit)
        )
        found: list[ExportedRecord] = []
        left = MAX_READ_CHARACTERS
        with (
            self._database.read() as connection,
            connection.execution_options(yield_per=READ_AT_ONCE).execute(query) as rows,
        ):
            for row in rows:
                record = ExportedRecord(**row._mapping)
                left -= record.characters
                if left < 0:
                    break
                found.append(record)
        return tuple(found)

    def delete(self, wanted: RecordFilter = EVERY_RECORD) -> int:
        """Delete records; returns how many there were."""
        with self._database.write() as connection:
            statement = sa.delete(TUNING_RECORDS).where(*self._conditions(wanted))
            deleted: int = connection.execute(statement).rowcount
            delete_unused_workloads(self._database, connection, TUNING_WORKLOADS.c.tenant == self._tenant)
            forget_plans(connection, self._tenant)
        return deleted

    def _conditions(self, wanted: RecordFilter) -> Iterator[sa.ColumnElement[bool]]:
        equal: dict[str, Any] = {
            "processor": wanted.target,
            "threads": wanted.threads,
            "workload": wanted.workload,
            "won": wanted.won,
        }
        yield _R.tenant == self._tenant
        yield from (_R[name] == value for name, value in equal.items() if value is not None)
        if wanted.since is not None:
            yield _R.created_at >= wanted.since
