"""``bessemer compile --follow-best``: keeps the best bundle so far in a directory while the job runs."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from bessemer.cli.output import print_lines
from bessemer.client import Job
from bessemer.contract.job import Event, EventType
from bessemer.errors import BundleError, ProblemError, UnreachableError


@dataclass(frozen=True)
class BestBundle:
    """Unpacks each bundle that a job publishes over the one before it."""

    job: Job
    output: Path
    console: Console

    def on_event(self, event: Event) -> None:
        """Download the bundle if the event says that there is one; a newer one may have replaced it."""
        if event.type is not EventType.PUBLISHED:
            return
        try:
            self.job.refresh().download(self.output)
        except BundleError:
            return  # it was replaced during the download, and its event follows
        except (ProblemError, UnreachableError) as error:
            reason = str(error).splitlines()[0]
            print_lines(self.console, f"bundle     not downloaded, the compilation goes on: {reason}")
            return
        what = "the best so far" if event.data.get("figures") else "verified, not measured yet"
        print_lines(self.console, f"bundle     {self.output}, {what}")
