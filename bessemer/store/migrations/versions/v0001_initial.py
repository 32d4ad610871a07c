"""The first schema: compilations with their events, models, invocations, workers, secrets."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_MOVES = """(
    OLD.state = NEW.state
    OR (OLD.state = 'queued' AND NEW.state IN ('running', 'failed', 'cancelled'))
    OR (OLD.state = 'running' AND NEW.state IN ('succeeded', 'failed', 'cancelled'))
)"""
_QUEUED = sa.text("state = 'queued'")
_MEASURED = sa.text("state IN ('succeeded', 'failed')")


def upgrade() -> None:
    _create_jobs()
    _create_job_parts()
    _create_models()
    _create_invocations()
    _create_workers()
    _create_worker_time()
    _create_keys()
    _create_audit()
    _create_secrets()
    for table in ("jobs", "invocations"):
        _guard_moves(table)


def _time(name: str, nullable: bool = True) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)


def _lost_attempts() -> sa.Column[int]:
    return sa.Column("lost_attempts", sa.Integer, nullable=False, server_default="0")


def _job(name: str, primary_key: bool = False) -> sa.Column[str]:
    reference = sa.ForeignKey("jobs.id", ondelete="CASCADE")
    return sa.Column(name, sa.String(64), reference, primary_key=primary_key, nullable=False)


def _state_checks(table: str) -> tuple[sa.CheckConstraint, ...]:
    final = "'succeeded', 'failed', 'cancelled'"
    return (
        sa.CheckConstraint(f"state IN ('queued', 'running', {final})", name=f"{table}_state"),
        sa.CheckConstraint(f"(state IN ({final})) = (finished_at IS NOT NULL)", name=f"{table}_finished"),
    )


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("tenant", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        _lost_attempts(),
        sa.Column("last_seq", sa.Integer, nullable=False),
        sa.Column("request", sa.JSON, nullable=False),
        sa.Column("name", sa.String(128)),
        sa.Column("model", sa.String(64), nullable=False),
        sa.Column("target_name", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("needs", sa.Text),
        sa.Column("worker", sa.String(200)),
        sa.Column("incarnation", sa.String(32)),
        sa.Column("cancel_requested", sa.Boolean, nullable=False),
        sa.Column("target", sa.JSON),
        sa.Column("stage", sa.String(16)),
        sa.Column("progress", sa.JSON),
        sa.Column("sandbox", sa.JSON),
        sa.Column("stages", sa.JSON, nullable=False),
        sa.Column("verified", sa.Boolean),
        sa.Column("figures", sa.JSON),
        sa.Column("problem", sa.JSON),
        sa.Column("artifacts", sa.JSON, nullable=False),
        sa.Column("traceparent", sa.String(55)),
        _time("created_at", nullable=False),
        _time("enqueued_at"),
        _time("started_at"),
        _time("finished_at"),
        *_state_checks("jobs"),
        sa.CheckConstraint("attempt >= 0", name="jobs_attempt"),
    )
    op.create_index("jobs_newest", "jobs", ["tenant", "created_at", "id"])
    for name, column in (("state", "state"), ("name", "name"), ("model", "model"), ("target", "target_name")):
        op.create_index(f"jobs_newest_by_{name}", "jobs", ["tenant", column, "created_at", "id"])
    op.create_index("jobs_by_state", "jobs", ["state", "created_at", "id"])
    op.create_index("jobs_finished", "jobs", ["finished_at"])
    for name, columns, where in (
        ("jobs_waiting", ["tenant", "kind", "priority", "created_at", "id", "needs"], _QUEUED),
        ("jobs_ended", ["tenant", "kind", "finished_at"], _MEASURED),
    ):
        op.create_index(name, "jobs", columns, sqlite_where=where, postgresql_where=where)


def _create_job_parts() -> None:
    op.create_table("job_logs", _job("job", primary_key=True), sa.Column("tail", sa.Text, nullable=False))
    op.create_table(
        "labels",
        _job("job", primary_key=True),
        sa.Column("key", sa.String(63), primary_key=True),
        sa.Column("value", sa.String(128), nullable=False),
    )
    op.create_index("labels_found", "labels", ["key", "value", "job"])
    op.create_table(
        "job_blobs",
        _job("job", primary_key=True),
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("tenant", sa.String(64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
    )
    op.create_index("job_blobs_digest", "job_blobs", ["digest", "tenant", "size_bytes"])
    op.create_index("job_blobs_stored", "job_blobs", ["tenant", "digest", "size_bytes"])
    op.create_table(
        "events",
        _job("job", primary_key=True),
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("type", sa.String(32), nullable=False),
        _time("at", nullable=False),
        sa.Column("data", sa.JSON, nullable=False),
        sa.CheckConstraint("seq >= 1", name="events_seq"),
    )


def _create_models() -> None:
    op.create_table(
        "models",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("tenant", sa.String(64), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("name", sa.String(128)),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
        sa.Column("worker", sa.String(200)),
        sa.Column("incarnation", sa.String(32)),
        _lost_attempts(),
        sa.Column("inspection", sa.JSON),
        sa.Column("problem", sa.JSON),
        _time("created_at", nullable=False),
        _time("enqueued_at"),
        _time("waits_since"),
        _time("used_at"),
        sa.UniqueConstraint("tenant", "digest", name="models_once"),
        sa.CheckConstraint("state IN ('inspecting', 'ready', 'rejected')", name="models_state"),
        sa.CheckConstraint("(state = 'ready') = (inspection IS NOT NULL)", name="models_inspection"),
        sa.CheckConstraint("(state = 'rejected') = (problem IS NOT NULL)", name="models_problem"),
    )
    op.create_index("models_by_state", "models", ["state", "created_at"])
    op.create_index("models_newest", "models", ["tenant", "created_at", "digest"])
    op.create_index("models_digest", "models", ["digest", "tenant"])
    op.create_index("models_stored", "models", ["tenant", "digest", "size_bytes"])
    for name, column in (("used", "used_at"), ("sizes", "size_bytes")):
        op.create_index(f"models_{name}", "models", [column])


def _create_invocations() -> None:
    op.create_table(
        "invocations",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("tenant", sa.String(64), nullable=False),
        _job("compilation"),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        _lost_attempts(),
        sa.Column("inputs", sa.String(64), nullable=False),
        sa.Column("inputs_bytes", sa.BigInteger, nullable=False),
        sa.Column("runs", sa.Integer, nullable=False),
        sa.Column("needs", sa.Text),
        sa.Column("worker", sa.String(200)),
        sa.Column("incarnation", sa.String(32)),
        sa.Column("threads", sa.Integer),
        sa.Column("latency", sa.JSON),
        sa.Column("outputs", sa.JSON, nullable=False),
        sa.Column("artifact", sa.JSON),
        sa.Column("outputs_digest", sa.String(64)),
        sa.Column("outputs_bytes", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("problem", sa.JSON),
        sa.Column("cancel_requested", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("traceparent", sa.String(55)),
        _time("created_at", nullable=False),
        _time("enqueued_at"),
        _time("started_at"),
        _time("finished_at"),
        *_state_checks("invocations"),
    )
    op.create_index("invocations_newest", "invocations", ["compilation", "created_at", "id"])
    op.create_index("invocations_by_state", "invocations", ["state", "created_at"])
    op.create_index("invocations_inputs", "invocations", ["inputs", "tenant", "inputs_bytes"])
    op.create_index("invocations_outputs", "invocations", ["outputs_digest", "tenant", "outputs_bytes"])
    op.create_index("invocations_finished", "invocations", ["finished_at"])
    stored = ["tenant", "inputs", "inputs_bytes", "outputs_digest", "outputs_bytes"]
    op.create_index("invocations_stored", "invocations", stored)


def _create_workers() -> None:
    op.create_table(
        "workers",
        sa.Column("id", sa.String(200), primary_key=True),
        sa.Column("document", sa.JSON, nullable=False),
        _time("seen_at", nullable=False),
    )


def _create_worker_time() -> None:
    op.create_table(
        "worker_time",
        sa.Column("tenant", sa.String(64), primary_key=True),
        sa.Column("day", sa.Date, primary_key=True),
        sa.Column("seconds", sa.Float, nullable=False),
    )


def _create_keys() -> None:
    op.create_table(
        "keys",
        sa.Column("id", sa.String(12), primary_key=True),
        sa.Column("tenant", sa.String(64), nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("name", sa.String(128)),
        sa.Column("digest", sa.String(64), nullable=False),
        _time("created_at", nullable=False),
        _time("expires_at"),
        _time("revoked_at"),
        _time("last_used_at"),
    )


def _create_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        _time("at", nullable=False),
        sa.Column("subject", sa.String(200), nullable=False),
        sa.Column("tenant", sa.String(64)),
        sa.Column("action", sa.String(200), nullable=False),
        sa.Column("resource", sa.String(400), nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("request_id", sa.String(128)),
        sa.Column("address", sa.String(64)),
        sqlite_autoincrement=True,  # a number is never used twice
    )
    op.create_index("audit_at", "audit", ["at"])


def _create_secrets() -> None:
    op.create_table(
        "secrets",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("value", sa.LargeBinary, nullable=False),
    )


def _guard_moves(table: str) -> None:
    if op.get_bind().dialect.name == "sqlite":
        op.execute(
            f"CREATE TRIGGER {table}_moves BEFORE UPDATE OF state ON {table} "
            f"WHEN NOT {_MOVES} BEGIN SELECT RAISE(ABORT, 'no such move between states'); END"
        )
        return
    op.execute(
        f"CREATE FUNCTION bessemer_{table}_moves() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF NOT {_MOVES} THEN RAISE EXCEPTION 'no such move between states' "
        "USING ERRCODE = 'check_violation'; END IF; RETURN NEW; END $$"
    )
    op.execute(
        f"CREATE TRIGGER {table}_moves BEFORE UPDATE OF state ON {table} "
        f"FOR EACH ROW EXECUTE FUNCTION bessemer_{table}_moves()"
    )
