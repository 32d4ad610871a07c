"""Figures for readers: three digits, a suitable unit, ratios and outcomes in words."""

import math
from collections.abc import Iterable

from bessemer.contract.options import SearchEnd
from bessemer.contract.report import (
    ANALYTIC,
    RUNTIME,
    BaselineResult,
    BuiltFunctions,
    DeviceEntryRun,
    Estimate,
    Execution,
    FunctionTime,
    GivenSchedule,
    MachineCeiling,
    PeerComparison,
    PeerVerdict,
    Report,
    Schedules,
    SearchDevice,
    StoredRecordsUse,
    TuneResult,
    TuneTask,
    TuneVerdict,
)
from bessemer.contract.stage import Stage

TIMES = "\N{MULTIPLICATION SIGN}"

MAX_SEARCH_SECONDS = 1e6
"""A longer estimate is not shown: it comes from a job, which may report any number."""

SAME_WITHIN = 0.03
"""A ratio this close to 1 counts as equal: repeated runs on one machine differ by as much."""

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_COUNT_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BASELINE_NAMES = {
    "torch-eager": "torch eager",
    "torch-compile": "torch.compile",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
}


def three_digits(value: float) -> str:
    """A number with three significant digits and no exponent between 0.001 and a million."""
    if not math.isfinite(value):
        return {math.inf: "∞", -math.inf: "-∞"}.get(value, "not a number")
    if value == 0:
        return "0"
    if not 1e-3 <= abs(value) < 1e6:
        digits, exponent = f"{value:.2e}".split("e")
        return f"{digits}e{int(exponent)}"
    return f"{value:,.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def element(value: float) -> str:
    """An element of a tensor, with enough digits to tell two neighbors of float32 apart."""
    return f"{value:.9g}" if math.isfinite(value) else three_digits(value)


def duration(milliseconds: float) -> str:
    """A time in a suitable unit: ``421 µs``, ``3.20 ms``, ``12.0 s``, ``4 min 05 s``."""
    if not math.isfinite(milliseconds):
        return three_digits(milliseconds)
    if milliseconds < 1:
        return f"{three_digits(milliseconds * 1000)} µs"
    if milliseconds < 1000:
        return f"{three_digits(milliseconds)} ms"
    if milliseconds < 120_000:
        return f"{three_digits(milliseconds / 1000)} s"
    minutes, seconds = divmod(round(milliseconds / 1000), 60)
    return f"{minutes} min {seconds:02d} s"


def size(count_bytes: int) -> str:
    """A size in a suitable binary unit: ``2.91 MiB``."""
    value = float(count_bytes)
    for unit in _BYTE_UNITS[:-1]:
        if value < 1024:
            return f"{count_bytes} B" if unit == "B" else f"{three_digits(value)} {unit}"
        value /= 1024
    return f"{three_digits(value)} {_BYTE_UNITS[-1]}"


def count(value: int) -> str:
    """A count, abbreviated from ten thousand up: ``9,610``, ``11.7 M``."""
    if value < 10_000:
        return f"{value:,}"
    factor, unit = next(pair for pair in _COUNT_UNITS if value >= pair[0])
    return f"{three_digits(value / factor)} {unit}"


def counted(number: int, noun: str) -> str:
    """A number with its noun: ``1 trial``, ``2 trials``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def percent(share: float) -> str:
    """A share between 0 and 1 in percent."""
    if not math.isfinite(share):
        return three_digits(share)
    return "under 0.1 %" if 0 < share < 0.001 else f"{100 * share:.1f} %"


def baseline_name(name: str) -> str:
    """A baseline's name for readers."""
    return _BASELINE_NAMES.get(name, name)


def baseline_label(baseline: BaselineResult) -> str:
    """A baseline's name with its number of threads."""
    return f"{baseline_name(baseline.name)}{with_threads(baseline)}"


def with_threads(baseline: BaselineResult) -> str:
    """A baseline's number of threads, to append to its name."""
    return ", 1 thread" if baseline.threads == 1 else f", {baseline.threads} threads"


