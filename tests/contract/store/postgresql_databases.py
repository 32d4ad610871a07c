"""Databases of a private PostgreSQL server."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import sqlalchemy as sa

URL_VARIABLE = "TEST_POSTGRESQL_URL"
"""A server whose user may make databases; without it, one is started."""


@dataclass(frozen=True)
class Databases:
    """Makes databases on a server; ``delete_all`` deletes every one that it made."""

    server: sa.URL
    prefix: str = field(default_factory=lambda: f"bessemer_test_{uuid.uuid4().hex[:8]}_")

    def new(self, options: str = "") -> str:
        """The address of a new database, made with these options of CREATE DATABASE."""
        name = f"{self.prefix}{uuid.uuid4().hex[:16]}"
        with self.connection() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name} {options}")
        return self.server.set(database=name).render_as_string(hide_password=False)

    def delete_all(self) -> None:
        """Delete the databases, even while clients are connected."""
        made = sa.text("SELECT datname FROM pg_database WHERE starts_with(datname, :prefix)")
        with self.connection() as connection:
            for name in connection.execute(made, {"prefix": self.prefix}).scalars().all():
                connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")

    @contextmanager
    def connection(self) -> Iterator[sa.Connection]:
        """A connection to the server's own database, outside any transaction."""
        engine = sa.create_engine(
            self.server.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT"
        )
        with engine.connect() as connection:
            yield connection
        engine.dispose()
