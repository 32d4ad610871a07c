"""Which blobs a job refers to, which model it needs, and when a model was last used."""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_JOBS = sa.table(
    "jobs",
    sa.column("id", sa.String),
    sa.column("model", sa.String),
    sa.column("request", sa.JSON),
    sa.column("artifacts", sa.JSON),
)
_JOB_BLOBS = sa.table("job_blobs", sa.column("job", sa.String), sa.column("digest", sa.String))


def upgrade() -> None:
    op.add_column("jobs", sa.Column("model", sa.String(64), nullable=False, server_default=""))
    op.add_column("models", sa.Column("used_at", sa.DateTime(timezone=True)))
    op.create_table(
        "job_blobs",
        sa.Column("job", sa.String(64), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("digest", sa.String(64), primary_key=True),
    )
    _fill()
    op.create_index("job_blobs_digest", "job_blobs", ["digest"])
    op.create_index("jobs_newest_by_model", "jobs", ["model", "created_at", "id"])
    op.create_index("jobs_finished", "jobs", ["finished_at"])
    op.create_index("models_used", "models", ["used_at"])


def _fill() -> None:
    connection = op.get_bind()
    connection.execute(sa.text("UPDATE models SET used_at = created_at"))
    for row in connection.execute(sa.select(_JOBS.c.id, _JOBS.c.request, _JOBS.c.artifacts)).all():
        digests = {artifact["digest"] for artifact in _read(row.artifacts)}
        connection.execute(
            sa.update(_JOBS).where(_JOBS.c.id == row.id).values(model=_read(row.request)["model"])
        )
        for digest in digests:
            connection.execute(sa.insert(_JOB_BLOBS).values(job=row.id, digest=digest))


def _read(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def downgrade() -> None:
    for index, table in (
        ("models_used", "models"),
        ("jobs_finished", "jobs"),
        ("jobs_newest_by_model", "jobs"),
    ):
        op.drop_index(index, table)
    op.drop_table("job_blobs")
    op.drop_column("models", "used_at")
    op.drop_column("jobs", "model")