def sentence(text: str) -> str:
    """A clause as a sentence."""
    return f"{text[:1].upper()}{text[1:]}."


def ratio_words(ratio: float) -> str:
    """The library's time over the baseline's, in words: ``1.8x faster than``, ``as fast as``."""
    if not math.isfinite(ratio) or ratio <= 0:
        return "not comparable with"
    if abs(ratio - 1) <= SAME_WITHIN:
        return "as fast as"
    return f"{_times(1 / ratio)} faster than" if ratio < 1 else f"{_times(ratio)} slower than"


def search_note(stage: object, searches: bool) -> str:
    """What to append to the time of the stage ``tune``, which chooses schedules even without a search."""
    return " (no search)" if stage == Stage.TUNE and not searches else ""


def cached_note(stage: object, built: BuiltFunctions | None) -> str:
    """What to append to the time of the stage ``build``: which functions the worker's cache had."""
    if stage != Stage.BUILD or built is None or not built.cached:
        return ""
    functions = counted(built.cached + built.compiled, "function")
    return f" ({built.cached} of {functions} from the worker's cache)"


def runtime_note(functions: Iterable[FunctionTime]) -> str:
    """What the entry `runtime` among the functions is; empty if there is none."""
    if not any(function.name == RUNTIME and function.milliseconds > 0 for function in functions):
        return ""
    return (
        f"“{RUNTIME}” is the rest of a run: checking the inputs, allocating results and calling the "
        "functions. That takes microseconds, however much the functions compute, so its share is large in "
        "small models."
    )


def short_search(verdict: TuneVerdict) -> str:
    """A note if a search was too short to try every function, and how long is enough; else empty."""
    ended = (SearchEnd.SECONDS, SearchEnd.JOB_TIME)
    if verdict.ended_by not in ended or verdict.trials >= verdict.workloads:
        return ""
    candidates = "1 candidate" if verdict.trials == 1 else f"{count(verdict.trials)} candidates"
    tried = f"{candidates} for {count(verdict.workloads)} functions"
    short = f"The search had too little time for this model: {tried}"
    if verdict.enough_seconds is None or not 0 < verdict.enough_seconds < MAX_SEARCH_SECONDS:
        return f"{short}."
    tens = 10 * math.ceil(verdict.enough_seconds / 10)
    enough = f"About {tens} s would allow one candidate for each function"
    return f"{short}. {enough}; several times as long is better."


def peer_headline(verdict: PeerVerdict) -> str:
    """Whether the library beats the other runtimes."""
    if verdict.wins:
        return (
            "Faster than every runtime compared"
            if len(verdict.beats) > 1
            else "Faster than the other runtime"
        )
    if verdict.loses_to:
        return f"Slower than {listed(map(baseline_name, verdict.loses_to))}"
    if verdict.beats:
        return f"Faster than {listed(map(baseline_name, verdict.beats))}"
    return "Not clearly faster or slower" if verdict.undecided else "Nothing to compare with"


def peer_details(verdict: PeerVerdict, baselines: Iterable[BaselineResult]) -> str:
    """By how much the library is faster or slower than the fastest runtime."""
    fastest = next((peer for peer in baselines if peer.name == verdict.fastest), None)
    if fastest is None or verdict.ratio is None:
        return "No other runtime was measured steadily. Measure again when the machine is idle."
    return (
        f"The library is {ratio_words(verdict.ratio)} {baseline_name(fastest.name)}, the fastest other "
        f"runtime, which takes {duration(fastest.latency.p50_ms)} on the same inputs."
    )


def ceiling(machine: MachineCeiling) -> str:
    """What the machine reaches, and how functions are compared with it."""
    return (
        f"The machine reaches {three_digits(machine.flops_per_second / 1e9)} GFLOP/s in a product and "
        f"{three_digits(machine.memory_bytes_per_second / 1e9)} GB/s from memory. A function's ceiling is "
        "what its products take at that rate, or its tensors if that is longer. The list has functions below "
        "80 % of theirs, at most eight, the one with the most to gain first."
    )


