"""Show uploads and compilations: live on a terminal, as plain lines elsewhere."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, Task, TextColumn
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from bessemer.bundle.manifest import ARCHIVE
from bessemer.cli.output import clean, print_lines, shown_bytes
from bessemer.cli.timeline import Timeline, event_line, place_line, shown_progress
from bessemer.client.sources import Progress as UploadProgress
from bessemer.contract.dynamic import shown_sizes
from bessemer.contract.job import Compilation, Event, EventType, Figures, JobState
from bessemer.contract.names import shown_labels
from bessemer.contract.options import SearchEnd, TuneOptions
from bessemer.contract.queue import QueuePlace
from bessemer.contract.report import (
    BaselineResult,
    GivenSchedule,
    Latency,
    PeerVerdict,
    Schedules,
    StoredRecordsUse,
    TuneVerdict,
)
from bessemer.contract.request import Entry
from bessemer.contract.stage import Stage
from bessemer.contract.target import ResolvedTarget
from bessemer.figures.words import cached_note, counted, search_note, short_search

BAR_WIDTH = 24
LONG_STAGE_SECONDS = 2.0
MEASURE_AGAIN = "measure again with --option cache=false when the worker is idle"


class _SpeedColumn(ProgressColumn):
    """Bytes per second, in the units of other sizes."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{shown_bytes(int(speed))}/s", style="progress.data.speed")


@contextmanager
def upload_view(console: Console, name: str) -> Iterator[UploadProgress]:
    """A progress bar that appears with the first byte; none if the server has the model."""
    bar = Progress(
        TextColumn("uploading {task.description}"),
        BarColumn(BAR_WIDTH),
        DownloadColumn(binary_units=True),
        _SpeedColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    task = bar.add_task(clean(name), total=None, visible=False)
    with bar:
        yield lambda sent, total: bar.update(task, completed=sent, total=total, visible=True)


@contextmanager
def stage_view(
    console: Console, shown_missing: str | None = None, searches: bool = True
) -> Iterator["StageView"]:
    """A view of the progress of a compilation that searches or not.

    ``shown_missing`` is what the compilation waits for, if that was already printed.
    """
    if not console.is_terminal:
        yield PlainStages(console, shown_missing, searches)
        return
    view = _LiveStages(searches)
    with Live(view, console=console, refresh_per_second=10):
        yield view


class _LiveStages:
    """The stages with their times, redrawn by rich."""

    def __init__(self, searches: bool) -> None:
        self._searches = searches
        self._timeline = Timeline()
        self._spinner = Spinner("dots")
        self._place = "queued"

    def show_place(self, place: QueuePlace) -> None:
        self._place = place_line(place)

    def show_event(self, event: Event) -> None:
        self._timeline = self._timeline.after(event)

    def __rich__(self) -> RenderableType:
        timeline = self._timeline
        if not timeline.attempt:
            return Group(Text(f"  {clean(self._place)}", style="dim"))
        table = Table.grid(padding=(0, 1))
        for stage in Stage:
            table.add_row(*self._row(stage, timeline))
        return table

    def _row(self, stage: Stage, timeline: Timeline) -> tuple[RenderableType, ...]:
        for done in timeline.finished:
            if done.stage is stage:
                shown = f"{done.seconds:.2f} s{search_note(stage, self._searches)}"
                return Text("✓", style="green"), Text(stage.value), Text(shown), Text()
        if stage is not timeline.running:
            return Text(" "), Text(stage.value, style="dim"), Text(), Text()
        elapsed = Text(f"{time.monotonic() - timeline.running_since:.1f} s", style="cyan")
        return self._spinner, Text(stage.value, style="bold"), elapsed, _bar(timeline)


def _bar(timeline: Timeline) -> RenderableType:
    progress = timeline.progress
    if progress is None:
        return Text()
    if progress.total <= 0:
        return Text(clean(shown_progress(progress)))
    row = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=progress.total, completed=progress.done, width=BAR_WIDTH)
    row.add_row(bar, Text(clean(shown_progress(progress))))
    return row


