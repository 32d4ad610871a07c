"""Refuses to start an app that other machines can reach before anyone has a key."""

from app.identity.addresses import is_loopback
from app.identity.oidc import read_policy
from app.settings import AppSettings, AuthMode
from bessemer.store.database import Database
from bessemer.store.migrate import migrate
from bessemer.store.rows.keys import Keys, split


class OpenServiceError(Exception):
    """Other machines can reach the service but no caller has a key, or the administrator's key is invalid."""


def require_access_control(settings: AppSettings) -> None:
    """Check that the settings say who may call the service.

    Raises:
        OpenServiceError: other machines can reach it and no caller has a key, or the administrator's key has
            the wrong form.
        PolicyError: the OpenID Connect policy cannot be used.
        StoreUnavailableError: the database is unavailable.
    """
    if settings.oidc_policy is not None:
        read_policy(settings.oidc_policy)
    if settings.admin_key is not None and split(settings.admin_key.get_secret_value()) is None:
        raise OpenServiceError(
            "BESSEMER_ADMIN_KEY does not have the form bsm_ID_SECRET, with 12 hexadecimal digits and at "
            "least 32 letters, digits, '-' or '_'"
        )
    is_open = settings.auth is AuthMode.AUTO and not is_loopback(settings.host)
    if not is_open or settings.admin_key is not None or settings.oidc_policy is not None:
        return
    if not _has_key(settings):
        raise OpenServiceError(
            f"other machines can reach {settings.host}, but the service has no API key. Create one with "
            f"`bessemer keys create --scope admin --data {settings.data}`, or set BESSEMER_AUTH=off to "
            "serve everyone"
        )


def _has_key(settings: AppSettings) -> bool:
    database = Database(settings.database)
    try:
        migrate(database)
        return Keys(database).any_valid()
    finally:
        database.close()
