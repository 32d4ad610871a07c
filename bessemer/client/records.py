"""Operations on the service's tuning records."""

from collections.abc import Callable, Mapping
from pathlib import Path

from bessemer.bundle.manifest import DATABASE_FILES, RECORDS_FOLDER
from bessemer.client.inputs import validated
from bessemer.client.steps import Call, Flow, Work, fetch
from bessemer.contract.records import (
    RecordFilter,
    RecordImport,
    RecordPage,
    RecordQuery,
    RecordsDeleted,
    RecordsImported,
    TuningDatabase,
)
from bessemer.errors import InvalidArgumentError

RECORDS_PATH = "/v1/tuning/records"
_WORKLOADS, _RECORDS = "database_workload.json", "database_tuning_record.json"


def pages(filters: Mapping[str, object]) -> Callable[[str | None], Flow[RecordPage]]:
    """A function that gets the page of records at a cursor.

    Raises:
        InvalidArgumentError: a filter is not valid.
    """
    wanted = _filter(filters)

    def page(cursor: str | None) -> Flow[RecordPage]:
        query = RecordQuery(limit=200, cursor=cursor, **wanted.model_dump())
        return fetch(RecordPage, Call("GET", RECORDS_PATH, params=query.parameters()))

    return page


def delete(filters: Mapping[str, object]) -> Flow[RecordsDeleted]:
    """Delete the records that match."""
    return fetch(RecordsDeleted, Call("DELETE", RECORDS_PATH, params=_filter(filters).parameters()))


def export(folder: Path, filters: Mapping[str, object]) -> Flow[int]:
    """Write the records that match to the two files of a database in a folder; returns how many."""
    call = Call("GET", f"{RECORDS_PATH}/export", params=_filter(filters).parameters())
    found = yield from fetch(TuningDatabase, call)
    yield Work(lambda: _write(folder, found))
    return len(found.records.splitlines())


def import_from(folder: Path, shared: bool) -> Flow[RecordsImported]:
    """Send the two files of a database."""
    body: bytes = yield Work(lambda: _read(folder, shared).model_dump_json().encode())
    headers = {"Content-Type": "application/json"}
    return (
        yield from fetch(
            RecordsImported, Call("POST", RECORDS_PATH, headers=headers, chunks=lambda: iter((body,)))
        )
    )


def _filter(filters: Mapping[str, object]) -> RecordFilter:
    return validated(RecordFilter, {name: value for name, value in filters.items() if value is not None})


def _read(folder: Path, shared: bool) -> RecordImport:
    candidates = (folder, folder / RECORDS_FOLDER, folder.parent)
    chosen = next(
        (each for each in candidates if all((each / name).is_file() for name in DATABASE_FILES)), None
    )
    if chosen is None:
        raise InvalidArgumentError(f"{folder} does not contain {' and '.join(DATABASE_FILES)}")
    try:
        workloads, records = ((chosen / name).read_text("utf-8") for name in (_WORKLOADS, _RECORDS))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"{chosen} cannot be read: {error}") from error
    return validated(RecordImport, {"workloads": workloads, "records": records, "shared": shared})


def _write(folder: Path, database: TuningDatabase) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _WORKLOADS).write_text(database.workloads, "utf-8")
        (folder / _RECORDS).write_text(database.records, "utf-8")
    except OSError as error:
        raise InvalidArgumentError(f"{folder} cannot be written: {error}") from error
