"""Sizes of what jobs keep, for metrics; the trace of the request that submitted a job."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0001"
branch_labels = None
depends_on = None

_JOBS = sa.table(
    "jobs",
    sa.column("id", sa.String),
    sa.column("artifacts", sa.JSON),
    sa.column("artifact_count", sa.Integer),
    sa.column("artifact_bytes", sa.BigInteger),
)


def upgrade() -> None:
    op.add_column("jobs", sa.Column("artifact_count", sa.Integer, nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("artifact_bytes", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("traceparent", sa.String(55)))
    _count_what_is_kept()
    op.create_index("jobs_artifact_sizes", "jobs", ["artifact_count", "artifact_bytes"])


def _count_what_is_kept() -> None:
    connection = op.get_bind()
    for job_id, artifacts in connection.execute(sa.select(_JOBS.c.id, _JOBS.c.artifacts)).all():
        if artifacts:
            sizes = [artifact["size_bytes"] for artifact in artifacts]
            connection.execute(
                sa.update(_JOBS)
                .where(_JOBS.c.id == job_id)
                .values(artifact_count=len(sizes), artifact_bytes=sum(sizes))
            )


def downgrade() -> None:
    op.drop_index("jobs_artifact_sizes", "jobs")
    for column in ("traceparent", "artifact_bytes", "artifact_count"):
        op.drop_column("jobs", column)
