"""Devices and their tasks."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create_devices()
    _create_device_tasks()


def _create_devices() -> None:
    op.create_table(
        "devices",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("tenant", sa.String(64), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("shared", sa.Boolean, nullable=False),
        sa.Column("document", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("registered_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.UniqueConstraint("tenant", "name", name="devices_once"),
    )


def _create_device_tasks() -> None:
    op.create_table(
        "device_tasks",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("job", sa.String(64), sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("incarnation", sa.String(32), nullable=False),
        sa.Column("tenant", sa.String(64), nullable=False),
        sa.Column("platform", sa.String(64), nullable=False),
        sa.Column("device_name", sa.String(64)),
        sa.Column("features", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("document", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
        sa.Column("lost_attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("device", sa.String(32)),
        sa.Column("device_document", sa.JSON(none_as_null=True)),
        sa.Column("unfit", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("result", sa.JSON(none_as_null=True)),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("renewed_at", sa.DateTime(timezone=True)),
    )
    op.create_index("device_tasks_waiting", "device_tasks", ["state", "platform", "created_at"])
    op.create_index("device_tasks_of_device", "device_tasks", ["device"])
    op.create_index("device_tasks_of_job", "device_tasks", ["job"])
