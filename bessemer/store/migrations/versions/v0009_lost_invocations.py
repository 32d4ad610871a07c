"""How many attempts at an invocation were lost with their workers."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("invocations", sa.Column("lost_attempts", sa.Integer, nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("invocations", "lost_attempts")
