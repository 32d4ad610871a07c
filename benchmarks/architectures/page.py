"""``docs/architectures.md``, from the newest survey in ``benchmarks/results``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks.architectures.explanations import explain
from benchmarks.architectures.outcomes import Form, Outcome, Reached, Survey
from benchmarks.tables import describe_machine, from_file, newest, table

STAGES = (Reached.TRANSLATED, Reached.BUILT, Reached.VERIFIED)
MAX_CHARACTERS = 220

INTRODUCTION = (
    "This survey shows which public architectures compile to a library with torch's outputs, with small",
    "configurations, random weights and no tuning. Run `make bench-architectures` to repeat it.",
    "",
    "Constant parameters are randomized, and batch norms get the statistics of a random batch, so that every",
    "branch affects the output. *Verified* models pass `verify` with default tolerances. *Strictly* verified",
    "models pass without widening the tolerance for rounding. *Not continued* models were only translated.",
)


def architectures_page(folder: Path) -> str | None:
    """The page; None without results."""
    path = newest(folder, "architectures")
    if path is None:
        return None
    survey = Survey.model_validate_json(path.read_text())
    return "\n".join([*_head(path, survey), *_counts(survey), *_exceptions(survey), *_all(survey), ""])


def readme_line(folder: Path) -> str:
    """One line with the counts of exported programs; empty without results."""
    path = newest(folder, "architectures")
    if path is None:
        return ""
    survey = Survey.model_validate_json(path.read_text())
    exported = tried(one for one in survey.outcomes if one.form is Form.PT2)
    translated, verified = (
        sum(one.got_to(stage) for one in exported) for stage in (Reached.TRANSLATED, Reached.VERIFIED)
    )
    return (
        f"Of {len(exported)} public architectures (torchvision, timm, transformers), {translated} translate "
        f"and {verified} are verified: [see the list](docs/architectures.md).\n"
    )


def tried(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Outcomes of models that could be created and saved."""
    return [one for one in outcomes if one.reached is not Reached.NOT_MADE]


def exceptions(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Outcomes with an error."""
    return [one for one in tried(outcomes) if one.error]


def unfinished(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Outcomes without an error that did not reach the end."""
    return [one for one in tried(outcomes) if one.may_go_on]


def count_row(title: str, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """A row of counts: tried, each stage, strictly verified, not continued."""
    models = tried(outcomes)
    reached = (sum(one.got_to(stage) for one in models) for stage in STAGES)
    strict = sum(bool(one.strict) for one in models)
    return (title, str(len(models)), *map(str, reached), str(strict), str(len(unfinished(models))))


def _head(path: Path, survey: Survey) -> list[str]:
    used = ", ".join(f"{name} {version}" for name, version in sorted(survey.machine.versions.items()))
    return [
        "# Public architectures",
        "",
        *INTRODUCTION,
        "",
        f"{from_file(path)} {describe_machine(survey.machine)}; {used}.",
        "",
    ]


def _counts(survey: Survey) -> list[str]:
    columns = ("", "saved", *STAGES, "strictly", "not continued")
    exported = [one for one in survey.outcomes if one.form is Form.PT2]
    packages = _grouped(exported, lambda one: one.name.partition("/")[0])
    forms = _grouped(survey.outcomes, lambda one: one.form.value)
    rows = [count_row(name, outcomes) for name, outcomes in packages.items()]
    return [
        "## Exported programs",
        "",
        *table(columns, [*rows, count_row("**all**", exported)]),
        "",
        "## By form",
        "",
        *table(columns, [count_row(name, outcomes) for name, outcomes in forms.items()]),
        "",
    ]


def _exceptions(survey: Survey) -> list[str]:
    rows = [
        (one.name, one.form.value, one.reached.value, _cell(one.error), explain(one))
        for one in exceptions(survey.outcomes)
    ]
    left_out = [one for one in survey.outcomes if one.reached is Reached.NOT_MADE]
    lines = ["## Exceptions", ""]
    waiting = unfinished(survey.outcomes)
    if waiting:
        names = ", ".join(f"{one.name} ({one.form.value})" for one in waiting)
        lines += [f"{len(waiting)} were translated but not verified: {names}.", ""]
    if survey.not_run:
        lines += [
            f"{len(survey.not_run)} of the survey's architectures were not run: {', '.join(survey.not_run)}.",
            "",
        ]
    lines += [*table(("model", "form", "reached", "error", "cause"), rows), ""] if rows else ["None.", ""]
    if left_out:
        lines += ["Not counted, because the package or torch could not create or save them:", ""]
        lines += [f"- {one.name} ({one.form.value}): {_cell(one.error)}" for one in left_out]
        lines.append("")
    return lines


def _all(survey: Survey) -> list[str]:
    rows = [
        (one.name, one.form.value, one.reached.value, _error(one.relative_error), f"{one.seconds:g}")
        for one in tried(survey.outcomes)
    ]
    columns = ("model", "form", "reached", "largest relative difference", "seconds")
    return ["## Every model", "", *table(columns, rows)]


def _grouped(outcomes: Iterable[Outcome], key: Callable[[Outcome], str]) -> dict[str, list[Outcome]]:
    groups: dict[str, list[Outcome]] = {}
    for one in outcomes:
        groups.setdefault(key(one), []).append(one)
    return groups


def _error(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}"


def _cell(text: str) -> str:
    """Fit text into a table cell."""
    return text.replace("|", "\\|").replace("\n", " ")[:MAX_CHARACTERS]
