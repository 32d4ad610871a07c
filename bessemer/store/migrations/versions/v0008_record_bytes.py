"""Sizes of tuning records, when modules were last named, and revisions of keys instead of times."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("tuning_records", "tuning_workloads"):
        op.add_column(table, sa.Column("size_bytes", sa.Integer, nullable=False, server_default="0"))
    op.add_column("tuning_workloads", sa.Column("named_at", sa.DateTime(timezone=True)))
    op.execute(
        "UPDATE tuning_records SET size_bytes = length(trace) + length(arguments) + length(tvm_target)"
    )
    op.execute("UPDATE tuning_workloads SET size_bytes = length(packed)")
    op.create_index("tuning_records_bytes", "tuning_records", ["tenant", "size_bytes"])
    _count_revisions()


def _count_revisions() -> None:
    """Count revisions. Results that depend on records judged since then become outdated."""
    op.create_table(
        "tuning_keys",
        sa.Column("tenant", sa.String(64), primary_key=True),
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("revision", sa.Integer, nullable=False),
    )
    op.add_column("job_keys", sa.Column("revision", sa.Integer, nullable=False, server_default="0"))
    op.execute(
        "INSERT INTO tuning_keys (tenant, key, revision) "
        "SELECT DISTINCT tenant, key, 0 FROM tuning_records WHERE judged_at IS NOT NULL"
    )
    op.execute(
        "UPDATE job_keys SET revision = -1 WHERE EXISTS (SELECT 1 FROM tuning_records, jobs "
        "WHERE jobs.id = job_keys.job AND tuning_records.tenant = jobs.tenant "
        "AND tuning_records.key = job_keys.key AND tuning_records.judged_at > job_keys.read_at)"
    )
    op.drop_column("job_keys", "read_at")
    op.drop_column("tuning_records", "judged_at")