class PlainStages:
    """The stages line by line, with progress only for stages that are slow or wait."""

    def __init__(self, console: Console, shown_missing: str | None = None, searches: bool = True) -> None:
        self._console = console
        self._searches = searches
        self._stage_began_at: datetime | None = None
        self._shown = shown_missing

    def show_place(self, place: QueuePlace) -> None:
        """Print its position in the queue when it changes."""
        position = place.waiting_for or str(place.position)
        if self._shown != position:
            self._shown = position
            print_lines(self._console, place_line(place))

    def show_event(self, event: Event) -> None:
        """Print an event if it has a line."""
        if event.type is EventType.STAGE_STARTED:
            self._stage_began_at = event.at
        if event.type is EventType.QUEUED and self._shown is not None:
            return
        line = event_line(event, self._searches)
        if line is not None and (event.type is not EventType.PROGRESS or self._is_shown(event)):
            print_lines(self._console, line)

    def _is_shown(self, event: Event) -> bool:
        """Whether a stage is slow, or waits: progress without a count says for what."""
        data = event.data
        if data.get("stage") == Stage.TUNE or not (data.get("done") or data.get("total")):
            return True
        began_at = self._stage_began_at
        return began_at is not None and (event.at - began_at).total_seconds() >= LONG_STAGE_SECONDS


StageView = _LiveStages | PlainStages
"""Shows a compilation while it waits and runs."""


def other_method_lines(methods: tuple[str, ...]) -> Iterator[str]:
    """A note on the methods that are not compiled."""
    if methods:
        yield f"methods     {', '.join(methods)} are not compiled; add --entry NAME for each that you need"


def compilation_lines(compilation: Compilation) -> Iterator[str]:
    """The lines that describe a compilation, without its problem."""
    target = compilation.target
    yield f"compilation {compilation.id}: {compilation.shown_state}"
    yield from _request_lines(compilation)
    if compilation.cached:
        yield f"cached      results of compilation {compilation.original}, made from an identical request"
    if compilation.queue:
        yield f"queue       {compilation.queue.name}: {place_line(compilation.queue)}"
        yield f"            {compilation.queue.explanation}"
    if target:
        yield f"target      {target.name} ({_hardware(target)})"
    if compilation.stages:
        yield f"stages      {', '.join(_shown_stages(compilation))}"
    yield from _stage_lines(compilation)
    if compilation.sandbox and compilation.sandbox.lost:
        yield f"sandbox     WITHOUT {', '.join(compilation.sandbox.lost)}"
    if compilation.verified is not None:
        yield f"verified    {'yes' if compilation.verified else 'NO, as requested: nothing ran the library'}"
        if compilation.verified:
            yield from _device_lines(compilation)
    if compilation.figures:
        yield from _figure_lines(compilation.figures)
        yield from _tuning_lines(compilation.figures.tune, compilation.request.tune)
    if compilation.artifacts:
        yield from _artifact_lines(compilation)


def _shown_stages(compilation: Compilation) -> Iterator[str]:
    built = None if compilation.figures is None else compilation.figures.built_functions
    for entry in compilation.stages:
        notes = search_note(entry.stage, compilation.request.searches) + cached_note(entry.stage, built)
        yield f"{entry.stage} {entry.seconds:.2f} s{notes}"


def _artifact_lines(compilation: Compilation) -> Iterator[str]:
    yield "artifacts   " + ", ".join(
        f"{entry.name} ({shown_bytes(entry.size_bytes)})" for entry in compilation.artifacts
    )
    is_early = compilation.state in (JobState.FAILED, JobState.CANCELLED)
    if is_early and any(entry.name == ARCHIVE for entry in compilation.artifacts):
        yield "            The bundle is verified: it was published before the compilation ended."


def _device_lines(compilation: Compilation) -> Iterator[str]:
    """Where a library was verified, unless the figures say it; and why it was not measured."""
    figures, named = compilation.figures, compilation.request.device
    if named is not None and (figures is None or figures.device is None):
        yield f"            on device {named}"
    if figures is None and compilation.request.makes_bundle:
        reason = "the worker's processor or C library is not the target's"
        yield f"measured    no: {reason if named is None else f'device {named} is emulated'}"


def _hardware(target: ResolvedTarget) -> str:
    if target.gpus:
        return target.hardware
    processor = "" if target.name == target.mcpu else f"{target.mcpu}, "
    return f"{processor}{target.cores} cores"


def _request_lines(compilation: Compilation) -> Iterator[str]:
    if compilation.name:
        yield f"name        {compilation.name}"
    yield f"model       {compilation.request.model}"
    for name, entry in compilation.request.entries.items():
        yield f"entry       {name}{_entry_details(entry)}"
    if compilation.request.labels:
        yield "labels      " + ", ".join(shown_labels(compilation.request.labels))


def _entry_details(entry: Entry) -> str:
    """What a request says about an entry point."""
    constants = (f"{name}={value!r}" for name, value in entry.constants.items())
    details = [
        *([f"method {entry.method}"] if entry.method else []),
        *([f"model {entry.model}"] if entry.model else []),
        *map(str, entry.inputs),
        *constants,
    ]
    return f": {', '.join(details)}" if details else ""


