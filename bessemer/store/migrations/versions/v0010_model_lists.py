"""Models, newest first."""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("models_newest", "models", ["tenant", "created_at", "digest"])


def downgrade() -> None:
    op.drop_index("models_newest", "models")
