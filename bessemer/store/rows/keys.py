"""API keys: ``bsm_<id>_<secret>``.

The database has the SHA-256 of each secret. A slow hash would add nothing: it protects secrets that can be
guessed, and these have 256 random bits.
"""

import hashlib
import hmac
import re
import secrets
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from bessemer.contract.base import now
from bessemer.contract.keys import ApiKey, KeyRequest, NewApiKey
from bessemer.store.database import Database
from bessemer.store.rows.tables import KEYS

PREFIX = "bsm"
_FORM = re.compile(r"bsm_([0-9a-f]{12})_([0-9A-Za-z_-]{32,128})")
_SHOWN = tuple(KEYS.c[name] for name in ApiKey.model_fields)


class Keys:
    """Each method is one transaction and raises ``StoreUnavailableError`` if the database is unreachable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, request: KeyRequest) -> NewApiKey:
        """Create a key with a new secret."""
        with self._database.write() as connection:
            return _insert(connection, request, _lifetime(request))

    def ensure(self, text: str, request: KeyRequest) -> None:
        """Insert a key that the operator chose, and revoke the ones of the same name that it replaces.

        Raises:
            ValueError: the text does not have the form of a key.
        """
        parts = split(text)
        if parts is None:
            raise ValueError("a key has the form bsm_ID_SECRET, with 12 hexadecimal digits and 32 characters")
        key_id, secret = parts
        others = sa.and_(KEYS.c.name == request.name, KEYS.c.id != key_id, KEYS.c.revoked_at.is_(None))
        with self._database.write() as connection:
            self._database.lock_table(connection, KEYS)  # another app may start at the same time
            connection.execute(sa.update(KEYS).where(others).values(revoked_at=now()))
            values = _values(key_id, secret, request, _lifetime(request))
            same = sa.update(KEYS).where(KEYS.c.id == key_id).values(digest=values["digest"], revoked_at=None)
            if connection.execute(same).rowcount == 0:
                connection.execute(sa.insert(KEYS).values(values))

    def get(self, key_id: str) -> ApiKey | None:
        """A key; None if it does not exist."""
        with self._database.read() as connection:
            row = connection.execute(sa.select(*_SHOWN).where(KEYS.c.id == key_id)).one_or_none()
        return None if row is None else ApiKey.read(dict(row._mapping))

    def list(self) -> tuple[ApiKey, ...]:
        """Every key, newest first."""
        with self._database.read() as connection:
            rows = connection.execute(sa.select(*_SHOWN).order_by(KEYS.c.created_at.desc(), KEYS.c.id)).all()
        return tuple(ApiKey.read(dict(row._mapping)) for row in rows)

    def revoke(self, key_id: str) -> bool:
        """Make a key invalid; returns False if it was revoked before."""
        with self._database.write() as connection:
            return _revoke(connection, key_id)

    def rotate(self, key_id: str) -> NewApiKey | None:
        """Create a key like another, and revoke that one; None if it is not valid."""
        old = self.get(key_id)
        if old is None or not is_valid(old, now()):
            return None
        request = KeyRequest(tenant=old.tenant, scope=old.scope, name=old.name)
        lifetime = None if old.expires_at is None else old.expires_at - old.created_at
        with self._database.write() as connection:
            return _insert(connection, request, lifetime) if _revoke(connection, key_id) else None

    def find(self, text: str) -> ApiKey | None:
        """The key with this text, valid or not; None if there is none, or if its secret is wrong."""
        parts = split(text)
        if parts is None:
            return None
        key_id, secret = parts
        query = sa.select(*_SHOWN, KEYS.c.digest).where(KEYS.c.id == key_id)
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        known = row.digest if row is not None else digest_of("")
        is_right = hmac.compare_digest(digest_of(secret), known)
        return ApiKey.read(dict(row._mapping)) if row is not None and is_right else None

    def used(self, key_id: str) -> None:
        """Note that a key was used now."""
        with self._database.write() as connection:
            connection.execute(sa.update(KEYS).where(KEYS.c.id == key_id).values(last_used_at=now()))

    def any_exist(self) -> bool:
        """Whether any key was ever created: then revoking the last one does not open the service."""
        with self._database.read() as connection:
            return connection.execute(sa.select(KEYS.c.id).limit(1)).first() is not None

    def any_valid(self) -> bool:
        """Whether any key is valid."""
        current = sa.or_(KEYS.c.expires_at.is_(None), KEYS.c.expires_at > now())
        query = sa.select(KEYS.c.id).where(KEYS.c.revoked_at.is_(None), current).limit(1)
        with self._database.read() as connection:
            return connection.execute(query).first() is not None


def split(text: str) -> tuple[str, str] | None:
    """A key's id and secret; None if the text does not have the form of a key."""
    found = _FORM.fullmatch(text)
    return None if found is None else (found[1], found[2])


def digest_of(secret: str) -> str:
    """The digest that the database stores instead of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def is_valid(key: ApiKey, at: datetime) -> bool:
    """Whether a key is neither revoked nor expired."""
    return key.revoked_at is None and (key.expires_at is None or key.expires_at > at)


def _lifetime(request: KeyRequest) -> timedelta | None:
    return None if request.expires_days is None else timedelta(days=request.expires_days)


def _insert(connection: sa.Connection, request: KeyRequest, lifetime: timedelta | None) -> NewApiKey:
    key_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    values = _values(key_id, secret, request, lifetime)
    connection.execute(sa.insert(KEYS).values(values))
    row = connection.execute(sa.select(*_SHOWN).where(KEYS.c.id == key_id)).one()
    return NewApiKey.read({**row._mapping, "key": f"{PREFIX}_{key_id}_{secret}"})


def _revoke(connection: sa.Connection, key_id: str) -> bool:
    valid = sa.and_(KEYS.c.id == key_id, KEYS.c.revoked_at.is_(None))
    return connection.execute(sa.update(KEYS).where(valid).values(revoked_at=now())).rowcount > 0


def _values(key_id: str, secret: str, request: KeyRequest, lifetime: timedelta | None) -> dict[str, Any]:
    moment = now()
    return {
        "id": key_id,
        "tenant": request.tenant,
        "scope": request.scope.value,
        "name": request.name,
        "digest": digest_of(secret),
        "created_at": moment,
        "expires_at": None if lifetime is None else moment + lifetime,
    }
