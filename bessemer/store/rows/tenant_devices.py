"""A tenant's devices, as they call the service."""

import uuid
from typing import Any

import sqlalchemy as sa

from bessemer.contract.access import Tenant
from bessemer.contract.base import Digest
from bessemer.contract.device import Device, DeviceRequest, DeviceResult, DeviceTask
from bessemer.store.database import Database
from bessemer.store.errors import DeviceUnknownError, TooManyDevicesError
from bessemer.store.rows.device_tasks import (
    IS_CURRENT,
    SHOWN,
    DeviceTaskState,
    read_live_devices,
    requeue,
    shown_device,
    wanted_of,
)
from bessemer.store.rows.tables import DEVICE_TASKS, DEVICES
from bessemer.store.rows.workers import seen_within

MOST_DEVICES = 256
FORGOTTEN_SECONDS = 24 * 3600.0
_CANDIDATES = 64


class TenantDevices:
    """A tenant's devices. A device that the tenant shares also gets the tasks of other tenants.

    Each method is one transaction and raises ``StoreUnavailableError`` if the database cannot be reached.
    """

    def __init__(self, database: Database, tenant: Tenant, lease_seconds: float) -> None:
        self._database = database
        self._lease_seconds = lease_seconds
        self.tenant = tenant

    def live(self) -> tuple[Device, ...]:
        """The live devices that the tenant may use: its own and the shared ones, by name."""
        with self._database.read() as connection:
            return read_live_devices(self._database, connection, self._lease_seconds, self.tenant)

    def names(self) -> frozenset[str]:
        """The names of the devices that the tenant may use, with those lost within a day.

        A device that stops in order leaves at once.
        """
        query = sa.select(DEVICES.c.name).where(sa.or_(DEVICES.c.tenant == self.tenant, DEVICES.c.shared))
        with self._database.read() as connection:
            return frozenset(connection.execute(query).scalars())

    def register(self, request: DeviceRequest, shared: bool) -> Device:
        """Add a device. One of the same name is replaced: its task, if any, is lost.

        Raises:
            TooManyDevicesError: the tenant has as many devices as it may have.
        """
        clock, device_id = self._database.clock, uuid.uuid4().hex
        values = {
            "id": device_id,
            "tenant": self.tenant,
            "name": request.name,
            "shared": shared,
            "document": request.model_dump(mode="json"),
            "registered_at": clock,
            "seen_at": clock,
        }
        with self._database.write() as connection:
            self._database.lock_table(connection, DEVICES)
            self._forget(connection)
            self._delete(connection, DEVICES.c.name == request.name, lost=True)
            count = sa.select(sa.func.count()).where(DEVICES.c.tenant == self.tenant)
            if connection.execute(count).scalar_one() >= MOST_DEVICES:
                raise TooManyDevicesError(MOST_DEVICES)
            connection.execute(sa.insert(DEVICES).values(values))
            return shown_device(self._row(connection, device_id), self._lease_seconds)

    def remove(self, device_id: str) -> bool:
        """Remove a device that stops; another gets its task, if any. Returns whether it existed."""
        with self._database.write() as connection:
            return self._delete(connection, DEVICES.c.id == device_id, lost=False)

    def take(self, device_id: str) -> DeviceTask | None:
        """Give a device its task again, or lease it the oldest one that it can do; None if there is none.

        Raises:
            DeviceUnknownError: the tenant has no such device.
        """
        with self._database.read() as connection:
            row = self._row(connection, device_id)
            waits = self._held(connection, device_id) or self._candidates(connection, row)
        if not waits:
            return None
        with self._database.write() as connection:
            row = self._row(connection, device_id)
            held = self._held(connection, device_id)
            if held is not None:
                return DeviceTask.read(held.document)
            return self._lease(connection, row)

    def seen(self, device_id: str) -> None:
        """Note that a device was heard from.

        Raises:
            DeviceUnknownError: the tenant has no such device.
        """
        with self._database.write() as connection:
            if not self._touch(connection, device_id):
                raise DeviceUnknownError(device_id)

    def renew(self, device_id: str, task_id: str) -> bool:
        """Renew a device's lease on its task; False if it no longer has the task.

        Raises:
            DeviceUnknownError: the tenant has no such device.
        """
        with self._database.write() as connection:
            if not self._touch(connection, device_id):
                raise DeviceUnknownError(device_id)
            values = {"renewed_at": self._database.clock}
            held = self._holds(device_id, task_id)
            return connection.execute(sa.update(DEVICE_TASKS).where(held).values(values)).rowcount > 0

    def finish(self, device_id: str, task_id: str, result: DeviceResult) -> bool:
        """End a device's task; False if it no longer has the task.

        Raises:
            DeviceUnknownError: the tenant has no such device.
        """
        values = {"state": DeviceTaskState.ENDED.value, "result": result.model_dump(mode="json")}
        with self._database.write() as connection:
            if not self._touch(connection, device_id):
                raise DeviceUnknownError(device_id)
            held = self._holds(device_id, task_id)
            return connection.execute(sa.update(DEVICE_TASKS).where(held).values(values)).rowcount > 0

    def bundle(self, device_id: str, task_id: str) -> tuple[Tenant, Digest] | None:
        """The owner and the digest of the bundle of a device's task; None if it has no such task.

        A shared device has tasks of other tenants.

        Raises:
            DeviceUnknownError: the tenant has no such device.
        """
        with self._database.read() as connection:
            self._row(connection, device_id)
            query = sa.select(DEVICE_TASKS).where(self._holds(device_id, task_id))
            row = connection.execute(query).one_or_none()
        return None if row is None else (row.tenant, DeviceTask.read(row.document).digest)

    def _named(self, device_id: str) -> sa.ColumnElement[bool]:
        return sa.and_(DEVICES.c.id == device_id, DEVICES.c.tenant == self.tenant)

    def _row(self, connection: sa.Connection, device_id: str) -> sa.Row[Any]:
        row = connection.execute(sa.select(*SHOWN).where(self._named(device_id))).one_or_none()
        if row is None:
            raise DeviceUnknownError(device_id)
        return row

    def _touch(self, connection: sa.Connection, device_id: str) -> bool:
        values = {"seen_at": self._database.clock}
        statement = sa.update(DEVICES).where(self._named(device_id)).values(values)
        return connection.execute(statement).rowcount > 0

    def _holds(self, device_id: str, task_id: str) -> sa.ColumnElement[bool]:
        """Whether a task is leased to a device, and the attempt that offered it still runs."""
        leased = DEVICE_TASKS.c.state == DeviceTaskState.LEASED.value
        is_current = sa.exists().where(IS_CURRENT)
        return sa.and_(DEVICE_TASKS.c.id == task_id, DEVICE_TASKS.c.device == device_id, leased, is_current)

    def _held(self, connection: sa.Connection, device_id: str) -> sa.Row[Any] | None:
        """The task that a device has, which it may not know: the answer may have been lost."""
        leased = DEVICE_TASKS.c.state == DeviceTaskState.LEASED.value
        query = sa.select(DEVICE_TASKS).where(
            DEVICE_TASKS.c.device == device_id, leased, sa.exists().where(IS_CURRENT)
        )
        return connection.execute(query.limit(1)).one_or_none()

    def _candidates(self, connection: sa.Connection, device: sa.Row[Any]) -> list[sa.Row[Any]]:
        """Queued tasks that a device can do, oldest first."""
        columns, shown = DEVICE_TASKS.c, shown_device(device, self._lease_seconds)
        query = sa.select(DEVICE_TASKS).where(
            columns.state == DeviceTaskState.QUEUED.value,
            columns.platform == shown.platform,
            sa.or_(columns.device_name.is_(None), columns.device_name == shown.name),
            sa.or_(columns.kind.is_(None), columns.kind == shown.kind),
            sa.exists().where(IS_CURRENT),
        )
        if not device.shared:
            query = query.where(columns.tenant == self.tenant)
        rows = connection.execute(query.order_by(columns.created_at).limit(_CANDIDATES)).all()
        return [row for row in rows if wanted_of(row).fits(shown)]

    def _lease(self, connection: sa.Connection, device: sa.Row[Any]) -> DeviceTask | None:
        columns = DEVICE_TASKS.c
        shown = shown_device(device, self._lease_seconds).model_dump(mode="json")
        for row in self._candidates(connection, device):
            values = {
                "state": DeviceTaskState.LEASED.value,
                "attempt": columns.attempt + 1,
                "device": device.id,
                "device_document": shown,
                "renewed_at": self._database.clock,
            }
            queued = sa.and_(columns.id == row.id, columns.state == DeviceTaskState.QUEUED.value)
            if connection.execute(sa.update(DEVICE_TASKS).where(queued).values(values)).rowcount:
                return DeviceTask.read(row.document)
        return None

    def _forget(self, connection: sa.Connection) -> None:
        """Delete the tenant's devices that were not heard from for long."""
        lately = seen_within(self._database, connection, FORGOTTEN_SECONDS, DEVICES.c.seen_at)
        old = sa.and_(DEVICES.c.tenant == self.tenant, sa.not_(lately))
        connection.execute(sa.delete(DEVICES).where(old))

    def _delete(self, connection: sa.Connection, condition: sa.ColumnElement[bool], *, lost: bool) -> bool:
        own = sa.and_(DEVICES.c.tenant == self.tenant, condition)
        ids = connection.execute(sa.select(DEVICES.c.id).where(own)).scalars().all()
        requeue(connection, DEVICE_TASKS.c.device.in_(ids), lost=lost)
        return connection.execute(sa.delete(DEVICES).where(DEVICES.c.id.in_(ids))).rowcount > 0
