"""Since when a model waits for an inspection that is not its first; the first is asked for with its row."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("models", sa.Column("waits_since", sa.DateTime(timezone=True)))


def downgrade() -> None:
    op.drop_column("models", "waits_since")
