"""Following a job's events, as far as they have happened and as they happen."""

from collections.abc import AsyncGenerator

from app.service import Service
from bessemer.contract.job import Compilation, Event


async def follow(service: Service, job: Compilation, after: int) -> AsyncGenerator[Event]:
    """The events that follow number ``after``, as they happen.

    Ends after the final event, where nothing can follow ``after``, or when the server stops.
    """
    newsroom = service.newsroom
    with newsroom.following(job.id) as followed:
        while not service.stopping.is_set():
            news = followed.news
            over = followed.over or job.state.final
            events = await newsroom.events_after(job.id, followed, after)
            for event in events:
                yield event
                after = event.seq
            if (events and events[-1].type.final) or (over and not events):
                return
            if not events and not service.stopping.is_set():
                await news.wait()
