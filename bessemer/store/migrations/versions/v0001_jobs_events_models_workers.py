"""Jobs with their events, models, workers."""

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


def upgrade() -> None:
    _create_jobs()
    _create_events()
    _create_models()
    _create_workers()
    _guard_moves()


def _moment(name: str, nullable: bool = True) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("tenant", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("last_seq", sa.Integer, nullable=False),
        sa.Column("request", sa.JSON, nullable=False),
        sa.Column("worker", sa.String(200)),
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
        _moment("created_at", nullable=False),
        _moment("enqueued_at"),
        _moment("started_at"),
        _moment("finished_at"),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')", name="jobs_state"
        ),
        sa.CheckConstraint("attempt >= 0", name="jobs_attempt"),
        sa.CheckConstraint(
            "(state IN ('succeeded', 'failed', 'cancelled')) = (finished_at IS NOT NULL)",
            name="jobs_finished",
        ),
    )
    op.create_index("jobs_newest", "jobs", ["created_at", "id"])
    op.create_index("jobs_newest_by_state", "jobs", ["state", "created_at", "id"])


def _create_events() -> None:
    op.create_table(
        "events",
        sa.Column("job", sa.String(64), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("type", sa.String(32), nullable=False),
        _moment("at", nullable=False),
        sa.Column("data", sa.JSON, nullable=False),
        sa.CheckConstraint("seq >= 1", name="events_seq"),
    )


def _create_models() -> None:
    op.create_table(
        "models",
        sa.Column("tenant", sa.String(64), primary_key=True),
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("inspection", sa.JSON),
        sa.Column("problem", sa.JSON),
        _moment("created_at", nullable=False),
        _moment("enqueued_at"),
        sa.CheckConstraint("state IN ('inspecting', 'ready', 'rejected')", name="models_state"),
        sa.CheckConstraint("(state = 'ready') = (inspection IS NOT NULL)", name="models_inspection"),
        sa.CheckConstraint("(state = 'rejected') = (problem IS NOT NULL)", name="models_problem"),
    )
    op.create_index("models_by_state", "models", ["state", "created_at"])


def _create_workers() -> None:
    op.create_table(
        "workers",
        sa.Column("id", sa.String(200), primary_key=True),
        sa.Column("document", sa.JSON, nullable=False),
        _moment("seen_at", nullable=False),
    )


def _guard_moves() -> None:
    if op.get_bind().dialect.name == "sqlite":
        op.execute(
            "CREATE TRIGGER jobs_moves BEFORE UPDATE OF state ON jobs "
            f"WHEN NOT {_MOVES} BEGIN SELECT RAISE(ABORT, 'no such move between states'); END"
        )
        return
    op.execute(
        "CREATE FUNCTION bessemer_jobs_moves() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF NOT {_MOVES} THEN RAISE EXCEPTION 'no such move between states' "
        "USING ERRCODE = 'check_violation'; END IF; RETURN NEW; END $$"
    )
    op.execute(
        "CREATE TRIGGER jobs_moves BEFORE UPDATE OF state ON jobs "
        "FOR EACH ROW EXECUTE FUNCTION bessemer_jobs_moves()"
    )


def downgrade() -> None:
    op.execute(
        "DROP TRIGGER jobs_moves"
        if op.get_bind().dialect.name == "sqlite"
        else "DROP TRIGGER jobs_moves ON jobs"
    )
    for table in ("workers", "models", "events", "jobs"):
        op.drop_table(table)
    if op.get_bind().dialect.name != "sqlite":
        op.execute("DROP FUNCTION bessemer_jobs_moves()")
