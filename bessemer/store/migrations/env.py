"""Alembic's entry point, on the connection and in the transaction of ``bessemer.store.migrate``."""

from alembic import context

from bessemer.store.rows.tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
with context.begin_transaction():
    context.run_migrations()