def outlook(comparison: PeerComparison, latency_ms: float) -> str:
    """What a search could still bring."""
    share = comparison.could_save_ms / latency_ms if latency_ms > 0 else 0.0
    return (
        "What a search could still bring, by estimate: at 80 % of the ceiling in every function, a run would "
        f"take {duration(comparison.could_save_ms)} less, {percent(min(share, 1.0))} of the latency."
    )


def listed(names: Iterable[str]) -> str:
    """Names as in a sentence: ``a, b and c``."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def ratio_range(baseline: BaselineResult) -> str:
    """The range of most rounds, as the baseline's time over the library's: ``1.2x to 2.5x``."""
    low, high = baseline.ratio_p10, baseline.ratio_p90
    if not (math.isfinite(low) and math.isfinite(high) and 0 < low <= high):
        return ""
    return f"{_times(1 / high)} to {_times(1 / low)}"


def _times(factor: float) -> str:
    digits = three_digits(factor) if factor >= 10 else f"{factor:.2f}" if factor < 1.1 else f"{factor:.1f}"
    return f"{digits}{TIMES}"


def task_outcome(task: TuneTask, result: TuneResult) -> str:
    """Whether the library uses the schedule that the search found for a workload, or why not."""
    if task.kept:
        return "yes"
    if task.won:
        crashed = result.crashed is Schedules.SEARCH
        return f"no: the whole model {'crashed' if crashed else 'was not faster'}"
    if task.skipped:
        reason = task.refusal or task.failure
        return f"no: the space does not fit: {reason}" if reason else "no: the space does not fit"
    if task.found_ms is None:
        return "no: none tried" if task.trials == 0 else "no: none ran"
    return "no: not when measured again" if task.looked_faster else "no: not faster"


def schedule_outcome(schedule: GivenSchedule) -> str:
    """How a schedule from the request compares with the default one."""
    if schedule.skipped is not None:
        return f"not used, since the file does not fit: {schedule.skipped}"
    if schedule.schedule_ms is None:
        return "not timed: dynamic sizes"
    if schedule.default_ms is None:
        return "the default schedule did not run"
    return f"{ratio_words(schedule.schedule_ms / schedule.default_ms)} the default schedule"


def searched_spaces(task: TuneTask) -> str:
    """The spaces of a workload, with the trials of each if there are several."""
    if len(task.spaces) < 2:
        return task.space
    return ", ".join(f"{space.name} ({space.trials})" for space in task.spaces)


def decision(result: TuneResult) -> str:
    """Why the library has its schedules, if the latencies of the whole model do not show it."""
    if result.crashed is Schedules.DEFAULT:
        return "The library uses the search's schedules: with the default ones, the whole model crashed."
    if result.crashed is Schedules.SEARCH:
        return "The library uses the default schedules: with the search's, the whole model crashed."
    if result.kept is Schedules.SEARCH:
        used = sum(task.kept for task in result.tasks)
        return (
            f"The library uses the search's schedules for {used} of {len(result.tasks)} workloads, which "
            "were faster one by one. The whole model was not compared."
        )
    if result.ended_by in (SearchEnd.NO_GPU, SearchEnd.NO_DEVICE):
        measurer = "GPU" if result.ended_by is SearchEnd.NO_GPU else "processor of the target"
        return f"The schedules are ranked by the cost model: no {measurer} measured them."
    if not result.trials:
        return "The library uses the default schedules: no other schedule was tried."
    again = sum(task.looked_faster for task in result.tasks)
    if not again:
        return "The library uses the default schedules: the search found nothing faster for any workload."
    return (
        "The library uses the default schedules: the search looked faster for "
        f"{again} of {len(result.tasks)} workloads, but not clearly when measured again beside the default."
    )


def records_used(use: StoredRecordsUse) -> str:
    """How the service's tuning records were used, in sentences."""
    if use.dropped is not None:
        return (
            "The library uses the default schedules: with the service's tuning records, compiling it failed: "
            f"{use.dropped}"
        )
    total = use.hits + use.misses
    served = f"The service's tuning records had schedules for {use.hits} of {counted(total, 'function')}."
    verbs = "does not apply and was" if use.misfits == 1 else "do not apply and were"
    misfits = f"{counted(use.misfits, 'record')} {verbs} skipped." if use.misfits else ""
    near = (
        f"For {use.near} of the others, the search began with schedules of similar functions: "
        f"{counted(use.near_trials, 'trial')}."
        if use.near
        else ""
    )
    restored = (
        f"An earlier attempt had measured {counted(use.restored_trials, 'trial')}."
        if use.restored_trials
        else ""
    )
    failed = (
        f"The search passed over {counted(use.passed_over, 'candidate')} that did not compile in an earlier "
        "search."
        if use.passed_over
        else ""
    )
    return " ".join(filter(None, (served, near, misfits, failed, restored)))


