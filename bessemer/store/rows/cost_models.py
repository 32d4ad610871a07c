"""What searches measured of plans, and the cost model that learned from it, for each tenant."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa

from bessemer.contract.access import Tenant
from bessemer.contract.cost_model import LearnedCostModel, PackedPlans
from bessemer.contract.records import SearchScope
from bessemer.store.database import Database
from bessemer.store.rows.tables import COST_MODELS, MEASURED_PLANS, TUNING_RECORDS
from bessemer.store.rows.tuning_records import insert_into

MAX_FUNCTIONS = 512
"""The most functions of a tenant that a model is trained on: the last measured. Others are deleted."""

_P = MEASURED_PLANS.c
_M = COST_MODELS.c


class Progress(NamedTuple):
    """How much of a tenant's measurements its cost model has seen.

    Attributes:
        tenant: the owner of the measurements.
        functions: the number of measured functions.
        unseen: how many of them were measured since the model was trained.
        newest_at: when the last of them was measured.
    """

    tenant: Tenant
    functions: int
    unseen: int
    newest_at: datetime


class TrainingSet(NamedTuple):
    """What a model is trained on: packed functions, and when the last of them was measured."""

    packed: tuple[bytes, ...]
    newest_at: datetime


class CostModels:
    """Each method is one transaction and raises ``StoreUnavailableError`` if the database is unreachable.

    Each takes the version of the features that its measurements or its model have. Releases with other
    features share a database without seeing each other's.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self, tenant: Tenant, scope: SearchScope, version: str, measured: Mapping[str, PackedPlans]
    ) -> None:
        """Store what a search measured of functions, by their hashes.

        Stored plans stay if they are more than the new ones, but count as measured now. The functions of a
        tenant that were measured last are kept.
        """
        insert = insert_into(self._database, MEASURED_PLANS).values(measured_at=self._database.clock)
        says_more = insert.excluded.plans >= _P.plans
        kept = {
            name: sa.case((says_more, insert.excluded[name]), else_=_P[name]) for name in ("plans", "packed")
        }
        upsert = insert.on_conflict_do_update(
            index_elements=["tenant", "key", "features_version"],
            set_={**kept, "measured_at": self._database.clock},
        )
        rows = [
            {"tenant": tenant, "key": scope.key(workload), "features_version": version, **plans._asdict()}
            for workload, plans in measured.items()
        ]
        with self._database.write() as connection:
            for row in sorted(rows, key=lambda row: str(row["key"])):
                connection.execute(upsert, row)
            self._prune(connection, tenant, version)

    def _prune(self, connection: sa.Connection, tenant: Tenant, version: str) -> None:
        mine = sa.and_(_P.tenant == tenant, _P.features_version == version)
        newest = sa.select(_P.key).where(mine).order_by(_P.measured_at.desc(), _P.key)
        kept = newest.limit(MAX_FUNCTIONS).subquery()
        _delete_free(connection, sa.and_(mine, _P.key.not_in(sa.select(kept.c.key))))

    def progress(self, version: str) -> tuple[Progress, ...]:
        """The tenants whose cost model has not seen all of their measurements."""
        has_seen = sa.and_(
            _M.tenant == _P.tenant, _M.features_version == version, _M.learned_until >= _P.measured_at
        )
        unseen = sa.func.sum(sa.case((sa.exists().where(has_seen), 0), else_=1)).label("unseen")
        newest_at = sa.func.max(_P.measured_at).label("newest_at")
        query = (
            sa.select(_P.tenant, sa.func.count().label("functions"), unseen, newest_at)
            .where(_P.features_version == version)
            .group_by(_P.tenant)
            .order_by(_P.tenant)
        )
        with self._database.read() as connection:
            rows = connection.execute(query.having(unseen > 0)).all()
        return tuple(Progress(row.tenant, row.functions, int(row.unseen), row.newest_at) for row in rows)

    def training_set(self, tenant: Tenant, version: str) -> TrainingSet:
        """What a tenant's next model learns from; at least one function must have been measured."""
        mine = sa.and_(_P.tenant == tenant, _P.features_version == version)
        query = sa.select(_P.packed, _P.measured_at).where(mine).order_by(_P.key)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return TrainingSet(tuple(row.packed for row in rows), max(row.measured_at for row in rows))

    def put(
        self, tenant: Tenant, version: str, learned: LearnedCostModel, model: bytes, until: datetime
    ) -> None:
        """Let a model take the place of the tenant's last one, unless that has seen later measurements."""
        values = {"document": learned.model_dump(mode="json"), "model": model, "learned_until": until}
        insert = insert_into(self._database, COST_MODELS)
        insert = insert.values(tenant=tenant, features_version=version, **values)
        upsert = insert.on_conflict_do_update(
            index_elements=["tenant", "features_version"],
            set_=values,
            where=_M.learned_until <= insert.excluded.learned_until,
        )
        with self._database.write() as connection:
            connection.execute(upsert)

    def get(self, tenant: Tenant, version: str) -> bytes | None:
        """The tenant's model; None if it has none for this version."""
        query = sa.select(_M.model).where(_M.tenant == tenant, _M.features_version == version)
        with self._database.read() as connection:
            return connection.execute(query).scalar_one_or_none()

    def delete_unused(self) -> None:
        """Delete the measurements of functions that have no records, and models without measurements."""
        with self._database.write() as connection:
            forget_plans(connection, None)


class TenantCostModel:
    """A tenant's own cost model. ``get`` raises ``StoreUnavailableError`` if the database is unreachable."""

    def __init__(self, database: Database, tenant: Tenant) -> None:
        self._database = database
        self._tenant = tenant

    def get(self) -> LearnedCostModel | None:
        """What the newest model was trained on, and how well it ranks; None if there is none."""
        query = sa.select(_M.document).where(_M.tenant == self._tenant)
        with self._database.read() as connection:
            document = connection.execute(query.order_by(_M.learned_until.desc()).limit(1)).scalar()
        return None if document is None else LearnedCostModel.read(document)


def forget_plans(connection: sa.Connection, tenant: Tenant | None) -> None:
    """Delete a tenant's plans of functions without records, and models without plans; None for all."""
    records = TUNING_RECORDS.c
    recorded = sa.exists().where(records.tenant == _P.tenant, records.key == _P.key)
    _delete_free(connection, sa.and_(sa.true() if tenant is None else _P.tenant == tenant, ~recorded))
    measured = sa.exists().where(_P.tenant == _M.tenant, _P.features_version == _M.features_version)
    of_models = sa.true() if tenant is None else _M.tenant == tenant
    connection.execute(sa.delete(COST_MODELS).where(of_models, ~measured))


def _delete_free(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> None:
    """Delete plans that no other transaction changes, so that no writer waits here."""
    columns = (_P.tenant, _P.key, _P.features_version)
    free = sa.select(*columns).where(condition).with_for_update(skip_locked=True)
    connection.execute(sa.delete(MEASURED_PLANS).where(sa.tuple_(*columns).in_(free)))