def _stage_lines(compilation: Compilation) -> Iterator[str]:
    """The current or last stage; for a failed compilation, its problem has the stage."""
    if compilation.stage is None:
        return
    match compilation.state:
        case JobState.RUNNING:
            progress = compilation.progress
            shown = f", {shown_progress(progress)}" if progress else ""
            yield f"now         {compilation.stage}{shown}"
        case JobState.CANCELLED:
            yield f"stopped     in {compilation.stage}, cancelled"
        case JobState.SUCCEEDED if not compilation.request.makes_bundle:
            yield f"stopped     after {compilation.stage}, as requested"


def _tuning_lines(verdict: TuneVerdict | None, options: TuneOptions) -> Iterator[str]:
    if verdict is None:
        return
    for schedule in verdict.schedules:
        yield f"schedule    {_shown_schedule(schedule)}"
    yield from _stored_lines(verdict.stored)
    if verdict.kept is None:
        return
    if verdict.ended_by in (SearchEnd.NO_GPU, SearchEnd.NO_DEVICE):
        yield f"tuning      the schedules are {options.limit_reached(verdict.ended_by)}"
        return
    search_kept = verdict.kept is Schedules.SEARCH
    kept = "the search's schedules" if search_kept else "the default schedules"
    is_short = verdict.trials < options.trials and not options.is_without_trials
    trials = f"{verdict.trials} of {options.trials} trials" if is_short else f"{verdict.trials} trials"
    end = f", {options.limit_reached(verdict.ended_by)}" if verdict.ended_by else ""
    yield f"tuning      {trials}{end}; the library has {kept}{_grounds(verdict)}"
    yield from _search_lines(verdict)


def _search_lines(verdict: TuneVerdict) -> Iterator[str]:
    """Further lines about a search."""
    if short := short_search(verdict):
        yield f"            {short}"
    for device in verdict.devices:
        how = "ranked under emulation" if device.emulated else "measured"
        yield f"            {how} on device {device.name}"
    if verdict.device_failure:
        yield f"            the measurements ended: {verdict.device_failure}"
    if verdict.unsearched:
        yield f"            not searched, because their sizes are dynamic: {verdict.unsearched} functions"
    if verdict.records:
        unused = f", {verdict.unused_records} of them for no function" if verdict.unused_records else ""
        yield f"            {verdict.records} records given{unused}"
    if verdict.skipped:
        yield f"            skipped, because the space does not fit them: {verdict.skipped} functions"


def _stored_lines(use: StoredRecordsUse | None) -> Iterator[str]:
    """How the compilation used the service's tuning records; nothing if it found none."""
    if use is None or use == StoredRecordsUse(hits=0, misses=use.misses):
        return
    yield f"records     of earlier searches for {use.hits} of {counted(use.hits + use.misses, 'function')}"
    if use.near:
        others = counted(use.near, "other")
        yield f"            of similar functions for {others}: {counted(use.near_trials, 'trial')}"
    if use.misfits:
        verbs = "applies and was" if use.misfits == 1 else "apply and were"
        yield f"            {counted(use.misfits, 'record')} no longer {verbs} skipped"
    if use.passed_over:
        verb = "was" if use.passed_over == 1 else "were"
        candidates = counted(use.passed_over, "candidate")
        yield f"            {candidates} that did not compile before {verb} passed over"
    if use.restored_trials:
        yield f"            an earlier attempt measured {counted(use.restored_trials, 'trial')}"
    if use.dropped is not None:
        yield f"            not used after all, because compiling with them failed: {use.dropped}"


def _shown_schedule(schedule: GivenSchedule) -> str:
    of = f"{schedule.function} by {schedule.file}"
    if schedule.skipped is not None:
        return f"{of}: not used: {schedule.skipped}"
    if schedule.schedule_ms is None:
        return f"{of}: not timed, because its sizes are dynamic"
    times = f"{of}: {schedule.schedule_ms:.4g} ms"
    if schedule.default_ms is None:
        return times
    ratio = schedule.schedule_ms / schedule.default_ms
    compared = f"{ratio:.2f} times slower" if ratio > 1 else f"{1 / ratio:.2f} times faster"
    return f"{times}, {compared} than the default schedule ({schedule.default_ms:.4g} ms)"