def rankers_used(result: TuneResult) -> str:
    """What ordered the families' plans before any was measured, in a sentence; empty if nothing did."""
    parts = [
        f"{_ranker(name)} ranked the plans of {counted(count, 'function')}"
        for name, count in sorted(result.rankers.items())
    ]
    return f"Before measuring, {listed(parts)}." if parts else ""


def _ranker(name: str) -> str:
    return "the analytic model of each family" if name == ANALYTIC else f"the cost model “{name}”"


def measured_where(result: TuneResult) -> str:
    """Which devices measured the candidates, and why measuring ended early; empty if the worker measured."""
    named = (f"{each.name} ({_described(each)})" for each in result.devices)
    measured = f"Measured on {', '.join(named)}." if result.devices else ""
    emulated = any(each.emulated for each in result.devices)
    doubt = "Ranked under emulation: the times say nothing about the hardware." if emulated else ""
    lost = sentence(f"the measurements ended: {result.device_failure}") if result.device_failure else ""
    return " ".join(filter(None, (measured, doubt, lost)))


def _described(device: SearchDevice) -> str:
    return f"{device.platform}, emulated" if device.emulated else device.processor or device.platform


def verified_how(report: Report) -> str:
    """How the library ran, as the end of "Verified …": "against the model" and, if need be, where."""
    if report.device is None:
        return ", under emulation" if report.execution is Execution.EMULATED else ""
    how = "verified and measured" if report.device.latency else "verified"
    where = f"{how} on {report.device.name}"
    return f", {where}{', which is emulated' if report.device.emulated else ''}"


def device_error(entry: DeviceEntryRun) -> float:
    """The largest error of an entry point on a device."""
    return max((output.max_absolute_error or 0.0 for output in entry.outputs), default=0.0)


def not_measured(report: Report) -> str:
    """Why a report lacks latencies."""
    if report.device is not None:
        return "The device is emulated, and its times say nothing about the hardware."
    if report.execution is Execution.EMULATED:
        return "The library was verified under emulation, whose times say nothing about the hardware."
    if report.execution is None:
        return "Nothing has run the library, as the request asked."
    if report.execution is Execution.NATIVE:
        return "This bundle was published as soon as the library was verified, before it was measured."
    return "The library was verified on the worker's processor with the target's own C library, not measured."


_GIGAHERTZ = 2
SHORTEST, LONGEST = 0.8, 5.0
"""The range of measured medians over estimates: seven models on an Intel Xeon with AVX-512."""


def estimated(estimate: Estimate) -> str:
    """The work of one run, and how long it takes by the model of the processor."""
    milliseconds = estimate.cycles / (_GIGAHERTZ * 1e6)
    threads = "1 thread" if estimate.threads == 1 else f"each of {estimate.threads} threads"
    return (
        f"One run computes {count(estimate.flops)} floating-point operations and moves "
        f"{size(estimate.moved_bytes)}: by the model of the processor, {count(estimate.cycles)} cycles on "
        f"{threads}, {duration(milliseconds)} at {_GIGAHERTZ} GHz. Libraries that were measured took "
        f"{SHORTEST:g} to {LONGEST:g} times their estimates, the smallest ones the longest."
    )
