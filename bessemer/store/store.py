"""The store that the app and the workers open."""

from dataclasses import dataclass

import sqlalchemy as sa

from bessemer.contract.access import Tenant
from bessemer.store.blobs.artifacts import Artifacts, open_artifacts
from bessemer.store.blobs.tenant_artifacts import TenantArtifacts
from bessemer.store.blobs.upload_parts import UploadParts
from bessemer.store.database import Database
from bessemer.store.errors import StoreUnavailableError
from bessemer.store.migrate import migrate
from bessemer.store.queue_port import TaskKind
from bessemer.store.rows.audit import Audit
from bessemer.store.rows.cost_models import CostModels, TenantCostModel
from bessemer.store.rows.device_tasks import DeviceTasks
from bessemer.store.rows.invocations import Invocations
from bessemer.store.rows.jobs import Jobs, Logs
from bessemer.store.rows.keys import Keys
from bessemer.store.rows.lifecycle import Rows
from bessemer.store.rows.models import Models
from bessemer.store.rows.queued_jobs import QueuedJobs
from bessemer.store.rows.removal import Removal
from bessemer.store.rows.secrets import shared_secret
from bessemer.store.rows.tenant_devices import TenantDevices
from bessemer.store.rows.tenant_extensions import TenantExtensions
from bessemer.store.rows.tenant_invocations import TenantInvocations
from bessemer.store.rows.tenant_jobs import TenantJobs
from bessemer.store.rows.tenant_models import TenantModels
from bessemer.store.rows.tenant_records import TenantRecords
from bessemer.store.rows.tenant_usage import TenantUsage
from bessemer.store.rows.totals import Statistics, read_statistics
from bessemer.store.rows.tuning_records import TuningRecords
from bessemer.store.rows.worker_time import WorkerTime
from bessemer.store.rows.workers import Workers
from bessemer.store.settings import StoreSettings


@dataclass(frozen=True)
class TenantStore:
    """The data of one tenant: no method reads, counts or changes another tenant's.

    The methods block and may run in any thread.
    """

    tenant: Tenant
    jobs: TenantJobs
    models: TenantModels
    extensions: TenantExtensions
    invocations: TenantInvocations
    artifacts: TenantArtifacts
    parts: UploadParts
    usage: TenantUsage
    devices: TenantDevices
    records: TenantRecords
    cost_model: TenantCostModel


@dataclass(frozen=True)
class Store:
    """The data of all tenants, over one pool of connections, for workers, sweeps and the operator.

    Requests are served from ``for_tenant`` only. The methods block and may run in any thread.
    """

    database: Database
    jobs: Jobs
    queued_jobs: QueuedJobs
    invocations: Invocations
    logs: Logs
    models: Models
    workers: Workers
    device_tasks: DeviceTasks
    worker_time: WorkerTime
    records: TuningRecords
    cost_models: CostModels
    removal: Removal
    keys: Keys
    audit: Audit
    artifacts: Artifacts

    def for_tenant(self, tenant: Tenant) -> TenantStore:
        """The data of one tenant."""
        return TenantStore(
            tenant=tenant,
            jobs=TenantJobs(self.database, tenant),
            models=TenantModels(self.database, tenant),
            extensions=TenantExtensions(self.database, tenant),
            invocations=TenantInvocations(self.database, tenant),
            artifacts=self.artifacts.for_tenant(tenant),
            parts=self.artifacts.parts_for_tenant(tenant),
            usage=TenantUsage(self.database, tenant),
            devices=TenantDevices(self.database, tenant, self.device_tasks.lease_seconds),
            records=TenantRecords(self.database, tenant),
            cost_model=TenantCostModel(self.database, tenant),
        )

    def secret(self, name: str) -> bytes:
        """A random secret that all processes of the service share. Raises as ``shared_secret`` does."""
        return shared_secret(self.database, name)

    @property
    def task_rows(self) -> tuple[Rows, ...]:
        """All rows that workers handle."""
        return (self.jobs, self.models, self.invocations)

    def rows(self, kind: TaskKind) -> Rows:
        """The rows behind the tasks of a kind."""
        match kind:
            case TaskKind.COMPILE | TaskKind.PREFLIGHT:
                return self.jobs
            case TaskKind.INSPECT:
                return self.models
            case TaskKind.INVOKE:
                return self.invocations

    def ping(self) -> bool:
        """Whether the database answers."""
        try:
            with self.database.read() as connection:
                connection.execute(sa.select(1))
        except StoreUnavailableError:
            return False
        return True

    def statistics(self, liveness_seconds: float) -> Statistics:
        """The service in numbers. Raises as ``read_statistics`` does."""
        return read_statistics(self.database, liveness_seconds)

    def close(self) -> None:
        """Close every connection."""
        self.artifacts.close()
        self.database.close()


def open_store(settings: StoreSettings) -> Store:
    """Open the store; create the folder, the schema and the artifacts' folder if missing.

    Raises:
        StoreUnavailableError: the database or the artifact store cannot be used.
    """
    database = Database(settings.database)
    try:
        migrate(database)
        return Store(
            database=database,
            jobs=Jobs(database),
            queued_jobs=QueuedJobs(database),
            invocations=Invocations(database),
            logs=Logs(database),
            models=Models(database),
            workers=Workers(database),
            device_tasks=DeviceTasks(database, settings.device_lost_seconds),
            worker_time=WorkerTime(database),
            records=TuningRecords(database),
            cost_models=CostModels(database),
            removal=Removal(database),
            keys=Keys(database),
            audit=Audit(database),
            artifacts=open_artifacts(settings.artifacts),
        )
    except BaseException:
        database.close()
        raise
