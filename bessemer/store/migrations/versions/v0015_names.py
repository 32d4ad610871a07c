"""Names of models and compilations. Existing rows have none."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("models", sa.Column("name", sa.String(128)))
    op.add_column("jobs", sa.Column("name", sa.String(128)))
    op.create_index("jobs_newest_by_name", "jobs", ["name", "created_at", "id"])


def downgrade() -> None:
    op.drop_index("jobs_newest_by_name", "jobs")
    op.drop_column("jobs", "name")
    op.drop_column("models", "name")
