"""The rounds of a search: each spends trials on the function that promises most."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bessemer.contract.options import SearchEnd
from bessemer.contract.stage import Stage
from worker.compiler.tuning.course import Course, Round
from worker.compiler.tuning.early_bundles import EarlyBundles
from worker.compiler.tuning.phases import seconds_since
from worker.compiler.tuning.record_selection import uncompared, winners
from worker.compiler.tuning.search import TaskSearch
from worker.compiler.tuning.trial_budget import milliseconds, next_task, round_size
from worker.compiler.values import StageContext, Tuned

_OUT_OF_TIME = (SearchEnd.SECONDS, SearchEnd.JOB_TIME)


def search_in_rounds(
    tasks: Sequence[TaskSearch],
    course: Course,
    started: float,
    context: StageContext,
    scope: str,
    early: EarlyBundles | None = None,
    better: Callable[[], Tuned | None] = lambda: None,
) -> SearchEnd:
    """Run rounds until a limit of the request is reached or candidates run out.

    Args:
        tasks: the functions to search.
        course: what happens in the search.
        started: when it began.
        context: the observer of its progress.
        scope: the first note of the progress.
        early: publishes what is ``better`` during the search, if the request asks for that.
        better: the model with the best schedules so far, if they are faster.
    """
    options = course.options
    total = 0 if options.is_without_trials else options.trials
    note = scope
    standings = [task.standing for task in tasks]
    resumed = sum(standing.trials for standing in standings)
    done = course.laid_out_trials + resumed
    elapsed = seconds_since(started)
    course.reach(done, elapsed, standings)
    if early is not None:
        early.published_ms = _published_ms(course, is_resumed=resumed > 0)
    while True:
        end = _stopped(tasks) or course.end(done, elapsed, standings)
        if end in _OUT_OF_TIME and _compare_best(tasks):
            standings, elapsed = [task.standing for task in tasks], seconds_since(started)
            continue
        if end is not None:
            break
        context.observer.progress(Stage.TUNE, done, total, course.shown(elapsed, note), course.estimate)
        index = next_task(standings)
        assert index is not None
        fitting = course.fitting(elapsed, standings, options.trials - done)
        size = round_size(fitting, standings, tasks[index].session.round_trials)
        clock = tasks[index].session.clock
        build, measure = clock.build_seconds, clock.measure_seconds
        space = standings[index].space
        measured = tasks[index].advance(size, course.round_seconds(elapsed, standings, size))
        done, note = done + measured, tasks[index].name
        standings = [task.standing for task in tasks]
        before, elapsed = elapsed, seconds_since(started)
        parts = (clock.build_seconds - build, clock.measure_seconds - measure)
        course.rounds.append(Round(measured, elapsed - before, *parts, space))
        if measured:
            course.reach(done, elapsed, standings)
        left = 0.0 if _stopped(tasks) else course.search_seconds(standings) - elapsed
        if early is not None and early.is_due(course.latency_ms, elapsed, left):
            early.publish(better)
            early.published_ms = course.latency_ms
            elapsed = seconds_since(started)
    note = options.limit_reached(end) if tasks else scope
    last = done if end is SearchEnd.TRIALS else 0
    context.observer.progress(Stage.TUNE, done, last, course.shown(elapsed, note), course.estimate)
    return end


def _published_ms(course: Course, is_resumed: bool) -> float | None:
    """What the model takes in the bundle that is published when a search begins, or goes on."""
    untuned_ms = None if is_resumed else milliseconds(course.untuned_seconds)
    return untuned_ms or course.latency_ms


def _compare_best(tasks: Sequence[TaskSearch]) -> bool:
    """Measure the best records beside the default schedules: those that lose leave time for others.

    Returns:
        Whether any was measured.
    """
    waiting = [] if tasks[0].session.options.force else uncompared(tasks)
    if waiting:
        winners(waiting, tasks[0].session)
    return len(uncompared(waiting)) < len(waiting)


def _stopped(tasks: Sequence[TaskSearch]) -> SearchEnd | None:
    """Whether the user wants the best so far."""
    journal = tasks[0].session.journal if tasks else None
    return SearchEnd.STOPPED if journal is not None and journal.stopped else None
