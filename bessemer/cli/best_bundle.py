"""``bessemer compile --follow-best``: keeps the best bundle so far in a directory while the job runs."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from bessemer.cli.output import print_lines
from bessemer.client import Job
from bessemer.contract.job import ONLY_OWN_PROCESSOR, Event, EventType, JobState
from bessemer.errors import BundleError, ProblemError, UnreachableError


@dataclass
class BestBundle:
    """Unpacks each bundle that a job publishes over the one before it."""

    job: Job
    output: Path
    console: Console
    published: bool = False

    def on_event(self, event: Event) -> None:
        """Download the bundle if the event says that there is one; a newer one may have replaced it."""
        if event.type is not EventType.PUBLISHED:
            return
        self.published = True
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

    def explain_absence(self) -> None:
        """Say why no bundle came before the end of a job that made one."""
        document = self.job.document
        if self.published or document.cached or document.state is not JobState.SUCCEEDED:
            return
        figures, target = document.figures, document.target
        is_on_gpu = target is not None and bool(target.gpus)
        is_elsewhere = figures is None or figures.device is not None or is_on_gpu
        why = ONLY_OWN_PROCESSOR if is_elsewhere else f"see `bessemer logs {document.id}`"
        print_lines(self.console, f"bundle     none before the end: {why}")
