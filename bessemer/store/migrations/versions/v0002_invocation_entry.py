"""The entry point that an invocation runs."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("invocations", sa.Column("entry", sa.String(64)))
