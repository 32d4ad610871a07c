"""Indexes for what is done every hour and counted at every look: no table is read from end to end."""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_INDEXES = (
    ("invocations_finished", "invocations", "finished_at"),
    ("models_digest", "models", "digest"),
    ("models_sizes", "models", "size_bytes"),
)


def upgrade() -> None:
    for name, table, column in _INDEXES:
        op.create_index(name, table, [column])


def downgrade() -> None:
    for name, table, _ in _INDEXES:
        op.drop_index(name, table)
