"""What a job's row says of its place in a queue: kind, priority, needs."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0004"
branch_labels = None
depends_on = None

_WAITING = sa.text("state = 'queued'")
_ENDED = sa.text("state IN ('succeeded', 'failed')")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("kind", sa.String(16), nullable=False, server_default="compile"))
    op.add_column("jobs", sa.Column("priority", sa.Integer, nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("needs", sa.Text))
    _tell_preflights()
    op.create_index(
        "jobs_waiting",
        "jobs",
        ["kind", "priority", "created_at", "id", "needs"],
        sqlite_where=_WAITING,
        postgresql_where=_WAITING,
    )
    op.create_index(
        "jobs_ended", "jobs", ["kind", "finished_at"], sqlite_where=_ENDED, postgresql_where=_ENDED
    )


def _tell_preflights() -> None:
    """Jobs from before keep the queue that they wait in; none of them was routed."""
    jobs = sa.table("jobs", sa.column("id"), sa.column("kind"), sa.column("request", sa.JSON))
    connection = op.get_bind()
    rows = connection.execute(sa.select(jobs.c.id, jobs.c.request)).all()
    quick = [row.id for row in rows if row.request.get("stop_after") in ("capture", "translate")]
    for job_id in quick:
        connection.execute(sa.update(jobs).where(jobs.c.id == job_id).values(kind="preflight"))


def downgrade() -> None:
    for index in ("jobs_ended", "jobs_waiting"):
        op.drop_index(index, "jobs")
    for column in ("needs", "priority", "kind"):
        op.drop_column("jobs", column)
