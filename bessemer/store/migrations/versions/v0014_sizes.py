"""The size of every file that a row refers to, so that a file of several rows is counted once.

What jobs had of this stays, unread: workers of the last release write it until they are stopped.
"""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_JOBS = sa.table("jobs", sa.column("id", sa.String), sa.column("artifacts", sa.JSON))
_JOB_BLOBS = sa.table(
    "job_blobs",
    sa.column("job", sa.String),
    sa.column("digest", sa.String),
    sa.column("size_bytes", sa.BigInteger),
)
_INVOCATIONS = sa.table(
    "invocations",
    sa.column("id", sa.String),
    sa.column("artifact", sa.JSON),
    sa.column("outputs_bytes", sa.BigInteger),
)
_INDEXES = (
    ("job_blobs_digest", "job_blobs", "digest", "size_bytes"),
    ("invocations_inputs", "invocations", "inputs", "inputs_bytes"),
    ("invocations_outputs", "invocations", "outputs_digest", "outputs_bytes"),
)


def upgrade() -> None:
    op.add_column("job_blobs", sa.Column("size_bytes", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column(
        "invocations", sa.Column("outputs_bytes", sa.BigInteger, nullable=False, server_default="0")
    )
    _fill()
    op.drop_index("jobs_artifact_sizes", "jobs")
    for name, table, digest, size in _INDEXES:
        op.drop_index(name, table)
        op.create_index(name, table, [digest, size])


def _fill() -> None:
    connection = op.get_bind()
    of_jobs = [
        {"of": row.id, "file": artifact["digest"], "size": artifact["size_bytes"]}
        for row in connection.execute(sa.select(_JOBS.c.id, _JOBS.c.artifacts))
        for artifact in _read(row.artifacts)
    ]
    named = sa.and_(_JOB_BLOBS.c.job == sa.bindparam("of"), _JOB_BLOBS.c.digest == sa.bindparam("file"))
    _update_all(sa.update(_JOB_BLOBS).where(named).values(size_bytes=sa.bindparam("size")), of_jobs)
    ended = sa.select(_INVOCATIONS.c.id, _INVOCATIONS.c.artifact).where(_INVOCATIONS.c.artifact.is_not(None))
    of_invocations = [
        {"of": row.id, "size": (_read(row.artifact) or {"size_bytes": 0})["size_bytes"]}
        for row in connection.execute(ended)
    ]
    same = _INVOCATIONS.c.id == sa.bindparam("of")
    _update_all(
        sa.update(_INVOCATIONS).where(same).values(outputs_bytes=sa.bindparam("size")), of_invocations
    )


def _update_all(statement: sa.Update, rows: list[dict[str, Any]]) -> None:
    if rows:
        op.get_bind().execute(statement, rows)


def _read(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def downgrade() -> None:
    for name, table, digest, _ in _INDEXES:
        op.drop_index(name, table)
        op.create_index(name, table, [digest])
    op.create_index("jobs_artifact_sizes", "jobs", ["artifact_count", "artifact_bytes"])
    op.drop_column("invocations", "outputs_bytes")
    op.drop_column("job_blobs", "size_bytes")
