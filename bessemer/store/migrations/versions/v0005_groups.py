"""The groups of compilations for several targets."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("group", sa.String(64)))
    op.add_column("jobs", sa.Column("group_index", sa.Integer))
    op.add_column("jobs", sa.Column("group_size", sa.Integer))
    op.create_index("jobs_by_group", "jobs", ["group", "group_index"])
