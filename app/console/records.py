"""Tuning records with filters."""

from fastapi import APIRouter, Request, Response

from app.console.filters import given, next_page
from app.console.rendering import page
from app.service import ServiceDep
from bessemer.contract.records import RecordQuery

router = APIRouter(include_in_schema=False)


@router.get("/console/records")
def show_records(request: Request, service: ServiceDep) -> Response:
    """A page of records, newest first."""
    query = given(request, RecordQuery)
    found = service.data.records.page(query.limit, query.cursor, query)
    following, model = next_page(request, found.next), service.data.cost_model.get()
    return page(request, "records.html.j2", found=found, query=query, next=following, model=model)
