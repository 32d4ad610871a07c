"""Since when a model waits for an inspection that is not its first; the first is asked for with its row."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        # what this and the next revision change, in the order in which a running service locks it
        op.execute("LOCK TABLE jobs, models, job_blobs, invocations IN ACCESS EXCLUSIVE MODE")
    op.add_column("models", sa.Column("waits_since", sa.DateTime(timezone=True)))


def downgrade() -> None:
    op.drop_column("models", "waits_since")