def _grounds(verdict: TuneVerdict) -> str:
    """Why these schedules were kept, as far as known."""
    search, default = verdict.search_ms, verdict.default_ms
    if search is not None and default is not None:
        return f": {search:.4g} ms with the search's, {default:.4g} ms with the default ones"
    if verdict.crashed is not None:
        crashed = "search's" if verdict.crashed is Schedules.SEARCH else "default ones"
        return f": with the {crashed}, it crashed"
    if verdict.kept is Schedules.SEARCH:
        return ""
    if verdict.trials == 0:
        return ": no other schedule was tried"
    if verdict.seemed_faster:
        functions = f"{verdict.seemed_faster} of {verdict.workloads} functions"
        return f": others looked faster for {functions}, but not clearly when measured again"
    return ": no other schedule was clearly faster"


def shown_latency(latency: Latency, threads: int | None = None) -> str:
    """The median and the highest percentile that the number of runs supports."""
    tails = (("p99", latency.p99_ms), ("p90", latency.p90_ms))
    tail = next((f", {name} {value:.4g} ms" for name, value in tails if value is not None), "")
    runs = "1 run" if latency.runs == 1 else f"{latency.runs} runs"
    with_threads = "" if threads is None else f", {threads} thread{'' if threads == 1 else 's'}"
    return f"p50 {latency.p50_ms:.4g} ms{tail} ({runs}{with_threads})"


def _verdict(baseline: BaselineResult, shown: str) -> str:
    """The comparison with a baseline; without a ratio if that is unreliable.

    ``shown`` is the reason that the library's line already gives.
    """
    if baseline.doubt:
        reason = "" if baseline.doubt == shown else f": {baseline.doubt}"
        return f"unsteady, so no comparison{reason}; {MEASURE_AGAIN}"
    spread = f"{baseline.ratio_p10:.2g} to {baseline.ratio_p90:.2g}"
    return f"library / {baseline.name}: {baseline.ratio:.2g} (p10 to p90 of the rounds: {spread})"


def _shown_tokens(per_second: float | None) -> str:
    return "" if per_second is None else f", {per_second:.1f} tokens per second"


def _shown_sizes(sizes: Mapping[str, int]) -> str:
    return f" {shown_sizes(sizes)}" if sizes else ""


def _verified_at(sizes: Sequence[Mapping[str, int]]) -> str:
    """The choices of dynamic sizes: ``at batch=4; batch=1``."""
    each = (", ".join(f"{name}={size}" for name, size in one.items()) for one in sizes)
    return f"at {'; '.join(each)}"


def _comparison_lines(verdict: PeerVerdict) -> Iterator[str]:
    """Whether the library beats the other runtimes, and why some were not timed."""
    sides = (
        ("faster than", verdict.beats),
        ("slower than", verdict.loses_to),
        ("undecided:", verdict.undecided),
    )
    found = "; ".join(f"{words} {', '.join(names)}" for words, names in sides if names)
    ratio = (
        "" if verdict.ratio is None else f"; library / {verdict.fastest}, the fastest: {verdict.ratio:.2g}"
    )
    yield f"compared    {found or 'with nothing'}{ratio}"
    for peer in verdict.absent:
        yield f"            without {peer.name}: {peer.reason}"


def _figure_lines(figures: Figures) -> Iterator[str]:
    latency = f"{shown_latency(figures.latency)}{_shown_sizes(figures.sizes)}"
    yield f"latency     {latency}{_shown_tokens(figures.tokens_per_second)}"
    if figures.device is not None:
        yield f"            verified and measured on device {figures.device}"
    if figures.unsteady:
        yield f"            unsteady: {figures.unsteady}"
    for baseline in figures.baselines:
        yield f"{baseline.name:<11} {shown_latency(baseline.latency, baseline.threads)}"
        yield f"            {_verdict(baseline, figures.unsteady)}"
    if figures.comparison is not None:
        yield from _comparison_lines(figures.comparison)
    for entry in figures.entries:
        tokens = _shown_tokens(entry.tokens_per_second)
        yield f"entry       {entry.name}: {shown_latency(entry.latency)}{_shown_sizes(entry.sizes)}{tokens}"
        for baseline in entry.baselines:
            yield f"            {_verdict(baseline, entry.unsteady)}"
        if entry.verified_sizes:
            yield f"            verified {_verified_at(entry.verified_sizes)}"
    yield f"error       at most {figures.max_absolute_error:.3g} (absolute)"
    if figures.verified_sizes:
        yield f"verified    {_verified_at(figures.verified_sizes)}"
    if figures.check and figures.check.latency:
        yield f"checked     in a fresh process: {shown_latency(figures.check.latency)}"
    library, memory = shown_bytes(figures.library_bytes), shown_bytes(figures.peak_memory_bytes)
    yield f"library     {library}, at most {memory} of memory while it loads and runs"
