"""Follows what a job prints, of which the server shows the end only while it runs."""

import time

from bessemer.client import operations
from bessemer.client.events import PATIENCE_SECONDS
from bessemer.client.steps import Flow, Sleep
from bessemer.contract.job import LOG
from bessemer.errors import ServerFailedError, UnreachableError

__all__ = ["LogFollower", "LogReader"]

POLL_SECONDS = 1.0
"""A worker hands on what was printed about as often."""

CUT = "\N{REPLACEMENT CHARACTER}"
"""What a character becomes through which the log was cut."""


class LogReader:
    """Tells what is new at each look at a log."""

    def __init__(self) -> None:
        self._seen = ""
        self._read = 0

    def end(self, tail: str) -> str:
        """What the end of a log shows beyond the last look; all of it where nothing joins the two."""
        tail = tail.strip(CUT)
        sizes = range(len(self._seen), 0, -1)
        known = next((size for size in sizes if tail.startswith(self._seen[-size:])), 0)
        self._seen, news = tail, tail[known:]
        self._read += len(news)
        return news

    def whole(self, log: str) -> str:
        """What the whole of a log shows beyond the last look; all of it where that is not part of it."""
        place = log.find(self._seen, max(0, self._read - len(self._seen)))
        return log if place < 0 else log[place + len(self._seen) :]


class LogFollower:
    """Where one listener stands in a job's log. The driver performs ``look()`` until ``done``."""

    def __init__(self, job_id: str) -> None:
        self.done = False
        self._job_id = job_id
        self._reader = LogReader()
        self._last_contact = time.monotonic()

    def look(self) -> Flow[str]:
        """What was printed since the last look; nothing where the server is away for a while.

        Raises:
            ProblemError, UnreachableError: for longer than ``PATIENCE_SECONDS``, or for good.
        """
        try:
            job = yield from operations.get_compilation(self._job_id)
            text = yield from operations.get_logs(self._job_id)
            # a job that ended in between may have shown all of its log: the next look will know
            ended = not job.state.final and (yield from operations.get_compilation(self._job_id)).state.final
        except (ServerFailedError, UnreachableError):
            if time.monotonic() - self._last_contact > PATIENCE_SECONDS:
                raise
            return ""
        self._last_contact, self.done = time.monotonic(), job.state.final
        if ended:
            return ""
        kept = any(artifact.name == LOG for artifact in job.artifacts)
        return self._reader.whole(text) if kept else self._reader.end(text)

    def pause(self) -> Flow[None]:
        """Between two looks."""
        if not self.done:
            yield Sleep(POLL_SECONDS)
