"""``python -m benchmarks.soak``: reads the environment.

``KILLS``, ``SEED``, ``DATABASE``, and ``REQUESTS``: kinds of requests, such as ``tune,cancel``; all if empty.
"""

import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import sqlalchemy as sa
from pydantic import BaseModel
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.machine import SERVICE_PACKAGES, Machine, describe
from benchmarks.soak.audit import left_after, left_while_running, lost_invocations, lost_jobs
from benchmarks.soak.kills import Kill, Killer, zygotes
from benchmarks.soak.load import Users
from benchmarks.soak.requests import Followed, RequestKind
from benchmarks.soak.site import Site, running_site
from benchmarks.soak.trials import TrialWatch, lost_records, repeated_trials
from bessemer.store.rows.tables import INVOCATIONS, JOBS
from bessemer.store.store import Store, open_store
from examples.environment import forget_settings
from worker.supervisor.processes import read_process

RESULTS = Path(__file__).parents[1] / "results"


class Quantiles(BaseModel):
    """Quantiles of a duration, in seconds."""

    count: int
    median: float
    most: float


class Summary(BaseModel):
    """The results of one soak."""

    machine: Machine
    ended_at: datetime
    database: str
    seed: int
    seconds: float
    kills: int
    kills_by_process: dict[str, int]
    kills_by_stage: dict[str, int]
    jobs_by_end: dict[str, int]
    invocations_by_end: dict[str, int]
    lost_attempts: int
    most_attempts: int
    cancel_seconds: Quantiles | None
    trials: int
    lost_records: int
    lost: list[str]
    left: list[str]

    @property
    def line(self) -> str:
        """The summary in one line."""
        records = f"{self.lost_records} of {self.trials} tuning records lost"
        left = f"{len(self.left)} processes or folders left"
        return f"{self.kills} kills, {len(self.lost)} faults, {records}, {left}"


class Soak:
    """One run: kill processes while users work, then audit."""

    def __init__(
        self, kills: int, seed: int, database: str, console: Console, requests: Sequence[RequestKind]
    ) -> None:
        self._kills = kills
        self._seed = seed
        self._database = database
        self._console = console
        self._requests = requests
        self._zygotes: set[tuple[int, int]] = set()
        self._made: list[Kill] = []

    def run(self, folder: Path) -> Summary:
        """Run in an empty folder."""
        began = time.monotonic()
        with running_site(folder, self._database) as site:
            self._console.print(
                f"waiting for the app and {len(site.workers)} workers; logs in {folder}/data …"
            )
            site.wait_until_ready()
            store = open_store(site.settings)
            watch = TrialWatch(store)
            watch.start()
            try:
                users = Users(site.url, self._seed, self._requests)
                users.start()
                try:
                    self._kill(Killer(site, store, random.Random(self._seed)), site, users)
                finally:
                    self._console.print("waiting for the last jobs to end …")
                    users.stop()
                    watch.stop()
                self._console.print("auditing …")
                lost = [*lost_jobs(store, users.harvest.followed), *users.harvest.troubles]
                faults = lost_records(store, watch.seen)
                faults += [f"{job}: it had fewer trials than before" for job in sorted(watch.shrunk)]
                missing = sum(repeated_trials(one.events) for one in users.harvest.followed)
                lost += faults
                if missing:
                    lost.append(f"{missing} reported trials were missing in the next attempt")
                lost += lost_invocations(store, users.harvest.invoked)
                lost += [f"a model was rejected: {code}" for code in users.harvest.rejected]
                left = left_while_running(site)
                self._note_zygotes(site)
                jobs, invocations = _rows(store, JOBS), _rows(store, INVOCATIONS)
            finally:
                store.close()
        left += left_after(site, sorted(self._zygotes))
        shutil.rmtree(site.work, ignore_errors=True)
        return Summary(
            machine=describe(SERVICE_PACKAGES),
            ended_at=datetime.now(UTC),
            database=self._database,
            seed=self._seed,
            seconds=round(time.monotonic() - began, 1),
            kills=len(self._made),
            kills_by_process=Counter(kill.kind.value for kill in self._made),
            kills_by_stage=Counter(stage for kill in self._made for stage in kill.stages or ("idle",)),
            jobs_by_end=_ends(jobs),
            invocations_by_end=_ends(invocations),
            lost_attempts=sum(row.lost_attempts for row in (*jobs, *invocations)),
            most_attempts=max((row.attempt for row in (*jobs, *invocations)), default=0),
            cancel_seconds=_quantiles(users.harvest.followed),
            trials=len(watch.seen),
            lost_records=len(faults) + missing,
            lost=lost,
            left=left,
        )

    def _kill(self, killer: Killer, site: Site, users: Users) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._console) as progress:
            bar = progress.add_task("kills", total=self._kills)
            while len(self._made) < self._kills:
                self._note_zygotes(site)
                made = killer.kill()
                self._made.append(made)
                ended = len(users.harvest.followed)
                if not self._console.is_terminal:
                    self._console.print(
                        f"kill {len(self._made)}: {made.kind} of {made.of} {made.stages}; {ended} ended"
                    )
                progress.update(
                    bar, advance=1, description=f"{ended} jobs ended; killed: {made.kind} of {made.of}"
                )

    def _note_zygotes(self, site: Site) -> None:
        for worker in site.workers:
            found = (read_process(pid) for pid in zygotes(worker))
            self._zygotes |= {(process.pid, process.start_ticks) for process in found if process}


def _quantiles(followed: Sequence[Followed]) -> Quantiles | None:
    """Quantiles of the cancels of running jobs; None if there were none."""
    seconds = [one.cancel_seconds for one in followed if one.cancel_seconds is not None]
    if not seconds:
        return None
    return Quantiles(count=len(seconds), median=round(median(seconds), 2), most=round(max(seconds), 2))


def _rows(store: Store, table: sa.Table) -> Sequence[sa.Row[tuple[str, int, int]]]:
    with store.database.read() as connection:
        return connection.execute(sa.select(table.c.state, table.c.attempt, table.c.lost_attempts)).all()


def _ends(rows: Sequence[sa.Row[tuple[str, int, int]]]) -> dict[str, int]:
    return Counter(row.state for row in rows)


def main() -> int:
    """Run the soak and write the summary. Return 1 if anything was lost or left behind."""
    if os.geteuid() != 0:
        sys.exit("run the soak as root: it identifies leftovers by job users, which only root can assign")
    forget_settings()
    kills, seed = int(os.environ.get("KILLS", "200")), int(os.environ.get("SEED", "1"))
    database = os.environ.get("DATABASE", "sqlite")
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="bessemer-soak-"))
    named = os.environ.get("REQUESTS", "")
    requests = tuple(RequestKind(name) for name in named.split(",") if name) or tuple(RequestKind)
    summary = Soak(kills, seed, database, console, requests).run(folder)
    path = RESULTS / f"{summary.ended_at:%Y-%m-%d}-soak-{database}.json"
    path.write_text(summary.model_dump_json(indent=2) + "\n")
    for fault in (*summary.lost, *summary.left):
        console.print(fault, style="red", highlight=False, markup=False)
    console.print(f"written to {path}")
    sound = not summary.lost and not summary.left
    if sound:
        shutil.rmtree(folder)
    else:
        console.print(f"logs are in {folder}/data")
    console.print(summary.line, highlight=False)
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
