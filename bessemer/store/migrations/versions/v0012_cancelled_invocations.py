"""Invocations can be cancelled, and know the trace that they belong to."""

from collections.abc import Iterable

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_STATES = ("queued", "running", "succeeded", "failed")


def upgrade() -> None:
    op.add_column(
        "invocations", sa.Column("cancel_requested", sa.Boolean, nullable=False, server_default=sa.false())
    )
    op.add_column("invocations", sa.Column("traceparent", sa.String(55)))
    _allow((*_STATES, "cancelled"))


def _allow(states: tuple[str, ...]) -> None:
    """Let invocations have these states, of which all but the first two are final."""
    _check_states(states)
    _guard_moves(_moves(states))


def _check_states(states: tuple[str, ...]) -> None:
    constraints = {
        "invocations_state": f"state IN {_listed(states)}",
        "invocations_finished": f"(state IN {_listed(states[2:])}) = (finished_at IS NOT NULL)",
    }
    with op.batch_alter_table("invocations") as table:
        for name, text in constraints.items():
            table.drop_constraint(name, type_="check")
            table.create_check_constraint(name, text)


def _moves(states: tuple[str, ...]) -> str:
    final = states[2:]
    ended_early = _listed(state for state in final if state != "succeeded")
    return (
        "(OLD.state = NEW.state"
        f" OR (OLD.state = 'queued' AND (NEW.state = 'running' OR NEW.state IN {ended_early}))"
        f" OR (OLD.state = 'running' AND NEW.state IN {_listed(final)}))"
    )


def _guard_moves(moves: str) -> None:
    if op.get_bind().dialect.name == "sqlite":  # the table is another one now, without the trigger
        op.execute(
            "CREATE TRIGGER invocations_moves BEFORE UPDATE OF state ON invocations "
            f"WHEN NOT {moves} BEGIN SELECT RAISE(ABORT, 'no such move between states'); END"
        )
        return
    op.execute(
        "CREATE OR REPLACE FUNCTION bessemer_invocations_moves() RETURNS trigger LANGUAGE plpgsql "
        f"AS $$ BEGIN IF NOT {moves} THEN RAISE EXCEPTION 'no such move between states' "
        "USING ERRCODE = 'check_violation'; END IF; RETURN NEW; END $$"
    )


def _listed(states: Iterable[str]) -> str:
    return "(" + ", ".join(f"'{state}'" for state in states) + ")"


def downgrade() -> None:
    op.execute("DELETE FROM invocations WHERE state = 'cancelled'")
    _allow(_STATES)
    op.drop_column("invocations", "traceparent")
    op.drop_column("invocations", "cancel_requested")
