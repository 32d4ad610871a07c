"""The course of a search: the whole model's estimated latency after each round, and the time that is left.

``Course`` keeps what happened; what follows from it is decided by pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from bessemer.contract.options import SearchEnd, TuneOptions
from bessemer.contract.report import ModelEstimate, SearchPoint, SearchShares
from worker.compiler.tuning.trial_budget import (
    COMPARISON_ROUNDS,
    MEASURED_ROUNDS,
    Standing,
    next_task,
    search_end,
    share_seconds,
)

GRACE = 0.02
"""The share of the time for tuning by which its last round may be longer than expected."""
SLACK = 1.2
"""What follows a search may take this many times as long as expected. The final comparison uses the rest."""
LONGEST_COMPARISON = 0.1
"""The share of the time for tuning that the final comparison may measure, if it is left."""

KEPT_FOR_JOB = 0.2
KEPT_FOR_JOB_SECONDS = 30.0
"""What a search without a limit of its own leaves of the job's time for its other stages."""

UNTUNED_SHARE = 3
CANDIDATE_SHARE = 0.2
LATEST_ROUNDS = 3
MAX_POINTS = 200
_BOTH_SIDES = 2


class Round(NamedTuple):
    """A round of trials and the wall-clock time that it took, with the parts that built and measured.

    ``space`` proposed the candidates.
    """

    trials: int
    seconds: float
    build_seconds: float = 0.0
    measure_seconds: float = 0.0
    space: str = ""

    @property
    def propose_seconds(self) -> float:
        """The part that does not grow with the number of candidates."""
        return max(0.0, self.seconds - self.build_seconds - self.measure_seconds)


@dataclass(frozen=True)
class Costs:
    """Wall-clock seconds of building a function, of timing it, and of building and timing a model."""

    build_seconds: float = 0.0
    measure_seconds: float = 0.0
    model_seconds: float = 0.0


def costs_of(
    tasks: int, defaults_seconds: float, measure_seconds: float, model_seconds: float | None
) -> Costs:
    """What a search costs besides trials. A model that is not built yet is built twice at its end.

    Args:
        tasks: how many functions were measured with their default schedules.
        defaults_seconds: how long that took.
        measure_seconds: the part of it that measured.
        model_seconds: how long the untuned model took; None if it is not built.
    """
    whole = _BOTH_SIDES * defaults_seconds if model_seconds is None else model_seconds
    count = max(1, tasks)
    return Costs((defaults_seconds - measure_seconds) / count, measure_seconds / count, whole)


def costs_now(costs: Costs, rounds: Sequence[Round]) -> Costs:
    """The costs by the latest rounds, which know how busy the machine is; before these, as measured."""
    latest = [each for each in rounds if each.trials][-LATEST_ROUNDS:]
    trials = sum(each.trials for each in latest)
    if not trials:
        return costs
    build_seconds = sum(each.build_seconds for each in latest) / trials
    measure_seconds = sum(each.measure_seconds for each in latest) / trials
    return replace(costs, build_seconds=build_seconds, measure_seconds=measure_seconds)


def estimate_seconds(
    standings: Sequence[Standing], untuned_seconds: float | None, laid_out_gain: float = 0.0
) -> float | None:
    """The whole model's latency with the best schedules so far.

    It is the sum over the searched functions of best time times calls, plus the time that the untuned model
    takes for everything else. On a busy machine, functions may seem to take longer alone than in the model.
    The estimate is then what the functions take together, at most the untuned latency.

    Args:
        standings: the standing of every function that is searched.
        untuned_seconds: the measured latency with the default schedules, if known.
        laid_out_gain: the seconds by which another layout made the functions faster before their search.

    Returns:
        None if nothing was measured.
    """
    known = [each for each in standings if each.default_seconds is not None and each.best_seconds is not None]
    best = sum(each.weight * (each.best_seconds or 0.0) for each in known)
    default = sum(each.weight * (each.default_seconds or 0.0) for each in known) + laid_out_gain
    if untuned_seconds is None:
        return best if known else None
    if default <= untuned_seconds:
        return best + (untuned_seconds - default)
    return min(untuned_seconds, best)


