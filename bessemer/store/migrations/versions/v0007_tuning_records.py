"""Tuning records, the trials of running jobs, and the request to keep the best so far."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("keep_best", sa.Boolean, nullable=False, server_default=sa.false()))
    _create_records()
    _create_tables_of_jobs()


def _create_records() -> None:
    op.create_table(
        "tuning_workloads",
        sa.Column("tenant", sa.String(64), primary_key=True),
        sa.Column("workload", sa.String(20), primary_key=True),
        sa.Column("packed", sa.Text, nullable=False),
    )
    op.create_table(
        "tuning_records",
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
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("judged_at", sa.DateTime(timezone=True)),
        sa.UniqueConstraint("tenant", "key", "trace_digest", name="tuning_records_once"),
    )
    op.create_index("tuning_records_by_key", "tuning_records", ["key", "tenant"])
    op.create_index("tuning_records_newest", "tuning_records", ["tenant", "created_at", "id"])
    op.create_index("tuning_records_by_workload", "tuning_records", ["tenant", "workload"])
    op.create_index("tuning_records_age", "tuning_records", ["created_at"])


def _create_tables_of_jobs() -> None:
    op.create_table(
        "job_trials",
        sa.Column("job", sa.String(64), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("elapsed_seconds", sa.Float, nullable=False),
        sa.Column("document", sa.JSON(none_as_null=True), nullable=False),
    )
    op.create_table(
        "job_keys",
        sa.Column("job", sa.String(64), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("read_at", sa.DateTime(timezone=True), nullable=False),
    )
