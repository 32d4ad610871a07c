"""The store as app and worker open it."""

from dataclasses import dataclass

import sqlalchemy as sa

from bessemer.store.blobs.artifacts import Artifacts, open_artifacts
from bessemer.store.database import Database
from bessemer.store.errors import StoreUnavailableError
from bessemer.store.migrate import migrate
from bessemer.store.queue_port import TaskKind
from bessemer.store.rows.census import Census, take_census
from bessemer.store.rows.invocations import Invocations
from bessemer.store.rows.jobs import Jobs, Logs
from bessemer.store.rows.lifecycle import Rows
from bessemer.store.rows.models import Models
from bessemer.store.rows.queued import Waiting
from bessemer.store.rows.removal import Removal
from bessemer.store.rows.workers import Workers
from bessemer.store.settings import StoreSettings


@dataclass(frozen=True)
class Store:
    """Everything that is kept, over one pool of connections. Its methods block and may run in any thread."""

    database: Database
    jobs: Jobs
    waiting: Waiting
    invocations: Invocations
    logs: Logs
    models: Models
    workers: Workers
    removal: Removal
    artifacts: Artifacts

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

    def census(self, liveness_seconds: float) -> Census:
        """How much there is of everything. Raises as ``take_census`` does."""
        return take_census(self.database, liveness_seconds)

    def close(self) -> None:
        """Close every connection."""
        self.artifacts.close()
        self.database.close()


def open_store(settings: StoreSettings) -> Store:
    """Open the store, making what is missing: the folder, the schema, the artifacts' folder.

    Raises:
        StoreUnavailableError: the database or the artifact store cannot be used.
    """
    database = Database(settings.database)
    try:
        migrate(database)
        return Store(
            database=database,
            jobs=Jobs(database),
            waiting=Waiting(database),
            invocations=Invocations(database),
            logs=Logs(database),
            models=Models(database),
            workers=Workers(database),
            removal=Removal(database),
            artifacts=open_artifacts(settings.artifacts),
        )
    except BaseException:
        database.close()
        raise