def lap_rounds(standings: Sequence[Standing]) -> int:
    """How many rounds are a lap: one for each function that still has candidates."""
    return max(1, sum(not standing.exhausted for standing in standings))


def lap_gain(estimates: Sequence[float], rounds: int) -> float | None:
    """The share by which the last lap lowered the estimate; None before there was one.

    Args:
        estimates: before the first round, and after each.
        rounds: how many rounds are a lap.
    """
    if len(estimates) <= rounds or estimates[-1 - rounds] <= 0:
        return None
    return 1 - estimates[-1] / estimates[-1 - rounds]


def estimate_end(
    options: TuneOptions, estimates: Sequence[float], standings: Sequence[Standing]
) -> SearchEnd | None:
    """Why a search ends by what the model is estimated to take; None while it goes on."""
    if options.until_ms is not None and estimates and estimates[-1] * 1e3 <= options.until_ms:
        return SearchEnd.UNTIL_MS
    if options.gain_below is None:
        return None
    gain = lap_gain(estimates, lap_rounds(standings))
    return SearchEnd.GAIN_BELOW if gain is not None and gain < options.gain_below else None


def likely_winners(standings: Sequence[Standing]) -> int:
    """How many functions will be timed beside their default schedules, if the next round finds a winner."""
    winners = {index for index, standing in enumerate(standings) if _may_win(standing)}
    return len(winners | {next_task(standings)} - {None})


def settling_seconds(costs: Costs, winners: int, is_laid_out: bool = False) -> float:
    """What follows a search: timing its winners beside the default schedules, and building the model.

    If the layout changed (``is_laid_out``), the model is built even if no schedule wins.
    """
    again = costs.build_seconds + costs.measure_seconds * COMPARISON_ROUNDS / MEASURED_ROUNDS
    return _BOTH_SIDES * winners * again + (costs.model_seconds if winners or is_laid_out else 0.0)


def longest_comparison(seconds: float | None, elapsed_seconds: float) -> float:
    """How long the final comparison may measure: what is left of the request's time, up to a share of it.

    Args:
        seconds: the request's time for tuning; None without a limit.
        elapsed_seconds: the part of it that has passed when both models are open.
    """
    return 0.0 if seconds is None else min(seconds - elapsed_seconds, LONGEST_COMPARISON * seconds)


def affords_model(search_seconds: float, defaults_seconds: float) -> bool:
    """Whether a search can build the untuned model first, which takes about as long as its functions did."""
    return search_seconds > UNTUNED_SHARE * defaults_seconds


def candidate_timeout(seconds: float | None, most_seconds: float) -> float:
    """How long one candidate may build: a small part of the time for tuning, so that it keeps to that."""
    return most_seconds if seconds is None else min(most_seconds, max(1.0, seconds * CANDIDATE_SHARE))


def open_ended_seconds(left_seconds: float) -> float:
    """How long a search without a limit of time may take of what the job has left."""
    kept = max(KEPT_FOR_JOB * left_seconds, min(KEPT_FOR_JOB_SECONDS, left_seconds / 2))
    return left_seconds - kept


def fitting_trials(
    rounds: Sequence[Round], left_seconds: float, space: str = "", is_proposed: bool = False
) -> int | None:
    """How many trials fit into the time that is left, at the slowest pace of the latest rounds.

    Args:
        rounds: what rounds took.
        left_seconds: the time.
        space: what proposes the candidates. Its own rounds count, or those of others before it had one.
        is_proposed: whether it has proposed some already.

    Returns:
        None if no round has shown a pace yet.
    """
    with_trials = [each for each in rounds if each.trials]
    own = [each for each in with_trials if each.space == space] or with_trials
    latest = own[-LATEST_ROUNDS:]
    slowest = max(((each.seconds - each.propose_seconds) / each.trials for each in latest), default=0.0)
    if slowest <= 0 or left_seconds == inf:
        return None
    proposing = [each.propose_seconds for each in latest]
    left_seconds -= min(proposing) if is_proposed else max(proposing)
    return max(0, min(int(left_seconds / slowest), 1 << 30))


