"""The columns that find records of similar functions, and the kind of device that a task needs."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tuning_records", sa.Column("kind_key", sa.String(64)))
    op.add_column("tuning_records", sa.Column("extents", sa.JSON(none_as_null=True)))
    op.create_index("tuning_records_by_kind", "tuning_records", ["kind_key", "created_at"])
    op.add_column("device_tasks", sa.Column("kind", sa.String(64)))
