"""The tables as they are queried on SQLite and PostgreSQL. ``migrations`` creates them."""

from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

METADATA = sa.MetaData()


class UtcTime(sa.types.TypeDecorator[datetime]):
    """A time in UTC. SQLite stores no time zone, so it is added on read."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """To UTC."""
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """To an aware time."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _document() -> sa.JSON:
    """JSON, not JSONB: a job's messages may contain ``\\u0000``, which JSONB refuses."""
    return sa.JSON(none_as_null=True)


JOBS = sa.Table(
    "jobs",
    METADATA,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("tenant", sa.String(64), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("lost_attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("last_seq", sa.Integer, nullable=False),
    sa.Column("request", _document(), nullable=False),
    sa.Column("name", sa.String(128)),
    sa.Column("model", sa.String(64), nullable=False),
    sa.Column("target_name", sa.String(64), nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("needs", sa.Text),
    sa.Column("worker", sa.String(200)),
    sa.Column("incarnation", sa.String(32)),
    sa.Column("cancel_requested", sa.Boolean, nullable=False),
    sa.Column("keep_best", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("target", _document()),
    sa.Column("stage", sa.String(16)),
    sa.Column("progress", _document()),
    sa.Column("sandbox", _document()),
    sa.Column("stages", _document(), nullable=False),
    sa.Column("verified", sa.Boolean),
    sa.Column("compiles", sa.Boolean),
    sa.Column("figures", _document()),
    sa.Column("problem", _document()),
    sa.Column("artifacts", _document(), nullable=False),
    sa.Column("cached", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("original", sa.String(64)),
    sa.Column("identity", sa.String(64)),
    sa.Column("traceparent", sa.String(55)),
    sa.Column("group", sa.String(64)),
    sa.Column("group_index", sa.Integer),
    sa.Column("group_size", sa.Integer),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("enqueued_at", UtcTime),
    sa.Column("started_at", UtcTime),
    sa.Column("finished_at", UtcTime),
    sa.Index("jobs_by_group", "group", "group_index"),
    sa.Index("jobs_newest", "tenant", "created_at", "id"),
    sa.Index("jobs_waiting", "tenant", "kind", "priority", "created_at", "id", "needs"),
    sa.Index("jobs_ended", "tenant", "kind", "finished_at"),
    sa.Index("jobs_by_state", "state", "created_at", "id"),
    sa.Index("jobs_newest_by_state", "tenant", "state", "created_at", "id"),
    sa.Index("jobs_newest_by_name", "tenant", "name", "created_at", "id"),
    sa.Index("jobs_newest_by_model", "tenant", "model", "created_at", "id"),
    sa.Index("jobs_newest_by_target", "tenant", "target_name", "created_at", "id"),
    sa.Index("jobs_finished", "finished_at"),
    sa.Index("jobs_newest_by_identity", "tenant", "identity", "created_at", "id"),
)

JOB_LOGS = sa.Table(
    "job_logs",
    METADATA,
    sa.Column("job", sa.String(64), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("tail", sa.Text, nullable=False),
)

LABELS = sa.Table(
    "labels",
    METADATA,
    sa.Column("job", sa.String(64), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("key", sa.String(63), primary_key=True),
    sa.Column("value", sa.String(128), nullable=False),
    sa.Index("labels_found", "key", "value", "job"),
)

JOB_BLOBS = sa.Table(
    "job_blobs",
    METADATA,
    sa.Column("job", sa.String(64), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("tenant", sa.String(64), nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Index("job_blobs_digest", "digest", "tenant", "size_bytes"),
    sa.Index("job_blobs_stored", "tenant", "digest", "size_bytes"),
)

EVENTS = sa.Table(
    "events",
    METADATA,
    sa.Column("job", sa.String(64), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("type", sa.String(32), nullable=False),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("data", _document(), nullable=False),
)

MODELS = sa.Table(
    "models",
    METADATA,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("tenant", sa.String(64), nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("name", sa.String(128)),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
    sa.Column("worker", sa.String(200)),
    sa.Column("incarnation", sa.String(32)),
    sa.Column("lost_attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("inspection", _document()),
    sa.Column("problem", _document()),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("enqueued_at", UtcTime),
    sa.Column("waits_since", UtcTime),
    sa.Column("used_at", UtcTime),
    sa.Index("models_by_state", "state", "created_at"),
    sa.Index("models_newest", "tenant", "created_at", "digest"),
    sa.Index("models_used", "used_at"),
    sa.Index("models_digest", "digest", "tenant"),
    sa.Index("models_sizes", "size_bytes"),
    sa.Index("models_stored", "tenant", "digest", "size_bytes"),
    sa.UniqueConstraint("tenant", "digest", name="models_once"),
)

EXTENSIONS = sa.Table(
    "extensions",
    METADATA,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("tenant", sa.String(64), nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("name", sa.String(128)),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("used_at", UtcTime),
    sa.Index("extensions_newest", "tenant", "created_at", "digest"),
    sa.Index("extensions_used", "used_at"),
    sa.Index("extensions_digest", "digest", "tenant"),
    sa.Index("extensions_stored", "tenant", "digest", "size_bytes"),
    sa.UniqueConstraint("tenant", "digest", name="extensions_once"),
)

INVOCATIONS = sa.Table(
    "invocations",
    METADATA,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("tenant", sa.String(64), nullable=False),
    sa.Column("compilation", sa.String(64), sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("lost_attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("inputs", sa.String(64), nullable=False),
    sa.Column("inputs_bytes", sa.BigInteger, nullable=False),
    sa.Column("runs", sa.Integer, nullable=False),
    sa.Column("entry", sa.String(64)),
    sa.Column("needs", sa.Text),
    sa.Column("worker", sa.String(200)),
    sa.Column("incarnation", sa.String(32)),
    sa.Column("threads", sa.Integer),
    sa.Column("latency", _document()),
    sa.Column("outputs", _document(), nullable=False),
    sa.Column("artifact", _document()),
    sa.Column("outputs_digest", sa.String(64)),
    sa.Column("outputs_bytes", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("problem", _document()),
    sa.Column("cancel_requested", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("traceparent", sa.String(55)),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("enqueued_at", UtcTime),
    sa.Column("started_at", UtcTime),
    sa.Column("finished_at", UtcTime),
    sa.Index("invocations_newest", "compilation", "created_at", "id"),
    sa.Index("invocations_by_state", "state", "created_at"),
    sa.Index("invocations_inputs", "inputs", "tenant", "inputs_bytes"),
    sa.Index("invocations_outputs", "outputs_digest", "tenant", "outputs_bytes"),
    sa.Index("invocations_finished", "finished_at"),
    sa.Index("invocations_stored", "tenant", "inputs", "inputs_bytes", "outputs_digest", "outputs_bytes"),
)

WORKERS = sa.Table(
    "workers",
    METADATA,
    sa.Column("id", sa.String(200), primary_key=True),
    sa.Column("document", _document(), nullable=False),
    sa.Column("seen_at", UtcTime, nullable=False),
)

DEVICES = sa.Table(
    "devices",
    METADATA,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("tenant", sa.String(64), nullable=False),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("shared", sa.Boolean, nullable=False),
    sa.Column("document", _document(), nullable=False),
    sa.Column("registered_at", UtcTime, nullable=False),
    sa.Column("seen_at", UtcTime, nullable=False),
    sa.UniqueConstraint("tenant", "name", name="devices_once"),
)

DEVICE_TASKS = sa.Table(
    "device_tasks",
    METADATA,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("job", sa.String(64), sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("incarnation", sa.String(32), nullable=False),
    sa.Column("tenant", sa.String(64), nullable=False),
    sa.Column("platform", sa.String(64), nullable=False),
    sa.Column("device_name", sa.String(64)),
    sa.Column("kind", sa.String(64)),
    sa.Column("features", _document(), nullable=False),
    sa.Column("document", _document(), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
    sa.Column("lost_attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("device", sa.String(32)),
    sa.Column("device_document", _document()),
    sa.Column("unfit", _document(), nullable=False),
    sa.Column("result", _document()),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("renewed_at", UtcTime),
    sa.Index("device_tasks_waiting", "state", "platform", "created_at"),
    sa.Index("device_tasks_of_device", "device"),
    sa.Index("device_tasks_of_job", "job"),
)

WORKER_TIME = sa.Table(
    "worker_time",
    METADATA,
    sa.Column("tenant", sa.String(64), primary_key=True),
    sa.Column("day", sa.Date, primary_key=True),
    sa.Column("seconds", sa.Float, nullable=False),
)

TUNING_WORKLOADS = sa.Table(
    "tuning_workloads",
    METADATA,
    sa.Column("tenant", sa.String(64), primary_key=True),
    sa.Column("workload", sa.String(20), primary_key=True),
    sa.Column("packed", sa.Text, nullable=False),
    sa.Column("size_bytes", sa.Integer, nullable=False, server_default="0"),
    sa.Column("named_at", UtcTime),
)

TUNING_RECORDS = sa.Table(
    "tuning_records",
    METADATA,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("tenant", sa.String(64), nullable=False),
    sa.Column("key", sa.String(64), nullable=False),
    sa.Column("trace_digest", sa.String(64), nullable=False),
    sa.Column("workload", sa.String(20), nullable=False),
    sa.Column("function", sa.String(200), nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("processor", sa.String(64), nullable=False),
    sa.Column("threads", sa.Integer, nullable=False),
    sa.Column("compiler", sa.String(200), nullable=False),
    sa.Column("space", sa.String(200), nullable=False),
    sa.Column("trace", sa.Text, nullable=False),
    sa.Column("arguments", sa.Text, nullable=False),
    sa.Column("tvm_target", sa.Text, nullable=False),
    sa.Column("seconds", sa.Float),
    sa.Column("default_seconds", sa.Float),
    sa.Column("won", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("failure", sa.Text),
    sa.Column("shared", sa.Boolean, nullable=False),
    sa.Column("compilation", sa.String(64)),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("size_bytes", sa.Integer, nullable=False, server_default="0"),
    sa.Column("kind_key", sa.String(64)),
    sa.Column("extents", _document()),
    sa.Index("tuning_records_by_key", "key", "tenant"),
    sa.Index("tuning_records_by_kind", "kind_key", "created_at"),
    sa.Index("tuning_records_newest", "tenant", "created_at", "id"),
    sa.Index("tuning_records_by_workload", "tenant", "workload"),
    sa.Index("tuning_records_age", "created_at"),
    sa.Index("tuning_records_bytes", "tenant", "size_bytes"),
    sa.UniqueConstraint("tenant", "key", "trace_digest", name="tuning_records_once"),
)

JOB_TRIALS = sa.Table(
    "job_trials",
    METADATA,
    sa.Column("job", sa.String(64), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("key", sa.String(64), nullable=False),
    sa.Column("elapsed_seconds", sa.Float, nullable=False),
    sa.Column("document", _document(), nullable=False),
)

JOB_KEYS = sa.Table(
    "job_keys",
    METADATA,
    sa.Column("job", sa.String(64), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("revision", sa.Integer, nullable=False, server_default="0"),
)

TUNING_KEYS = sa.Table(
    "tuning_keys",
    METADATA,
    sa.Column("tenant", sa.String(64), primary_key=True),
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("revision", sa.Integer, nullable=False),
)

MEASURED_PLANS = sa.Table(
    "measured_plans",
    METADATA,
    sa.Column("tenant", sa.String(64), primary_key=True),
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("features_version", sa.String(20), primary_key=True),
    sa.Column("plans", sa.Integer, nullable=False),
    sa.Column("packed", sa.LargeBinary, nullable=False),
    sa.Column("measured_at", UtcTime, nullable=False),
    sa.Index("measured_plans_newest", "tenant", "features_version", "measured_at"),
)

COST_MODELS = sa.Table(
    "cost_models",
    METADATA,
    sa.Column("tenant", sa.String(64), primary_key=True),
    sa.Column("features_version", sa.String(20), primary_key=True),
    sa.Column("document", _document(), nullable=False),
    sa.Column("model", sa.LargeBinary, nullable=False),
    sa.Column("learned_until", UtcTime, nullable=False),
)

KEYS = sa.Table(
    "keys",
    METADATA,
    sa.Column("id", sa.String(12), primary_key=True),
    sa.Column("tenant", sa.String(64), nullable=False),
    sa.Column("scope", sa.String(16), nullable=False),
    sa.Column("name", sa.String(128)),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("expires_at", UtcTime),
    sa.Column("revoked_at", UtcTime),
    sa.Column("last_used_at", UtcTime),
)

AUDIT = sa.Table(
    "audit",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("subject", sa.String(200), nullable=False),
    sa.Column("tenant", sa.String(64)),
    sa.Column("action", sa.String(200), nullable=False),
    sa.Column("resource", sa.String(400), nullable=False),
    sa.Column("status", sa.Integer, nullable=False),
    sa.Column("request_id", sa.String(128)),
    sa.Column("address", sa.String(64)),
    sa.Index("audit_at", "at"),
    sqlite_autoincrement=True,
)

SECRETS = sa.Table(
    "secrets",
    METADATA,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("value", sa.LargeBinary, nullable=False),
)
