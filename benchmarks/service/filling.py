"""Fills a queue directly, with the rows and tasks that the app would write."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from uuid import uuid4

from bessemer.contract.access import DEFAULT_TENANT
from bessemer.contract.base import Digest, JobId
from bessemer.contract.request import CompilationRequest
from bessemer.store.queue.dbos_queue import open_queue
from bessemer.store.queue_port import Queue, Task, job_kind
from bessemer.store.settings import StoreSettings
from bessemer.store.store import Store, open_store

WRITERS = 4


class Filler:
    """Writes to the store and the queue of a running app. Its methods block."""

    def __init__(self, store: Store, queue: Queue) -> None:
        self.store = store
        self._queue = queue

    def fill(self, model: Digest, count: int) -> set[JobId]:
        """Enqueue more jobs and return their ids."""
        request = CompilationRequest(model=model, target="host")
        with ThreadPoolExecutor(WRITERS) as writers:
            return set(writers.map(lambda _: self._put(request), range(count)))

    def _put(self, request: CompilationRequest) -> JobId:
        job_id = str(uuid4())
        self.store.for_tenant(DEFAULT_TENANT).jobs.submit(job_id, request)
        self._queue.enqueue(Task(job_kind(request), job_id, request.priority))
        self.store.jobs.mark_enqueued(job_id)
        return job_id


@contextmanager
def filling(settings: StoreSettings) -> Iterator[Filler]:
    """Yield a filler with its own connections."""
    store, queue = open_store(settings), open_queue(settings)
    try:
        yield Filler(store, queue)
    finally:
        queue.close()
        store.close()