def shares_of(rounds: Sequence[Round]) -> SearchShares | None:
    """Where rounds spent their time; None if there was none."""
    trials, seconds = sum(each.trials for each in rounds), sum(each.seconds for each in rounds)
    if not trials or seconds <= 0:
        return None
    build = min(sum(each.build_seconds for each in rounds) / seconds, 1.0)
    measure = min(sum(each.measure_seconds for each in rounds) / seconds, 1.0)
    return SearchShares(
        trials_per_minute=60 * trials / seconds,
        search=max(0.0, 1.0 - build - measure),
        build=build,
        measure=measure,
    )


def enough_seconds(
    rounds: Sequence[Round], costs: Costs, tasks: int, seconds: float, ended_by: SearchEnd
) -> float | None:
    """About how long a search would have to take for a trial of every function, and to settle the winners.

    Args:
        rounds: what rounds took.
        costs: what a trial takes as long as no round has shown it.
        tasks: the number of functions.
        seconds: how long the search took.
        ended_by: why it ended.

    Returns:
        None unless its time ended before that, and if nothing has shown how long a trial takes.
    """
    trials = sum(each.trials for each in rounds)
    if ended_by not in (SearchEnd.SECONDS, SearchEnd.JOB_TIME) or trials >= tasks:
        return None
    whole = sum(each.seconds for each in rounds)
    trial_seconds = whole / trials if trials else costs.build_seconds + costs.measure_seconds
    if trial_seconds <= 0:
        return None
    settling = SLACK * settling_seconds(costs_now(costs, rounds), tasks)
    return seconds + (tasks - trials) * trial_seconds + settling


