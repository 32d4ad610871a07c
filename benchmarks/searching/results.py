"""The content of ``benchmarks/results/<date>-searches.json``."""

from datetime import datetime

from pydantic import BaseModel

from benchmarks.machine import Machine


class Point(BaseModel):
    """The whole model's latency with the best schedules after some seconds of search."""

    seconds: float
    latency_ms: float


class Search(BaseModel):
    """A search of one model. ``latency_ms`` is the library's, measured; None if it was not."""

    trials: int
    seconds: float
    trials_per_minute: float
    curve: list[Point] = []
    latency_ms: float | None = None


class SearchedModel(BaseModel):
    """A model: without trials, searched, compiled again without trials, and searched by stock MetaSchedule.

    ``best_peer_ms`` is the fastest other runtime's latency, ``best_peer`` its name.
    """

    name: str
    untuned_ms: float
    ours: Search
    again_trials: int
    again_seconds: float
    again_ms: float
    layouts_kept: int = 0
    stock: Search | None = None
    best_peer: str = ""
    best_peer_ms: float | None = None


class SearchResults(BaseModel):
    """The results of one run."""

    machine: Machine
    measured_at: datetime
    load_before: float
    load_after: float
    seconds: float
    threads: int
    models: list[SearchedModel]
