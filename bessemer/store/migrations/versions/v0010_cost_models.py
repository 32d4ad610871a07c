"""What searches measured of plans, and the cost models that learned from it."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "measured_plans",
        sa.Column("tenant", sa.String(64), primary_key=True),
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("features_version", sa.String(20), primary_key=True),
        sa.Column("plans", sa.Integer, nullable=False),
        sa.Column("packed", sa.LargeBinary, nullable=False),
        sa.Column("measured_at", sa.DateTime(timezone=True), nullable=False),
    )
    columns = ["tenant", "features_version", "measured_at"]
    op.create_index("measured_plans_newest", "measured_plans", columns)
    op.create_table(
        "cost_models",
        sa.Column("tenant", sa.String(64), primary_key=True),
        sa.Column("features_version", sa.String(20), primary_key=True),
        sa.Column("document", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("model", sa.LargeBinary, nullable=False),
        sa.Column("learned_until", sa.DateTime(timezone=True), nullable=False),
    )