def shown_curve(points: Sequence[SearchPoint]) -> tuple[SearchPoint, ...]:
    """The first point, the last, and each that is lower than the one before it; at most ``MAX_POINTS``."""
    lower = [
        point
        for index, point in enumerate(points)
        if index in (0, len(points) - 1) or point.latency_ms < points[index - 1].latency_ms
    ]
    step = max(1, -(-len(lower) // MAX_POINTS))
    kept = lower[::step]
    return tuple(kept if not lower or kept[-1] is lower[-1] else [*kept, lower[-1]])


@dataclass
class Course:
    """What happened in a search so far.

    Attributes:
        tasks: how many functions are searched.
        untuned_seconds: the model's measured latency with the default schedules, if known.
        peers_ms: the measured latencies of other runtimes.
        costs: what was measured before the search.
        left_seconds: what the job had left when the search began.
        laid_out_gain: the seconds by which another layout made the functions faster before their search.
        laid_out_trials: the trials that found it.
        is_laid_out: whether it was chosen.
    """

    options: TuneOptions
    tasks: int = 0
    untuned_seconds: float | None = None
    peers_ms: Mapping[str, float] = field(default_factory=dict)
    costs: Costs = field(default_factory=Costs)
    left_seconds: float = inf
    laid_out_gain: float = 0.0
    laid_out_trials: int = 0
    is_laid_out: bool = False
    rounds: list[Round] = field(default_factory=list)
    points: list[SearchPoint] = field(default_factory=list)

    @property
    def estimates(self) -> tuple[float, ...]:
        """The model's seconds before the first round, and after each."""
        return tuple(point.latency_ms / 1e3 for point in self.points)

    def reach(self, done: int, elapsed_seconds: float, standings: Sequence[Standing]) -> None:
        """Note where the search stands."""
        seconds = estimate_seconds(standings, self.untuned_seconds, self.laid_out_gain)
        if seconds is not None:
            self.points.append(SearchPoint(seconds=elapsed_seconds, trials=done, latency_ms=seconds * 1e3))

    def search_seconds(self, standings: Sequence[Standing]) -> float:
        """How long the search may take, counted from its start; infinite without a limit of time."""
        limit = share_seconds(self.options.seconds).search_seconds
        if limit is not None:
            costs = costs_now(self.costs, self.rounds)
            return limit - SLACK * settling_seconds(costs, likely_winners(standings), self.is_laid_out)
        return open_ended_seconds(self.left_seconds) if self.options.is_open_ended else inf

    def fitting(self, elapsed_seconds: float, standings: Sequence[Standing], wanted: int) -> int:
        """How many of the wanted trials fit into the time that is left."""
        costs, index = self.costs, next_task(standings)
        first = Round(
            1, costs.build_seconds + costs.measure_seconds, costs.build_seconds, costs.measure_seconds
        )
        left_seconds = self.search_seconds(standings) - elapsed_seconds
        if index is None:
            return 0
        following = standings[index]
        fitting = fitting_trials(
            self.rounds or [first], left_seconds, following.space, following.has_proposed
        )
        return wanted if fitting is None else min(wanted, fitting)

    def round_seconds(self, elapsed_seconds: float, standings: Sequence[Standing], trials: int) -> float:
        """How long the next round's builds may take, so that a winner can be built once more."""
        left_seconds = self.search_seconds(standings) - elapsed_seconds
        return left_seconds * trials / (trials + 1) + GRACE * (self.options.seconds or 0.0)

    def end(self, done: int, elapsed_seconds: float, standings: Sequence[Standing]) -> SearchEnd | None:
        """Why the search ends now; None while it goes on."""
        end = search_end(self.options, done, elapsed_seconds, standings)
        if end is not None:
            return end
        limit = self.search_seconds(standings)
        if elapsed_seconds >= limit or self.fitting(elapsed_seconds, standings, 1) < 1:
            return SearchEnd.JOB_TIME if self.options.is_open_ended else SearchEnd.SECONDS
        return estimate_end(self.options, self.estimates, standings)

    @property
    def latency_ms(self) -> float | None:
        """The whole model's estimated latency now; None if nothing was measured."""
        return self.points[-1].latency_ms if self.points else None

    @property
    def estimate(self) -> ModelEstimate | None:
        """The whole model now, with the lines to beat; None if nothing was measured."""
        if not self.points:
            return None
        untuned = self.untuned_seconds
        return ModelEstimate(
            latency_ms=self.points[-1].latency_ms,
            untuned_ms=None if untuned is None else untuned * 1e3,
            peers_ms=dict(self.peers_ms),
        )

    def shown(self, elapsed_seconds: float, note: str) -> str:
        """The progress in words, to follow the number of trials: its time, the model so far, and a note."""
        seconds = self.options.seconds
        limit = "" if seconds is None else f"{elapsed_seconds:.0f} of {seconds:g} s"
        nothing = "no trial has succeeded yet" if self.tasks else ""
        words = ", ".join(filter(None, (limit, _shown_estimate(self.estimate) or nothing)))
        return f"{words}; {note}" if words else note


def _shown_estimate(estimate: ModelEstimate | None) -> str:
    if estimate is None:
        return ""
    lines = {"untuned": estimate.untuned_ms, **estimate.peers_ms}
    to_beat = "".join(f", {name} {value:.3g} ms" for name, value in lines.items() if value is not None)
    what = "functions" if estimate.untuned_ms is None else "model"
    return f"{what} {estimate.latency_ms:.3g} ms{to_beat}"


def _may_win(standing: Standing) -> bool:
    best, default = standing.best_seconds, standing.default_seconds
    return not standing.is_compared and best is not None and (default is None or best < default)
