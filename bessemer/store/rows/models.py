"""Uploaded models and what their inspection found."""

from collections.abc import Container
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from bessemer.contract.base import DEFAULT_TENANT, Digest, now
from bessemer.contract.listing import EVERY_MODEL, ModelFilter
from bessemer.contract.model import Inspection, Model, ModelPage, ModelState
from bessemer.contract.problem import Problem
from bessemer.store.database import Database
from bessemer.store.errors import FencedError
from bessemer.store.queue_port import Task, TaskKind
from bessemer.store.rows.filters import model_conditions
from bessemer.store.rows.paging import read_page
from bessemer.store.rows.prefixes import starts_with
from bessemer.store.rows.tables import MODELS
from bessemer.store.rows.transitions import counting_lost

_SHOWN_COLUMNS = tuple(MODELS.c[name] for name in Model.model_fields)


class Models:
    """Every method is one transaction and raises ``StoreUnavailableError`` where the database is away."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self, digest: Digest, size_bytes: int, tenant: str = DEFAULT_TENANT, name: str | None = None
    ) -> Model:
        """Insert a model that is to be inspected; one that is there gets the name if it has none.

        One that somebody deletes in between is inserted again.
        """
        values = {
            "tenant": tenant,
            "digest": digest,
            "name": name,
            "size_bytes": size_bytes,
            "state": ModelState.INSPECTING.value,
            "created_at": now(),
            "used_at": now(),
        }
        model: Model | None = None
        while model is None:
            try:
                with self._database.write() as connection:
                    connection.execute(sa.insert(MODELS).values(values))
            except sa.exc.IntegrityError:
                self._upload_again(digest, tenant, name)
            model = self.get(digest, tenant)
        return model

    def get(self, digest: Digest, tenant: str = DEFAULT_TENANT) -> Model | None:
        """A model, or None where it was never uploaded."""
        with self._database.read() as connection:
            row = connection.execute(sa.select(*_SHOWN_COLUMNS).where(_is(digest, tenant))).one_or_none()
        return None if row is None else _to_model(row)

    def page(
        self,
        limit: int,
        cursor: str | None = None,
        wanted: ModelFilter = EVERY_MODEL,
        tenant: str = DEFAULT_TENANT,
    ) -> ModelPage:
        """Models, newest first; models that arrive meanwhile neither repeat nor hide any.

        Raises:
            CursorInvalidError: ``cursor`` is not the ``next`` of an earlier page.
        """
        query = sa.select(*_SHOWN_COLUMNS).where(MODELS.c.tenant == tenant, *model_conditions(wanted))
        page = read_page(self._database, query, (MODELS.c.created_at, MODELS.c.digest), limit, cursor)
        return ModelPage(items=tuple(map(_to_model, page.rows)), next=page.next)

    def touch(self, digest: Digest, tenant: str = DEFAULT_TENANT) -> bool:
        """Note that a model is used, so that it is kept; False where there is none."""
        statement = sa.update(MODELS).where(_is(digest, tenant)).values(used_at=now())
        with self._database.write() as connection:
            return connection.execute(statement).rowcount == 1

    def starting(self, prefix: str, limit: int, tenant: str = DEFAULT_TENANT) -> tuple[Digest, ...]:
        """The digests that start with ``prefix``, in order, at most ``limit``."""
        named = sa.and_(MODELS.c.tenant == tenant, starts_with(MODELS.c.digest, prefix))
        query = sa.select(MODELS.c.digest).where(named).order_by(MODELS.c.digest).limit(limit)
        with self._database.read() as connection:
            return tuple(connection.execute(query).scalars())

    def _upload_again(self, digest: Digest, tenant: str, name: str | None) -> None:
        values = {"used_at": now(), "name": sa.func.coalesce(MODELS.c.name, name)}
        with self._database.write() as connection:
            connection.execute(sa.update(MODELS).where(_is(digest, tenant)).values(values))

    def mark_enqueued(self, digest: Digest, tenant: str = DEFAULT_TENANT) -> None:
        """Note that the queue has the inspection."""
        with self._database.write() as connection:
            connection.execute(sa.update(MODELS).where(_is(digest, tenant)).values(enqueued_at=now()))

    def unenqueued(self, older_than_seconds: float, tenant: str = DEFAULT_TENANT) -> tuple[Digest, ...]:
        """Models to inspect that no queue has, oldest first."""
        query = (
            sa.select(MODELS.c.digest)
            .where(
                MODELS.c.tenant == tenant,
                MODELS.c.state == ModelState.INSPECTING.value,
                MODELS.c.enqueued_at.is_(None),
                MODELS.c.created_at <= now() - timedelta(seconds=older_than_seconds),
            )
            .order_by(MODELS.c.created_at)
        )
        with self._database.read() as connection:
            return tuple(connection.execute(query).scalars())

    def enqueued(
        self, older_than_seconds: float, besides: Container[str] = (), tenant: str = DEFAULT_TENANT
    ) -> tuple[Task, ...]:
        """Inspections that the queue was given at least so long ago, oldest first.

        Args:
            older_than_seconds: how long ago.
            besides: keys of tasks to leave out.
            tenant: whose models.
        """
        query = (
            sa.select(MODELS.c.digest)
            .where(
                MODELS.c.tenant == tenant,
                MODELS.c.state == ModelState.INSPECTING.value,
                MODELS.c.enqueued_at <= now() - timedelta(seconds=older_than_seconds),
            )
            .order_by(MODELS.c.created_at)
        )
        with self._database.read() as connection:
            tasks = (Task(TaskKind.INSPECT, digest) for digest in connection.execute(query).scalars())
            return tuple(task for task in tasks if task.key not in besides)

    def inspect_again(self, digest: Digest, tenant: str = DEFAULT_TENANT) -> bool:
        """Make a model that was rejected, though not for a defect of its own, wait for another inspection.

        Returns:
            Whether it was such a model.
        """
        rejected = self.get(digest, tenant)
        if rejected is None or rejected.state is not ModelState.REJECTED or rejected.defective:
            return False
        statement = (
            sa.update(MODELS)
            .where(_is(digest, tenant), MODELS.c.state == ModelState.REJECTED.value)
            .values(
                state=ModelState.INSPECTING.value,
                problem=None,
                enqueued_at=None,
                waits_since=now(),
                inspector=None,
                lost_attempts=0,
            )
        )
        with self._database.write() as connection:
            return connection.execute(statement).rowcount == 1

    def take(self, digest: Digest, worker_id: str, tenant: str = DEFAULT_TENANT) -> int | None:
        """Take a model's inspection in hand; one that was in a worker's hand already was lost with it.

        Returns:
            How many inspections were lost so; None where the model is inspected or unknown.
        """
        taken = (
            sa.update(MODELS)
            .where(_is(digest, tenant), MODELS.c.state == ModelState.INSPECTING.value)
            .values(
                inspector=worker_id,
                lost_attempts=counting_lost(MODELS, MODELS.c.inspector.is_not(None)),
            )
            .returning(MODELS.c.lost_attempts)
        )
        with self._database.write() as connection:
            return connection.execute(taken).scalar_one_or_none()

    def hand_back(
        self, digest: Digest, worker_id: str, lost_attempts: int, tenant: str = DEFAULT_TENANT
    ) -> None:
        """Let go of an inspection that could not be done just now: it does not count as lost.

        Raises:
            FencedError: another inspection has the model in hand, or none has.
        """
        self._release(digest, worker_id, lost_attempts, {"inspector": None}, tenant)

    def finish_inspection(
        self,
        digest: Digest,
        found: Inspection | Problem,
        worker_id: str,
        lost_attempts: int,
        tenant: str = DEFAULT_TENANT,
    ) -> None:
        """Make a model ready or rejected. Raises as ``hand_back``.

        Args:
            digest: the model's.
            found: what came of its inspection.
            worker_id: who inspected it.
            lost_attempts: what ``take`` has returned.
            tenant: whose model it is.
        """
        self._release(digest, worker_id, lost_attempts, _result(found), tenant)

    def _release(
        self, digest: Digest, worker_id: str, lost_attempts: int, values: dict[str, Any], tenant: str
    ) -> None:
        held = sa.and_(
            _is(digest, tenant),
            MODELS.c.state == ModelState.INSPECTING.value,
            MODELS.c.inspector == worker_id,
            MODELS.c.lost_attempts == lost_attempts,
        )
        with self._database.write() as connection:
            if connection.execute(sa.update(MODELS).where(held).values(values)).rowcount == 0:
                raise FencedError(digest, lost_attempts + 1)


def _to_model(row: sa.Row[Any]) -> Model:
    return Model.read(dict(row._mapping))


def _is(digest: Digest, tenant: str) -> sa.ColumnElement[bool]:
    return sa.and_(MODELS.c.tenant == tenant, MODELS.c.digest == digest)


def _result(found: Inspection | Problem) -> dict[str, Any]:
    document = found.model_dump(mode="json")
    if isinstance(found, Inspection):
        return {"state": ModelState.READY.value, "inspection": document}
    return {"state": ModelState.REJECTED.value, "problem": document}
