"""Uploaded extensions."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "extensions",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("tenant", sa.String(64), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("name", sa.String(128)),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True)),
        sa.UniqueConstraint("tenant", "digest", name="extensions_once"),
    )
    op.create_index("extensions_newest", "extensions", ["tenant", "created_at", "digest"])
    op.create_index("extensions_used", "extensions", ["used_at"])
    op.create_index("extensions_digest", "extensions", ["digest", "tenant"])
    op.create_index("extensions_stored", "extensions", ["tenant", "digest", "size_bytes"])
