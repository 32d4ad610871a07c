"""The progress of a compilation, computed from its events."""

import time
from dataclasses import dataclass, replace
from datetime import datetime

from pydantic import ValidationError

from bessemer.contract.job import Event, EventType, Progress
from bessemer.contract.queue import QueuePlace
from bessemer.contract.report import StageTime
from bessemer.contract.stage import UNITS, Stage
from bessemer.figures.words import search_note

LONGEST_NAME = 48


@dataclass(frozen=True)
class Timeline:
    """The finished stages, and the running stage with its start (``time.monotonic``) and progress."""

    attempt: int = 0
    worker: str = ""
    finished: tuple[StageTime, ...] = ()
    running: Stage | None = None
    running_since: float = 0.0
    progress: Progress | None = None

    def after(self, event: Event) -> "Timeline":
        """The timeline after an event; ignores malformed events."""
        try:
            return self._after(event)
        except (ValidationError, KeyError, ValueError):
            return self

    def _after(self, event: Event) -> "Timeline":
        match event.type:
            case EventType.STARTED:
                return Timeline(attempt=int(event.data["attempt"]), worker=str(event.data.get("worker", "")))
            case EventType.STAGE_STARTED:
                stage = Stage(event.data["stage"])
                return replace(self, running=stage, running_since=time.monotonic(), progress=None)
            case EventType.STAGE_FINISHED:
                done = StageTime.read(event.data)
                return replace(self, finished=(*self.finished, done), running=None, progress=None)
            case EventType.PROGRESS:
                return replace(self, progress=Progress.read(event.data))
            case _:
                return self


def place_line(place: QueuePlace) -> str:
    """The position of a queued compilation in one line."""
    if place.waiting_for is not None:
        return f"queued, waiting for {place.waiting_for}"
    ahead = "next" if place.ahead == 0 else f"{place.ahead} ahead"
    seconds = place.estimated_start_seconds
    if seconds is None:
        return f"queued, {ahead}"
    return f"queued, {ahead}; estimated to start in about {shown_duration(seconds)}"


def shown_duration(seconds: float) -> str:
    """A rough duration, such as ``40 s``, ``12 min`` or ``3.5 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def shown_ago(moment: datetime, at: datetime) -> str:
    """How long before a moment another was, such as ``3.1 s ago``."""
    return f"{shown_duration(max(0.0, (at - moment).total_seconds()))} ago"


def shown_progress(progress: Progress) -> str:
    """The progress of a stage: ``12 of 32 trials, detail``; ``12 trials`` if the total is unknown."""
    return shown_count(progress.stage, progress.done, progress.total, progress.detail)


def shown_count(stage: object, done: object, total: object, detail: object) -> str:
    """Format a count from an event's data. Long names of fused functions are shortened."""
    count = f"{done} of {total}" if total else f"{done}"
    unit = UNITS.get(str(stage))
    counted = f"{count} {unit}" if unit else count
    words = " ".join(_shortened(word) for word in str(detail or "").split(" "))
    if not done and not total and words:
        return words
    return f"{counted}, {words}" if words else counted


def _shortened(word: str) -> str:
    return word if len(word) <= LONGEST_NAME else f"{word[: LONGEST_NAME - 1]}…"


def event_line(event: Event, searches: bool = True) -> str | None:
    """An event of a compilation that searches or not, in one line; None for events without a line."""
    data = event.data
    match event.type:
        case EventType.QUEUED:
            return "queued"
        case EventType.STARTED:
            again = f", attempt {data['attempt']}" if data.get("attempt", 1) > 1 else ""
            return f"started on {data.get('worker', 'a worker')}{again}"
        case EventType.STAGE_FINISHED:
            note = search_note(data.get("stage"), searches)
            return f"{data.get('stage', '?'):<10} {data.get('seconds', 0.0):.2f} s{note}"
        case EventType.PROGRESS:
            count = shown_count(data.get("stage"), data.get("done"), data.get("total"), data.get("detail"))
            return f"{data.get('stage', '?'):<10} {count}"
        case EventType.PUBLISHED:
            figures = data.get("figures") or {}
            latency = (figures.get("latency") or {}).get("p50_ms")
            shown = f", {latency:.4g} ms" if isinstance(latency, float) else ", not measured yet"
            return f"published  a verified bundle{shown}"
        case _:
            return None
