"""Random secrets of the service, which its processes share through the database."""

import secrets

import sqlalchemy as sa

from bessemer.store.database import Database
from bessemer.store.rows.tables import SECRETS

SECRET_BYTES = 32


def shared_secret(database: Database, name: str) -> bytes:
    """A random secret of ``SECRET_BYTES``; the first process that asks for a name creates it.

    Raises:
        StoreUnavailableError: the database is unreachable.
    """
    query = sa.select(SECRETS.c.value).where(SECRETS.c.name == name)
    with database.read() as connection:
        known: bytes | None = connection.execute(query).scalar_one_or_none()
    if known is not None:
        return known
    try:
        with database.write() as connection:
            value = secrets.token_bytes(SECRET_BYTES)
            connection.execute(sa.insert(SECRETS).values(name=name, value=value))
    except sa.exc.IntegrityError:  # another process was faster
        return shared_secret(database, name)
    return value
