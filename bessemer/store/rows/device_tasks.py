"""The tasks of devices, as workers give them out.

```
 submit          take               finish
───────▶ queued ──────▶ leased ─────────────▶ ended
            ▲              │
            └──────────────┘
        take_back, or the device leaves or registers again
```

A task belongs to one attempt at a job: when that attempt has ended, no device gets the task, and none can end
it. A device renews its lease. The worker that waits for the task watches ``renewed_at`` by its own clock, and
takes the task back from a device that is lost.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from bessemer.contract.access import Tenant
from bessemer.contract.base import Digest, JobId, now
from bessemer.contract.device import Device, DeviceResult, DeviceTask
from bessemer.contract.job import JobState
from bessemer.store.database import Database
from bessemer.store.rows.lifecycle import Attempt
from bessemer.store.rows.tables import DEVICE_TASKS, DEVICES, JOBS
from bessemer.store.rows.workers import seen_within


class DeviceTaskState(StrEnum):
    """The state of a device's task."""

    QUEUED = "queued"
    LEASED = "leased"
    ENDED = "ended"


@dataclass(frozen=True)
class Wanted:
    """The devices that may do a task.

    Attributes:
        tenant: the owner of the bundle; its own devices and the shared ones may do it.
        platform: the platform of the bundle's program.
        name: a device's name; None if any will do.
        features: the features that its processor and its GPU must have.
        unfit: the names of devices that turned out to be unable.
        measures: whether only times matter; an emulated device then fits only if it is named.
        kind: the kind that it must have, so that times can be compared; None if any will do.
    """

    tenant: Tenant
    platform: str
    name: str | None = None
    features: frozenset[str] = frozenset()
    unfit: frozenset[str] = frozenset()
    measures: bool = False
    kind: Digest | None = None

    def fits(self, device: Device) -> bool:
        """Whether a device that the tenant may use can do the task."""
        return (
            device.platform == self.platform
            and self.name in (None, device.name)
            and (device.emulated or self.features <= device.runs_with)
            and device.name not in self.unfit
            and not (device.emulated and self.measures and self.name is None)
            and self.kind in (None, device.kind)
        )


@dataclass(frozen=True)
class DeviceTaskStatus:
    """The status of a task.

    Attributes:
        attempt: counts how often a device took it.
        lost_attempts: how many of these were lost.
        device: the device that has it, or ended it.
        wanted: the devices that may do it.
        result: how it ended.
        renewed_at: when the device was last heard from; only compared for equality.
    """

    state: DeviceTaskState
    attempt: int
    lost_attempts: int
    device: Device | None
    wanted: Wanted
    result: DeviceResult | None
    renewed_at: datetime | None


class DeviceTasks:
    """Each method is one transaction and raises ``StoreUnavailableError`` if the database is unreachable.

    Args:
        database: the database of the rows.
        lease_seconds: a device that is not heard from for this long is lost.
    """

    def __init__(self, database: Database, lease_seconds: float) -> None:
        self._database = database
        self.lease_seconds = lease_seconds

    def submit(self, job_id: JobId, attempt: Attempt, task: DeviceTask, wanted: Wanted) -> None:
        """Offer a task for an attempt at a job; tasks of earlier attempts are withdrawn."""
        values = {
            "id": task.id,
            "job": job_id,
            "incarnation": attempt.incarnation,
            "tenant": wanted.tenant,
            "platform": wanted.platform,
            "device_name": wanted.name,
            "kind": wanted.kind,
            "features": sorted(wanted.features),
            "document": task.model_dump(mode="json"),
            "state": DeviceTaskState.QUEUED.value,
            "unfit": sorted(wanted.unfit),
            "created_at": now(),
        }
        earlier = sa.and_(DEVICE_TASKS.c.job == job_id, DEVICE_TASKS.c.incarnation != attempt.incarnation)
        with self._database.write() as connection:
            connection.execute(sa.delete(DEVICE_TASKS).where(earlier))
            connection.execute(sa.insert(DEVICE_TASKS).values(values))

    def status(self, task_id: str) -> DeviceTaskStatus | None:
        """Where a task stands; None if it was withdrawn."""
        query = sa.select(DEVICE_TASKS).where(DEVICE_TASKS.c.id == task_id)
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else _status(row)

    def take_back(self, task_id: str, attempt: int) -> bool:
        """Queue a lost device's task again; returns whether that attempt still had it."""
        held = sa.and_(DEVICE_TASKS.c.id == task_id, DEVICE_TASKS.c.attempt == attempt)
        with self._database.write() as connection:
            return requeue(connection, held, lost=True)

    def give_to_others(self, task_id: str, device_name: str) -> None:
        """Queue an ended task again for other devices than this one, which is unable to do it."""
        with self._database.write() as connection:
            query = sa.select(DEVICE_TASKS.c.unfit).where(DEVICE_TASKS.c.id == task_id)
            unfit = connection.execute(query).scalar_one()
            values = {
                "state": DeviceTaskState.QUEUED.value,
                "unfit": [*unfit, device_name],
                "device": None,
                "device_document": None,
                "result": None,
            }
            connection.execute(sa.update(DEVICE_TASKS).where(DEVICE_TASKS.c.id == task_id).values(values))

    def open_to_all(self, task_id: str) -> None:
        """Let any device do a queued task that was meant for one."""
        queued = sa.and_(DEVICE_TASKS.c.id == task_id, DEVICE_TASKS.c.state == DeviceTaskState.QUEUED.value)
        with self._database.write() as connection:
            connection.execute(sa.update(DEVICE_TASKS).where(queued).values(device_name=None))

    def withdraw(self, task_id: str) -> None:
        """Delete a task; a device that has it learns so when it renews its lease."""
        with self._database.write() as connection:
            connection.execute(sa.delete(DEVICE_TASKS).where(DEVICE_TASKS.c.id == task_id))

    def delete_obsolete(self) -> int:
        """Delete the tasks of attempts that have ended; returns how many."""
        current = sa.exists().where(IS_CURRENT)
        with self._database.write() as connection:
            return connection.execute(sa.delete(DEVICE_TASKS).where(~current)).rowcount

    def fitting(self, wanted: Wanted) -> tuple[Device, ...]:
        """The live devices that may do a task, by name."""
        with self._database.read() as connection:
            live = read_live_devices(self._database, connection, self.lease_seconds, wanted.tenant)
        return tuple(filter(wanted.fits, live))

    def live_platforms(self) -> "LivePlatforms":
        """The platforms of the live devices, by tenant."""
        with self._database.read() as connection:
            rows = connection.execute(
                sa.select(DEVICES.c.tenant, DEVICES.c.shared, DEVICES.c.document).where(
                    seen_within(self._database, connection, self.lease_seconds, DEVICES.c.seen_at)
                )
            ).all()
        return LivePlatforms(
            shared=frozenset(str(row.document["platform"]) for row in rows if row.shared),
            own=frozenset((row.tenant, str(row.document["platform"])) for row in rows),
        )


