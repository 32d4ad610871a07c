"""Outcomes of the survey: one line per architecture while it runs, then one document."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel

from benchmarks.machine import Machine


class Form(StrEnum):
    """A file format."""

    PT2 = "pt2"
    TRACED = "traced"
    SCRIPTED = "scripted"
    FX = "fx"


EVERY_FORM = tuple(Form)


class Reached(StrEnum):
    """The last stage that a model passed, in order.

    ``not_made``: the package could not create the model, or torch could not save it. These are not counted.
    """

    NOT_MADE = "not_made"
    SAVED = "saved"
    CAPTURED = "captured"
    TRANSLATED = "translated"
    BUILT = "built"
    VERIFIED = "verified"


ORDER = tuple(Reached)


class Outcome(BaseModel):
    """The outcome of one architecture in one form.

    Attributes:
        error: why it stopped, or empty.
        relative_error: the largest difference relative to its output's largest element, over all outputs.
        own_error: if it differs too much, the same for torch's result against float64.
        exact_error: the same for our result against float64.
        strict: whether every element is within the default tolerance, without widening for rounding.
        operators: calls in the translated model, with recurrences unrolled.
        compile_seconds: processor time from the exported program to machine code.
        carried_from: the date of the survey that found it, if a later one did not repeat it.
    """

    name: str
    form: Form
    reached: Reached
    error: str = ""
    relative_error: float | None = None
    own_error: float | None = None
    exact_error: float | None = None
    strict: bool | None = None
    seconds: float = 0.0
    operators: int = 0
    compile_seconds: float = 0.0
    carried_from: str = ""

    def got_to(self, stage: Reached) -> bool:
        """Whether it got at least this far."""
        return ORDER.index(self.reached) >= ORDER.index(stage)

    @property
    def may_go_on(self) -> bool:
        """Whether it did not fail and has stages left."""
        return not self.error and self.reached is not Reached.VERIFIED

    def is_done(self, until: Reached) -> bool:
        """Whether nothing is left to do up to a stage."""
        return bool(self.error) or self.got_to(until)


class Survey(BaseModel):
    """The outcomes of one survey, and the architectures that it did not reach."""

    machine: Machine
    outcomes: list[Outcome]
    not_run: list[str] = []


Key = tuple[str, Form]


def read_outcomes(path: Path) -> dict[Key, Outcome]:
    """Read a progress file: the last outcome of each architecture and form."""
    if not path.exists():
        return {}
    outcomes = map(Outcome.model_validate_json, path.read_text().splitlines())
    return {(one.name, one.form): one for one in outcomes}


def append_outcome(path: Path, outcome: Outcome) -> None:
    """Append one line; safe for several processes at once."""
    with path.open("a") as lines:
        lines.write(outcome.model_dump_json() + "\n")


def sort_outcomes(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Sort by package, name and form."""
    forms = tuple(Form)
    return sorted(outcomes, key=lambda one: (one.name.lower(), forms.index(one.form)))
