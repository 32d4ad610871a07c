"""What searches measured of plans, and the cost model that learned from it, for each tenant."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from bessemer.contract.access import Tenant
from bessemer.contract.base import now
from bessemer.contract.cost_model import LearnedCostModel, MeasuredFunction
from bessemer.contract.records import SearchScope
from bessemer.store.database import Database
from bessemer.store.rows.tables import COST_MODELS, MEASURED_PLANS, TUNING_RECORDS
from bessemer.store.rows.tuning_records import insert_into, record_bytes

MAX_FUNCTIONS = 512
"""How many functions of a tenant a model is trained on: those measured last. Others are deleted."""

_P = MEASURED_PLANS.c
_M = COST_MODELS.c


class Progress(NamedTuple):
    """How much of a tenant's measurements its cost model has seen.

    Attributes:
        tenant: whose.
        functions: how many functions have measurements.
        unseen: how many of them were measured since the model was trained.
    """

    tenant: Tenant
    functions: int
    unseen: int


class Lesson(NamedTuple):
    """What a model is trained on: functions, and when the last of them was measured."""

    functions: tuple[MeasuredFunction, ...]
    until: datetime


class CostModels:
    """Each method is one transaction and raises ``StoreUnavailableError`` if the database is away.

    Each takes the version of the features that its measurements or its model have.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self,
        tenant: Tenant,
        scope: SearchScope,
        version: str,
        functions: Sequence[MeasuredFunction],
        limit_bytes: int | None = None,
    ) -> None:
        """Store what a search measured of functions, each over what fewer plans said of it.

        What exceeds the size that the tenant's records may have is left out.
        """
        rows = [_row(tenant, scope, version, function) for function in functions]
        rows.sort(key=lambda row: str(row["key"]))
        size_bytes = sum(int(row["size_bytes"]) for row in rows)
        with self._database.write() as connection:
            if limit_bytes is not None and record_bytes(connection, tenant) + size_bytes > limit_bytes:
                return
            insert = insert_into(self._database, MEASURED_PLANS)
            renewed = ("features_version", "plans", "packed", "size_bytes", "measured_at")
            says_more = sa.or_(
                insert.excluded.features_version != _P.features_version, insert.excluded.plans >= _P.plans
            )
            upsert = insert.on_conflict_do_update(
                index_elements=["tenant", "key"],
                set_={name: insert.excluded[name] for name in renewed},
                where=says_more,
            )
            for row in rows:
                connection.execute(upsert, row)
            newest = sa.select(_P.key).where(_P.tenant == tenant).order_by(_P.measured_at.desc(), _P.key)
            kept = newest.limit(MAX_FUNCTIONS).subquery()
            surplus = sa.and_(_P.tenant == tenant, _P.key.not_in(sa.select(kept.c.key)))
            connection.execute(sa.delete(MEASURED_PLANS).where(surplus))

    def progress(self, version: str) -> tuple[Progress, ...]:
        """The tenants whose cost model has not seen all of their measurements."""
        has_seen = sa.and_(
            _M.tenant == _P.tenant, _M.features_version == version, _M.learned_until >= _P.measured_at
        )
        unseen = sa.func.sum(sa.case((sa.exists().where(has_seen), 0), else_=1)).label("unseen")
        query = (
            sa.select(_P.tenant, sa.func.count().label("functions"), unseen)
            .where(_P.features_version == version)
            .group_by(_P.tenant)
        )
        with self._database.read() as connection:
            rows = connection.execute(query.having(unseen > 0)).all()
        return tuple(Progress(row.tenant, row.functions, int(row.unseen)) for row in rows)

    def lesson(self, tenant: Tenant, version: str) -> Lesson | None:
        """What a tenant's next model learns from; None if nothing was measured."""
        query = sa.select(_P.packed, _P.measured_at).where(
            _P.tenant == tenant, _P.features_version == version
        )
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(_P.key)).all()
        if not rows:
            return None
        functions = (MeasuredFunction.model_validate_json(zlib.decompress(row.packed)) for row in rows)
        return Lesson(tuple(functions), max(row.measured_at for row in rows))

    def put(
        self, tenant: Tenant, version: str, learned: LearnedCostModel, model: bytes, until: datetime
    ) -> None:
        """Let a model take the place of the tenant's last one."""
        row = {
            "tenant": tenant,
            "features_version": version,
            "document": learned.model_dump(mode="json"),
            "model": model,
            "learned_until": until,
        }
        insert = insert_into(self._database, COST_MODELS).values(row)
        upsert = insert.on_conflict_do_update(index_elements=["tenant"], set_=row)
        with self._database.write() as connection:
            connection.execute(upsert)

    def get(self, tenant: Tenant, version: str) -> bytes | None:
        """The tenant's model; None if it has none for this version."""
        query = sa.select(_M.model).where(_M.tenant == tenant, _M.features_version == version)
        with self._database.read() as connection:
            return connection.execute(query).scalar_one_or_none()

    def delete_unused(self) -> None:
        """Delete what was measured of functions that have no records, and models without measurements."""
        with self._database.write() as connection:
            forget_plans(connection, sa.true(), sa.true())


class TenantCostModel:
    """A tenant's own cost model. Its method raises ``StoreUnavailableError`` if the database is away."""

    def __init__(self, database: Database, tenant: Tenant) -> None:
        self._database = database
        self._tenant = tenant

    def get(self) -> LearnedCostModel | None:
        """What the model was trained on, and how well it ranks; None if there is none."""
        query = sa.select(_M.document).where(_M.tenant == self._tenant)
        with self._database.read() as connection:
            document = connection.execute(query).scalar_one_or_none()
        return None if document is None else LearnedCostModel.read(document)


def forget_plans(
    connection: sa.Connection, of_plans: sa.ColumnElement[bool], of_models: sa.ColumnElement[bool]
) -> None:
    """Delete what was measured of functions that have no records, and models without measurements."""
    records = TUNING_RECORDS.c
    recorded = sa.exists().where(records.tenant == _P.tenant, records.key == _P.key)
    connection.execute(sa.delete(MEASURED_PLANS).where(of_plans, ~recorded))
    measured = sa.exists().where(_P.tenant == _M.tenant)
    connection.execute(sa.delete(COST_MODELS).where(of_models, ~measured))


def _row(tenant: Tenant, scope: SearchScope, version: str, function: MeasuredFunction) -> dict[str, Any]:
    packed = zlib.compress(function.model_dump_json().encode())
    return {
        "tenant": tenant,
        "key": scope.key(function.source),
        "features_version": version,
        "plans": len(function.seconds),
        "packed": packed,
        "size_bytes": len(packed),
        "measured_at": now(),
    }