@dataclass(frozen=True)
class LivePlatforms:
    """The platforms of live devices: those of shared devices, and each tenant's own."""

    shared: frozenset[str] = frozenset()
    own: frozenset[tuple[Tenant, str]] = frozenset()

    def of(self, tenant: Tenant) -> frozenset[str]:
        """The platforms of the devices that a tenant may use."""
        return self.shared | {platform for owner, platform in self.own if owner == tenant}


IS_CURRENT = sa.and_(
    JOBS.c.id == DEVICE_TASKS.c.job,
    JOBS.c.incarnation == DEVICE_TASKS.c.incarnation,
    JOBS.c.state == JobState.RUNNING.value,
)
"""Whether the attempt that offered a task still runs."""

SHOWN = (DEVICES, sa.exists().where(DEVICE_TASKS.c.device == DEVICES.c.id, IS_CURRENT).label("busy"))


def requeue(connection: sa.Connection, condition: sa.ColumnElement[bool], *, lost: bool) -> bool:
    """Queue leased tasks again; returns whether there were any. ``lost`` counts an attempt of each."""
    columns = DEVICE_TASKS.c
    values = {
        "state": DeviceTaskState.QUEUED.value,
        "lost_attempts": columns.lost_attempts + int(lost),
        "device": None,
        "device_document": None,
        "renewed_at": None,
    }
    leased = sa.and_(condition, columns.state == DeviceTaskState.LEASED.value)
    return connection.execute(sa.update(DEVICE_TASKS).where(leased).values(values)).rowcount > 0


def read_live_devices(
    database: Database, connection: sa.Connection, lease_seconds: float, tenant: Tenant
) -> tuple[Device, ...]:
    """The live devices that a tenant may use, by name."""
    query = sa.select(*SHOWN).where(
        seen_within(database, connection, lease_seconds, DEVICES.c.seen_at),
        sa.or_(DEVICES.c.tenant == tenant, DEVICES.c.shared),
    )
    rows: Sequence[sa.Row[Any]] = connection.execute(query.order_by(DEVICES.c.name, DEVICES.c.id)).all()
    return tuple(shown_device(row, lease_seconds) for row in rows)


def shown_device(row: sa.Row[Any], lease_seconds: float) -> Device:
    """The document of a device's row."""
    return Device.read(
        {
            **row.document,
            "id": row.id,
            "shared": row.shared,
            "busy": row.busy,
            "registered_at": row.registered_at,
            "seen_at": row.seen_at,
            "lease_seconds": lease_seconds,
        }
    )


def wanted_of(row: sa.Row[Any]) -> Wanted:
    """The devices that may do a row's task."""
    return Wanted(
        row.tenant,
        row.platform,
        row.device_name,
        frozenset(row.features),
        frozenset(row.unfit),
        measures=row.document["kind"] == "measure",
        kind=row.kind,
    )


def new_task_id() -> str:
    """An id that cannot be guessed."""
    return uuid.uuid4().hex


def _status(row: sa.Row[Any]) -> DeviceTaskStatus:
    return DeviceTaskStatus(
        state=DeviceTaskState(row.state),
        attempt=row.attempt,
        lost_attempts=row.lost_attempts,
        device=None if row.device_document is None else Device.read(row.device_document),
        wanted=wanted_of(row),
        result=None if row.result is None else DeviceResult.read(row.result),
        renewed_at=row.renewed_at,
    )
