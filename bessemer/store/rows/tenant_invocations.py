"""A tenant's invocations of compiled libraries."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from bessemer.contract.base import Digest, JobId, now
from bessemer.contract.invocation import Invocation, InvocationPage
from bessemer.contract.job import JobState
from bessemer.store.errors import IdempotencyConflictError
from bessemer.store.rows.filters import starts_with
from bessemer.store.rows.lifecycle import INVOCATION_LIFECYCLE
from bessemer.store.rows.paging import read_page
from bessemer.store.rows.tables import INVOCATIONS, JOBS
from bessemer.store.rows.tenant_rows import CancellableTenantRows


class TenantInvocations(CancellableTenantRows[Invocation]):
    """A tenant's invocations: one row each, deleted with its compilation."""

    lifecycle = INVOCATION_LIFECYCLE
    name = INVOCATIONS.c.id
    document = Invocation
    shown_columns = tuple(INVOCATIONS.c[name] for name in Invocation.model_fields)

    def submit(
        self,
        invocation_id: JobId,
        compilation: JobId,
        inputs: Digest,
        inputs_bytes: int,
        runs: int,
        needs: str | None = None,
        traceparent: str | None = None,
        entry: str | None = None,
    ) -> Invocation | None:
        """Insert a queued invocation. If the id exists with the same inputs, return that invocation.

        Args:
            invocation_id: its id.
            compilation: the id of the compilation whose library to run.
            inputs: the digest of the stored inputs.
            inputs_bytes: their size.
            runs: how often to time the library.
            needs: what the library needs of a worker's processor, as ``contract.capability`` writes it.
            traceparent: the W3C trace context of this request; the first submission's is kept.
            entry: the entry point to run; None for the first.

        Returns:
            The invocation; None if the tenant has no such compilation.

        Raises:
            IdempotencyConflictError: another invocation uses the id.
        """
        wanted = {
            "compilation": compilation,
            "inputs": inputs,
            "runs": runs,
            "entry": entry,
            "tenant": self.tenant,
        }
        values = {
            **wanted,
            "id": invocation_id,
            "inputs_bytes": inputs_bytes,
            "needs": needs,
            "state": JobState.QUEUED.value,
            "attempt": 0,
            "outputs": [],
            "traceparent": traceparent,
            "created_at": now(),
        }
        try:
            with self._database.write() as connection:
                parent = sa.and_(JOBS.c.id == compilation, JOBS.c.tenant == self.tenant)
                if connection.execute(sa.select(JOBS.c.id).where(parent)).one_or_none() is None:
                    return None
                connection.execute(sa.insert(INVOCATIONS).values(values))
        except sa.exc.IntegrityError:
            self._require_same(invocation_id, wanted)
        return self.get(invocation_id)

    def starting(self, compilation: JobId, prefix: str, limit: int) -> tuple[JobId, ...]:
        """The ids of a compilation's invocations that start with ``prefix``, in order, at most ``limit``."""
        named = sa.and_(self._of(compilation), starts_with(INVOCATIONS.c.id, prefix))
        query = sa.select(INVOCATIONS.c.id).where(named).order_by(INVOCATIONS.c.id).limit(limit)
        with self._database.read() as connection:
            return tuple(connection.execute(query).scalars())

    def page(self, compilation: JobId, limit: int, cursor: str | None = None) -> InvocationPage:
        """A compilation's invocations, newest first.

        Raises:
            CursorInvalidError: ``cursor`` is not the ``next`` of an earlier page.
        """
        query = sa.select(*self.shown_columns).where(self._of(compilation))
        key = (INVOCATIONS.c.created_at, INVOCATIONS.c.id)
        page = read_page(self._database, query, key, limit, cursor)
        return InvocationPage(items=tuple(map(self._shown, page.rows)), next=page.next)

    def _of(self, compilation: JobId) -> sa.ColumnElement[bool]:
        return sa.and_(INVOCATIONS.c.compilation == compilation, self._owned)

    def _require_same(self, invocation_id: JobId, wanted: Mapping[str, Any]) -> None:
        query = sa.select(*(INVOCATIONS.c[name] for name in wanted)).where(INVOCATIONS.c.id == invocation_id)
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        if row is not None and dict(row._mapping) != wanted:
            raise IdempotencyConflictError(invocation_id)
