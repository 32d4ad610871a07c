"""Follow a job's output. The server shows only the last part of it while the job runs."""

import time

from bessemer.client import operations
from bessemer.client.events import GIVE_UP_SECONDS
from bessemer.client.steps import Flow, Sleep
from bessemer.contract.job import LOG
from bessemer.errors import ServerFailedError, UnreachableError

POLL_SECONDS = 1.0
"""Workers upload output about this often."""

CUT = "\N{REPLACEMENT CHARACTER}"
"""What decoding makes of a character that the server cut in two."""


class LogReader:
    """Finds the new text in successive views of a log."""

    def __init__(self) -> None:
        self._seen = ""
        self._read = 0

    def end(self, tail: str) -> str:
        """The text in ``tail`` beyond the last view; all of it if the two do not overlap."""
        tail = tail.strip(CUT)
        sizes = range(len(self._seen), 0, -1)
        known = next((size for size in sizes if tail.startswith(self._seen[-size:])), 0)
        self._seen, new = tail, tail[known:]
        self._read += len(new)
        return new

    def whole(self, log: str) -> str:
        """The text in a whole log beyond the last view; all of it if the log does not contain that view."""
        place = log.find(self._seen, max(0, self._read - len(self._seen)))
        return log if place < 0 else log[place + len(self._seen) :]


class LogFollower:
    """A reader's position in a job's log. The driver performs ``look()`` and ``pause()`` until ``done``."""

    def __init__(self, job_id: str) -> None:
        self.done = False
        self._job_id = job_id
        self._reader = LogReader()
        self._last_contact = time.monotonic()

    def look(self) -> Flow[str]:
        """The output since the last call; empty while the server is unreachable.

        Raises:
            ProblemError, UnreachableError: the error is permanent, or lasted for ``GIVE_UP_SECONDS``.
        """
        try:
            job = yield from operations.get_compilation(self._job_id)
            text = yield from operations.get_logs(self._job_id)
            # if the job ended between the two requests, the text may be the whole log: look again
            ended = not job.state.final and (yield from operations.get_compilation(self._job_id)).state.final
        except (ServerFailedError, UnreachableError):
            if time.monotonic() - self._last_contact > GIVE_UP_SECONDS:
                raise
            return ""
        self._last_contact, self.done = time.monotonic(), job.state.final
        if ended:
            return ""
        kept = any(artifact.name == LOG for artifact in job.artifacts)
        return self._reader.whole(text) if kept else self._reader.end(text)

    def pause(self) -> Flow[None]:
        """Wait between two calls of ``look()``."""
        if not self.done:
            yield Sleep(POLL_SECONDS)
