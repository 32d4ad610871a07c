"""The service's tuning records: listing, importing, exporting and deleting them."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Body, Query

from app.http.bodies import DocumentRoute
from app.http.problems import RefusalError
from app.openapi import document as documentation
from app.openapi.document import problems
from app.quotas import RECORDS, require_room
from app.service import ServiceDep
from app.tuning_databases import InvalidDatabaseError, read_database, write_database
from bessemer.contract.problem import ErrorCode
from bessemer.contract.records import (
    MAX_DATABASE_BYTES,
    RecordFilter,
    RecordImport,
    RecordPage,
    RecordQuery,
    RecordsDeleted,
    RecordsImported,
    TuningDatabase,
    TuningRecord,
)


class DatabaseRoute(DocumentRoute):
    """A route whose body may be a database."""

    max_bytes = MAX_DATABASE_BYTES


router = APIRouter(prefix="/v1/tuning/records", tags=["tuning records"], route_class=DatabaseRoute)

RECORD = TuningRecord(
    id="3c59dc048e8850243be8079a5c74d079",
    workload="18445303897137013792",
    function="fused_conv2d_add_relu",
    target="x86_64 znver4",
    threads=2,
    compiler="tvm 0.27.0, schedules 1",
    space="plans",
    seconds=1.8e-5,
    default_seconds=2.3e-5,
    won=True,
    failure=None,
    shared=False,
    compilation=documentation.COMPILATION.id,
    created_at=datetime(2026, 11, 1, tzinfo=UTC),
)
_TARGET = '{"kind":"llvm","mcpu":"znver4","mtriple":"x86_64-unknown-linux-gnu","num-cores":2}'
DATABASE = TuningDatabase(
    workloads='["18445303897137013792","AgAAAAAAAAB7fQ=="]\n',
    records=f'[0,[[[],[]],[1.8e-05],{_TARGET},[["TENSOR","float32",[1,64]]]]]\n',
)
ImportBody = Annotated[
    RecordImport,
    Body(
        openapi_examples={
            "a database": {
                "summary": "The files in the folder `records` of a bundle",
                "value": DATABASE.model_dump(mode="json"),
            }
        }
    ),
]


@router.get(
    "",
    summary="List tuning records, newest first",
    responses=documentation.answer(200, "A page of records.", RecordPage(items=(RECORD,), next=None))
    | problems(ErrorCode.REQUEST_INVALID),
)
def list_records(service: ServiceDep, query: Annotated[RecordQuery, Query()]) -> RecordPage:
    """List what your tenant's searches measured, and what it imported: the best of each function.

    To get the next page, pass `next` as `cursor`.
    """
    return service.data.records.page(query.limit, query.cursor, query)


@router.post(
    "",
    status_code=201,
    summary="Import tuning records",
    responses=documentation.answer(
        201, "The records are stored.", RecordsImported(imported=64, functions=5, failed=2)
    )
    | problems(
        ErrorCode.REQUEST_INVALID,
        ErrorCode.REQUEST_TOO_LARGE,
        ErrorCode.RECORDS_INVALID,
        ErrorCode.QUOTA_EXCEEDED,
    ),
    openapi_extra={"requestBody": {"description": "The two files of a JSON database of MetaSchedule."}},
)
def import_records(service: ServiceDep, request: ImportBody) -> RecordsImported:
    """Store the records of a JSON database of TVM's MetaSchedule.

    They are advice: searches measure what they propose, and a record serves compilations without trials only
    once a search here has found it to be faster.
    """
    try:
        found = read_database(request)
    except InvalidDatabaseError as error:
        raise RefusalError(error.problem) from error
    require_room(service, RECORDS, more_bytes=found.size_bytes)
    service.data.records.add(found.trials, found.workloads, request.shared)
    return RecordsImported(imported=len(found.trials), functions=len(found.workloads), failed=found.failed)


@router.delete(
    "",
    summary="Delete tuning records",
    responses=documentation.answer(200, "The records are deleted.", RecordsDeleted(deleted=12))
    | problems(ErrorCode.REQUEST_INVALID),
)
def delete_records(service: ServiceDep, query: Annotated[RecordFilter, Query()]) -> RecordsDeleted:
    """Delete the records that meet all conditions; without conditions, all of your tenant's."""
    return RecordsDeleted(deleted=service.data.records.delete(query))


@router.get(
    "/export",
    summary="Export tuning records",
    responses=documentation.answer(200, "The database.", DATABASE) | problems(ErrorCode.REQUEST_INVALID),
)
def export_records(service: ServiceDep, query: Annotated[RecordFilter, Query()]) -> TuningDatabase:
    """Return records as the two files of a JSON database of TVM's MetaSchedule, the newest first.

    Failures are left out. Larger stores need several exports, by `workload` or `since`.
    """
    return write_database(service.data.records.export(query))
