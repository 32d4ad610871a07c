"""What became of what a search found, in words."""

from bessemer.contract.report import Schedules, TuneResult, TuneTask


def fate(task: TuneTask, result: TuneResult) -> str:
    """Whether the library has what was found for a workload; why not, as far as that is known."""
    if task.kept:
        return "yes"
    if task.won:
        crashed = result.crashed is Schedules.SEARCH
        return f"no: the whole model {'crashed' if crashed else 'was not faster'}"
    if task.found_ms is None:
        return "no: none tried" if task.trials == 0 else "no: none ran"
    return "no: not when measured again" if _looked_faster(task) else "no: not faster"


def decision(result: TuneResult) -> str:
    """Why the library has its schedules, where the whole model's two latencies do not say it."""
    if result.crashed is Schedules.DEFAULT:
        return "The library has the search's schedules: with the default ones, the whole model crashed."
    if result.crashed is Schedules.SEARCH:
        return "The library has the default schedules: with the search's, the whole model crashed."
    again = sum(map(_looked_faster, result.tasks))
    if not again:
        return "The library has the default schedules: the search found nothing faster for any workload."
    return (
        f"The library has the default schedules: what looked faster for {again} of {len(result.tasks)} "
        "workloads was not clearly so when measured again beside the default."
    )


def _looked_faster(task: TuneTask) -> bool:
    return task.found_ms is not None and (task.default_ms is None or task.found_ms < task.default_ms)
