"""What identifies a compilation's result, and whether it answers a later request."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("cached", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("jobs", sa.Column("original", sa.String(64)))
    op.add_column("jobs", sa.Column("identity", sa.String(64)))
    op.create_index("jobs_newest_by_identity", "jobs", ["tenant", "identity", "created_at", "id"])
