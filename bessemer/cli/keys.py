"""``bessemer keys``: create, list, revoke and rotate API keys, straight in the database."""

import getpass
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError

from bessemer.cli.output import JsonOption, errors, print_json, print_lines, print_result, reporting, table
from bessemer.contract.access import DEFAULT_TENANT, Scope
from bessemer.contract.base import now
from bessemer.contract.error_words import validation_message
from bessemer.contract.keys import ApiKey, KeyList, KeyRequest, NewApiKey
from bessemer.errors import BessemerError, InvalidArgumentError

if TYPE_CHECKING:
    from bessemer.store.rows.audit import Audit
    from bessemer.store.rows.keys import Keys

HEADINGS = ("id", "tenant", "scope", "name", "created", "expires", "last used", "state")

keys = typer.Typer(
    help="Manage API keys in the database. Needs the server's packages, but no running server.",
    no_args_is_help=True,
)

DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        file_okay=False,
        help="The directory of `bessemer serve --data`. By default BESSEMER_DATABASE_URL, BESSEMER_DATA, or "
        "bessemer-data.",
    ),
]
KeyArgument = Annotated[str, typer.Argument(metavar="ID", help="The key's id, or the key.")]


@keys.command("create")
def create(
    tenant: Annotated[
        str, typer.Option(metavar="NAME", help="Tenant whose data the key reads and writes.")
    ] = DEFAULT_TENANT,
    scope: Annotated[Scope, typer.Option(help="What the key allows.")] = Scope.COMPILE,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Name to recognize the key by.")] = None,
    expires_days: Annotated[
        int | None, typer.Option(min=1, metavar="DAYS", help="Days until the key expires.")
    ] = None,
    data: DataOption = None,
    json: JsonOption = False,
) -> None:
    """Create a key, and print it. It is never shown again."""
    with reporting():
        request = _request(tenant, scope, name, expires_days)
        with _database(data, says_new=True) as (stored, audit):
            is_first = not stored.any_exist()
            created = stored.create(request)
            _record(audit, "create", created)
        _show(created, json)
        if is_first:
            print_lines(errors, _note_of_first(created))


@keys.command("list")
def list_keys(data: DataOption = None, json: JsonOption = False) -> None:
    """List all keys, without their secrets."""
    with reporting(), _database(data, must_exist=True) as (stored, _):
        found = KeyList(items=stored.list())
        print_result(found, table([_row(key, now()) for key in found.items], HEADINGS, "no keys"), json)


@keys.command("revoke")
def revoke(key: KeyArgument, data: DataOption = None) -> None:
    """Make a key invalid. Running servers accept it for up to five more seconds."""
    with reporting(), _database(data, must_exist=True) as (stored, audit):
        found = _existing(stored, key)
        is_new = stored.revoke(found.id)
        if is_new:
            _record(audit, "revoke", found)
        print_lines(errors, f"{found.id}: {'revoked' if is_new else 'already revoked'}")


@keys.command("rotate")
def rotate(key: KeyArgument, data: DataOption = None, json: JsonOption = False) -> None:
    """Replace a key with a new one of the same tenant, scope and lifetime."""
    with reporting():
        with _database(data, must_exist=True) as (stored, audit):
            created = stored.rotate(_existing(stored, key).id)
            if created is None:
                raise InvalidArgumentError("only a valid key can be rotated; create a new one")
            _record(audit, "rotate", created)
        _show(created, json)


@contextmanager
def _database(
    data: Path | None, must_exist: bool = False, says_new: bool = False
) -> Iterator[tuple["Keys", "Audit"]]:
    try:
        from bessemer.store.database import Database
        from bessemer.store.errors import StoreError
        from bessemer.store.migrate import migrate
        from bessemer.store.privacy import keep_private
        from bessemer.store.rows.audit import Audit
        from bessemer.store.rows.keys import Keys
        from bessemer.store.settings import StoreSettings, read_settings
    except ImportError as error:
        raise InvalidArgumentError(
            f"this needs the server's packages ({error.name}): run it on the server, or use POST /v1/keys"
        ) from error
    settings = read_settings(StoreSettings)
    if data is not None:
        settings = StoreSettings(data=data)
    file = settings.database.database
    if must_exist and settings.database.get_backend_name() == "sqlite" and not Path(file or "").exists():
        raise InvalidArgumentError(f"{file} not found: name the directory of `bessemer serve` with --data")
    is_new = settings.database.get_backend_name() == "sqlite" and not Path(file or "").exists()
    if is_new and says_new:
        print_lines(
            errors,
            f"note: {settings.folder} has no database yet: the key is valid only for a service "
            f"on this folder, such as `bessemer serve --data {shlex.quote(str(settings.folder))}`",
        )
    keep_private(settings.folder)
    try:
        database = Database(settings.database)
        try:
            migrate(database)
            yield Keys(database), Audit(database)
        finally:
            database.close()
    except StoreError as error:
        raise BessemerError(str(error).splitlines()[0]) from error


def _request(tenant: str, scope: Scope, name: str | None, expires_days: int | None) -> KeyRequest:
    try:
        return KeyRequest(tenant=tenant, scope=scope, name=name, expires_days=expires_days)
    except ValidationError as error:
        if any(entry["loc"] == ("tenant",) for entry in error.errors()):
            detail = (
                f"'{tenant}' is not a tenant's name: use 1 to 63 lower-case letters, digits and inner hyphens"
            )
        else:
            detail = validation_message(error)
        raise InvalidArgumentError(detail) from error


def _existing(stored: "Keys", text: str) -> ApiKey:
    parts = text.split("_")
    key_id = parts[1] if len(parts) > 1 else text
    found = stored.get(key_id)
    if found is None:
        raise BessemerError(f"key '{key_id}' not found; `bessemer keys list` shows all keys")
    return found


def _note_of_first(created: NewApiKey) -> str:
    note = (
        "note: this is the first key. From now on, the service asks every caller for a key, unless "
        "BESSEMER_AUTH=off is set."
    )
    if created.scope is Scope.ADMIN:
        return note
    return f"{note} No key has the scope admin: create one next with `bessemer keys create --scope admin`."


def _record(audit: "Audit", action: str, key: ApiKey) -> None:
    audit.record(f"cli:{_user()}", key.tenant, f"keys {action}", f"/v1/keys/{key.id}")


def _user() -> str:
    """The user's name, or its number where the system has no name for it, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _show(created: NewApiKey, json: bool) -> None:
    """Print a new key, unwrapped."""
    if json:
        print_json(created)
    else:
        typer.echo(created.key)


def _row(key: ApiKey, at: datetime) -> tuple[str, ...]:
    state = "valid"
    if key.revoked_at is not None:
        state = "revoked"
    elif key.expires_at is not None and key.expires_at <= at:
        state = "expired"
    dates = (key.created_at, key.expires_at, key.last_used_at)
    shown = tuple("" if date is None else f"{date:%Y-%m-%d}" for date in dates)
    return (key.id, key.tenant, key.scope, key.name or "", *shown, state)
