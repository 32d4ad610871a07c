"""How many attempts were lost with their workers, of jobs and of inspections."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("jobs", "models"):
        op.add_column(table, sa.Column("lost_attempts", sa.Integer, nullable=False, server_default="0"))
    op.add_column("models", sa.Column("inspector", sa.String(200)))


def downgrade() -> None:
    op.drop_column("models", "inspector")
    for table in ("models", "jobs"):
        op.drop_column(table, "lost_attempts")
