"""Invocations of compiled libraries."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_MOVES = """(
    OLD.state = NEW.state
    OR (OLD.state = 'queued' AND NEW.state IN ('running', 'failed'))
    OR (OLD.state = 'running' AND NEW.state IN ('succeeded', 'failed'))
)"""


def upgrade() -> None:
    _create_invocations()
    _guard_moves()


def _moment(name: str, nullable: bool = True) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)


def _job(name: str, primary_key: bool = False) -> sa.Column[object]:
    reference = sa.ForeignKey("jobs.id", ondelete="CASCADE")
    return sa.Column(name, sa.String(64), reference, primary_key=primary_key, nullable=False)


def _create_invocations() -> None:
    op.create_table(
        "invocations",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("tenant", sa.String(64), nullable=False),
        _job("compilation"),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("inputs", sa.String(64), nullable=False),
        sa.Column("inputs_bytes", sa.BigInteger, nullable=False),
        sa.Column("runs", sa.Integer, nullable=False),
        sa.Column("needs", sa.Text),
        sa.Column("worker", sa.String(200)),
        sa.Column("threads", sa.Integer),
        sa.Column("latency", sa.JSON),
        sa.Column("outputs", sa.JSON, nullable=False),
        sa.Column("artifact", sa.JSON),
        sa.Column("outputs_digest", sa.String(64)),
        sa.Column("problem", sa.JSON),
        _moment("created_at", nullable=False),
        _moment("enqueued_at"),
        _moment("started_at"),
        _moment("finished_at"),
        sa.CheckConstraint("state IN ('queued', 'running', 'succeeded', 'failed')", name="invocations_state"),
        sa.CheckConstraint(
            "(state IN ('succeeded', 'failed')) = (finished_at IS NOT NULL)", name="invocations_finished"
        ),
    )
    op.create_index("invocations_newest", "invocations", ["compilation", "created_at", "id"])
    op.create_index("invocations_by_state", "invocations", ["state", "created_at"])
    op.create_index("invocations_inputs", "invocations", ["inputs"])
    op.create_index("invocations_outputs", "invocations", ["outputs_digest"])


def _guard_moves() -> None:
    if op.get_bind().dialect.name == "sqlite":
        op.execute(
            "CREATE TRIGGER invocations_moves BEFORE UPDATE OF state ON invocations "
            f"WHEN NOT {_MOVES} BEGIN SELECT RAISE(ABORT, 'no such move between states'); END"
        )
        return
    op.execute(
        "CREATE FUNCTION bessemer_invocations_moves() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF NOT {_MOVES} THEN RAISE EXCEPTION 'no such move between states' "
        "USING ERRCODE = 'check_violation'; END IF; RETURN NEW; END $$"
    )
    op.execute(
        "CREATE TRIGGER invocations_moves BEFORE UPDATE OF state ON invocations "
        "FOR EACH ROW EXECUTE FUNCTION bessemer_invocations_moves()"
    )


def downgrade() -> None:
    op.drop_table("invocations")
    if op.get_bind().dialect.name != "sqlite":
        op.execute("DROP FUNCTION bessemer_invocations_moves()")
