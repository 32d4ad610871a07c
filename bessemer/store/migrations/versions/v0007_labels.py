"""Labels of jobs, and the target that they are listed by."""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_JOBS = sa.table(
    "jobs", sa.column("id", sa.String), sa.column("target_name", sa.String), sa.column("request", sa.JSON)
)


def upgrade() -> None:
    op.add_column("jobs", sa.Column("target_name", sa.String(64), nullable=False, server_default=""))
    op.create_table(
        "labels",
        sa.Column("job", sa.String(64), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("key", sa.String(63), primary_key=True),
        sa.Column("value", sa.String(128), nullable=False),
    )
    _fill()
    op.create_index("labels_found", "labels", ["key", "value", "job"])
    op.create_index("jobs_newest_by_target", "jobs", ["target_name", "created_at", "id"])


def _fill() -> None:
    connection = op.get_bind()
    for row in connection.execute(sa.select(_JOBS.c.id, _JOBS.c.request)).all():
        target = _read(row.request)["target"]
        name = target.get("preset") or target["mcpu"]
        connection.execute(sa.update(_JOBS).where(_JOBS.c.id == row.id).values(target_name=name))


def _read(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def downgrade() -> None:
    op.drop_index("jobs_newest_by_target", "jobs")
    op.drop_table("labels")
    op.drop_column("jobs", "target_name")
