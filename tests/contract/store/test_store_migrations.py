"""What a newer release makes of the rows of an earlier one."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from store_samples import a_request

from bessemer.contract.access import DEFAULT_TENANT
from bessemer.store.database import Database
from bessemer.store.migrate import migrate
from bessemer.store.rows.tables import JOB_KEYS, TUNING_KEYS, TUNING_RECORDS
from bessemer.store.rows.tenant_jobs import TenantJobs
from bessemer.store.settings import StoreSettings

READ_AT = datetime(2026, 1, 1, tzinfo=UTC)
KEY, JOB = "k" * 64, "job-00000001"
RECORD = (
    "INSERT INTO tuning_records (id, tenant, key, trace_digest, workload, function, target, processor, "
    "threads, compiler, space, trace, arguments, tvm_target, shared, created_at, judged_at) VALUES "
    "('r', :tenant, :key, 'd', '1', 'f', 't', 'p', 2, 'c', 's', 'abc', 'de', 'f', :no, :at, :judged)"
)


def migrated_to(database: Database, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", "bessemer.store:migrations")
    config.set_main_option("path_separator", "os")
    with database.write() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


@pytest.mark.parametrize(("later", "revisions"), [(1, (-1, 0)), (-1, (0, 0))])
def test_a_result_that_a_record_had_overtaken_stays_outdated(
    fresh_settings: StoreSettings, later: int, revisions: tuple[int, int]
) -> None:
    database = Database(fresh_settings.database)
    if database.is_sqlite:
        Path(str(database.engine.url.database)).parent.mkdir(parents=True, exist_ok=True)
    migrated_to(database, "0007")
    jobs = TenantJobs(database, DEFAULT_TENANT)
    with database.write() as connection:  # without reading it back: later columns do not exist yet
        jobs._insert(connection, JOB, a_request(), None, ())
    judged = READ_AT + timedelta(seconds=later)
    values = {"tenant": DEFAULT_TENANT, "key": KEY, "no": False, "at": READ_AT, "judged": judged}
    with database.write() as connection:
        connection.execute(_timed(RECORD, "at", "judged"), values)
        read = "INSERT INTO job_keys (job, key, read_at) VALUES (:job, :key, :at)"
        connection.execute(_timed(read, "at"), {"job": JOB, "key": KEY, "at": READ_AT})
    migrate(database)
    with database.read() as connection:
        noted = connection.execute(sa.select(JOB_KEYS.c.revision)).scalar_one()
        known = connection.execute(sa.select(TUNING_KEYS.c.revision)).scalar_one()
        size = connection.execute(sa.select(TUNING_RECORDS.c.size_bytes)).scalar_one()
    database.close()
    assert ((noted, known), size) == (revisions, 6)


def _timed(statement: str, *names: str) -> sa.TextClause:
    times = (sa.bindparam(name, type_=sa.DateTime(timezone=True)) for name in names)
    return sa.text(statement).bindparams(*times)
