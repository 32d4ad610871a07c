"""``docs/architectures.md``, from the newest survey in ``benchmarks/results``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks.architectures.explanations import explain
from benchmarks.architectures.outcomes import Form, Outcome, Reached, Survey
from benchmarks.tables import describe_machine, from_file, newest, table

STAGES = (Reached.TRANSLATED, Reached.BUILT, Reached.VERIFIED)
MAX_CHARACTERS = 220

EMULATED = ("aarch64",)
"""Targets of surveys under emulation."""

PUBLIC = ("plain", "torchvision", "timm", "transformers")
"""The large collections; every other package has a few models."""

INTRODUCTION = (
    "This survey shows which public models compile to a library with torch's outputs: exported programs",
    "(`pt2`), traces, scripts and torch.fx modules (`fx`). It uses small configurations and no tuning. Run",
    "`make bench-architectures` to repeat it.",
    "",
    "A form counts as *saved* if torch writes the file and computes the model's outputs from it. *Verified*",
    "forms pass `verify` with default tolerances. *Strictly* verified forms pass without widening the",
    "tolerance for rounding. *Not continued* forms were only translated.",
    "",
    "Weights are random unless the package ships trained ones. Constant parameters are randomized, and batch",
    "norms get the statistics of a random batch, so that every branch affects the output.",
)


def architectures_page(folder: Path) -> str | None:
    """The page; None without results."""
    path = newest(folder, "architectures")
    if path is None:
        return None
    survey = Survey.model_validate_json(path.read_text())
    parts = (
        _head(path, survey),
        _counts(survey),
        _elsewhere(folder),
        _exceptions(survey),
        _not_saved(survey),
        _all(survey),
    )
    return "\n".join([line for part in parts for line in part] + [""])


def _elsewhere(folder: Path) -> list[str]:
    """The counts and the exceptions for other targets; empty without results."""
    lines: list[str] = []
    for target in EMULATED:
        path = newest(folder, f"architectures-{target}")
        if path is None:
            continue
        survey = Survey.model_validate_json(path.read_text())
        saved = tried(survey.outcomes)
        verified = [one for one in saved if one.got_to(Reached.VERIFIED)]
        rows = [(one.name, one.reached.value, _cell(one.error)) for one in saved if one not in verified]
        lines += [
            f"## {target}, under emulation",
            "",
            f"Of {len(saved)} exported programs compiled for `{target}`, the libraries of {len(verified)} "
            f"are verified: each ran by its bundle's program in qemu. {from_file(path)} "
            f"{describe_machine(survey.machine)}.",
            "",
            *table(
                ("package", "saved", "verified", "models"),
                [_verified_row(package, found) for package, found in _grouped(saved, package_of).items()],
            ),
            "",
        ]
        if rows:
            lines += [*table(("model", "reached", "error"), rows), ""]
    return lines


def _verified_row(package: str, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """A row of counts with the names of the verified models."""
    names = [one.name.partition("/")[2] for one in outcomes if one.got_to(Reached.VERIFIED)]
    return (package, str(len(outcomes)), str(len(names)), ", ".join(names))


def readme_line(folder: Path) -> str:
    """One sentence with the counts of all forms; empty without results."""
    path = newest(folder, "architectures")
    if path is None:
        return ""
    saved = tried(Survey.model_validate_json(path.read_text()).outcomes)
    packages = {package_of(one) for one in saved} - {"plain"}
    verified = sum(one.got_to(Reached.VERIFIED) for one in saved)
    return (
        f"Of {len(saved):,} files of {len({one.name for one in saved})} models from {len(packages)} packages "
        f"(exported, traced, scripted and torch.fx), {verified:,} are verified: "
        "[see the list](docs/architectures.md).\n"
    )


def package_of(outcome: Outcome) -> str:
    """The package of a model, by the name that it is imported by."""
    return outcome.name.partition("/")[0]


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
    others = "[packages.txt](../benchmarks/architectures/packages.txt) has the versions of the others"
    return [
        "# Public architectures",
        "",
        *INTRODUCTION,
        "",
        f"{from_file(path)} {describe_machine(survey.machine)}; {used}; {others}.",
        *_carried(survey),
        "",
    ]


def _carried(survey: Survey) -> list[str]:
    """A sentence on the results that were not repeated."""
    dates = [one.carried_from for one in survey.outcomes if one.carried_from]
    if not dates:
        return []
    return [f"{len(dates)} of the {len(survey.outcomes)} forms are from {', '.join(sorted(set(dates)))}."]


def _counts(survey: Survey) -> list[str]:
    public = [one for one in survey.outcomes if package_of(one) in PUBLIC]
    others = [one for one in survey.outcomes if package_of(one) not in PUBLIC]
    return [
        *_count_table("By form", survey.outcomes, lambda one: one.form.value),
        *_count_table("Public architectures", public, package_of),
        *_count_table("Models of other packages", others, package_of),
    ]


def _count_table(title: str, outcomes: Sequence[Outcome], key: Callable[[Outcome], str]) -> list[str]:
    columns = ("", "saved", *STAGES, "strictly", "not continued")
    rows = [count_row(name, found) for name, found in _grouped(outcomes, key).items()]
    return [f"## {title}", "", *table(columns, [*rows, count_row("**all**", outcomes)]), ""]


def _exceptions(survey: Survey) -> list[str]:
    rows = [
        (one.name, one.form.value, one.reached.value, _cell(one.error), explain(one))
        for one in exceptions(survey.outcomes)
    ]
    lines = ["## Exceptions", ""]
    waiting = unfinished(survey.outcomes)
    if waiting:
        names = ", ".join(f"{one.name} ({one.form.value})" for one in waiting)
        lines += [f"{len(waiting)} were translated but not verified: {names}.", ""]
    if survey.not_run:
        left = Counter(name.partition("/")[0] for name in survey.not_run)
        counts = ", ".join(f"{count} of {package}" for package, count in left.most_common())
        lines += [f"{left.total()} of the survey's models were not run in every form: {counts}.", ""]
    return lines + (
        [*table(("model", "form", "reached", "error", "cause"), rows), ""] if rows else ["None.", ""]
    )


def _not_saved(survey: Survey) -> list[str]:
    """Forms that torch or the package refuses, by its reason."""
    refused = [one for one in survey.outcomes if one.reached is Reached.NOT_MADE]
    reasons = _grouped(refused, lambda one: f"{one.form.value}\n{_general(one.error)}")
    rows = []
    for reason, found in sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0])):
        form, _, error = reason.partition("\n")
        rows.append((str(len(found)), form, _cell(error), ", ".join(one.name for one in found)))
    if not rows:
        return []
    return [
        "## Not saved",
        "",
        f"{len(refused)} forms are not counted, because torch or the package refuses to create or save them:",
        "",
        *table(("forms", "form", "torch's reason", "models"), rows),
        "",
    ]


def _general(error: str) -> str:
    """An error without what differs between models: paths, addresses and numbers."""
    return re.sub(r"0x[0-9a-f]+|(/[\w.-]+){3,}|\d+", "…", error)[:MAX_CHARACTERS]


def _all(survey: Survey) -> list[str]:
    """Every model, with its largest relative difference in each form."""
    rows = []
    for name, found in _grouped(tried(survey.outcomes), lambda one: one.name).items():
        by_form = {one.form: one for one in found}
        cells = (_result(by_form.get(form)) for form in Form)
        rows.append((name, *cells, f"{sum(one.seconds for one in found):.0f}"))
    return [
        "## Every model",
        "",
        "The largest difference relative to the output's largest element, or the last stage passed.",
        "",
        *table(("model", *(form.value for form in Form), "seconds"), rows),
    ]


def _result(outcome: Outcome | None) -> str:
    if outcome is None:
        return ""
    verified = outcome.got_to(Reached.VERIFIED) and outcome.relative_error is not None
    return f"{outcome.relative_error:.1e}" if verified else f"**{outcome.reached.value}**"


def _grouped(outcomes: Iterable[Outcome], key: Callable[[Outcome], str]) -> dict[str, list[Outcome]]:
    groups: dict[str, list[Outcome]] = {}
    for one in outcomes:
        groups.setdefault(key(one), []).append(one)
    return groups


def _cell(text: str) -> str:
    """Fit text into a table cell."""
    return text.replace("](", "] (").replace("|", "\\|").replace("\n", " ")[:MAX_CHARACTERS]
