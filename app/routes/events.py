"""A compilation's server-sent events."""

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent

from app.identity.authentication import is_still_admitted
from app.openapi.document import LOOKUP, described, problems
from app.routes.lookup import CompilationDep
from app.service import ServiceDep, TenantService
from bessemer.contract.job import Compilation, Event

router = APIRouter(prefix="/v1/compilations", tags=["compilations"])

ADMITTED_SECONDS = 1.0
"""How long a stream runs between checks of the caller's key, which apps cache for some seconds."""
MAX_SEQ = (1 << 31) - 1
LastEventId = Annotated[
    int,
    Header(
        alias="Last-Event-ID",
        ge=0,
        le=MAX_SEQ,
        description="The id of the last event received; the stream continues after it.",
        examples=[17],
    ),
]

STREAM: dict[str, Any] = {
    "text/event-stream": {
        "itemSchema": {
            "properties": {
                "id": {"description": "The event's `seq`."},
                "event": {"description": "The event's `type`."},
                "data": {
                    "contentMediaType": "application/json",
                    "description": "The event: `seq`, `type`, `at` (RFC 3339, in UTC) and `data`, an object "
                    "whose fields depend on the type: see docs/events.md.",
                },
                "retry": {"description": "Reconnection time in milliseconds; never sent."},
            }
        }
    }
}
"""The fields of an event; FastAPI adds their types."""


@router.get(
    "/{id}/events",
    summary="Follow a compilation",
    response_class=EventSourceResponse,
    responses=described(
        200, "A stream of events. Each has `seq` as its id, its type, and the event as its data.", STREAM
    )
    | problems(*LOOKUP),
)
async def follow_compilation(
    request: Request, service: ServiceDep, job: CompilationDep, last_event_id: LastEventId = 0
) -> AsyncIterator[ServerSentEvent]:
    """Stream all past events, then new events as they happen. The stream ends with the compilation.

    Comments keep an idle connection alive. If the stream ends without a final event, the connection was
    lost, or the key was revoked or has expired: reconnect with `Last-Event-ID`.
    """
    admitted_at = time.monotonic()
    with service.metrics.following():
        async with aclosing(follow(service, job, last_event_id)) as events:
            async for event in events:
                if time.monotonic() - admitted_at > ADMITTED_SECONDS:
                    if not await is_still_admitted(request):
                        return
                    admitted_at = time.monotonic()
                yield ServerSentEvent(
                    id=str(event.seq), event=event.type.value, raw_data=event.model_dump_json()
                )


async def follow(service: TenantService, job: Compilation, after: int) -> AsyncGenerator[Event]:
    """Yield the events after number ``after``, as they happen.

    Ends after the final event, or when the server stops.
    """
    broadcaster = service.broadcaster
    jobs = service.data.jobs
    with broadcaster.following(job.id) as followed:
        while not service.stopping.is_set():
            changed = followed.changed
            ended = followed.ended or job.state.final
            events = await broadcaster.events_after(jobs, job.id, followed, after)
            for event in events:
                yield event
                after = event.seq
            if (events and events[-1].type.final) or (ended and not events):
                return
            if not events and not service.stopping.is_set():
                await changed.wait()
