"""How far architectures got: kept line by line while the survey runs, then as one document."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel

from benchmarks.machine import Machine


class Form(StrEnum):
    """How a model is saved."""

    PT2 = "pt2"
    TRACED = "traced"
    SCRIPTED = "scripted"
    FX = "fx"


EVERY_FORM = tuple(Form)


class Reached(StrEnum):
    """How far a model got, in this order.

    ``not_made`` where its package could not make it or torch could not save it so: the survey says nothing
    about those.
    """

    NOT_MADE = "not_made"
    SAVED = "saved"
    CAPTURED = "captured"
    TRANSLATED = "translated"
    BUILT = "built"
    VERIFIED = "verified"


ORDER = tuple(Reached)


class Outcome(BaseModel):
    """How far one architecture got in one form.

    Attributes:
        error: what stopped it; empty where nothing did.
        relative_error: the largest difference, as a share of the output's largest element; of the output
            where that is largest.
        own_error: where it differs too much, the same of torch's result from that of float64.
        exact_error: and of ours from that of float64.
        strict: whether every element lies within the default tolerance, narrower than torch's own rounding or
            not.
        operators: calls of the translated model, recurrences written out.
        compile_seconds: processor time from the exported program to machine code.
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

    def got_to(self, stage: Reached) -> bool:
        """Whether it got at least as far."""
        return ORDER.index(self.reached) >= ORDER.index(stage)

    @property
    def may_go_on(self) -> bool:
        """Whether nothing stopped it, and stages are left that it was not taken through."""
        return not self.error and self.reached is not Reached.VERIFIED

    def is_done(self, until: Reached) -> bool:
        """Whether there is nothing left to do on the way to a stage."""
        return bool(self.error) or self.got_to(until)


class Survey(BaseModel):
    """All outcomes of one survey, and the architectures that it did not come to."""

    machine: Machine
    outcomes: list[Outcome]
    not_run: list[str] = []


Key = tuple[str, Form]


def read_outcomes(path: Path) -> dict[Key, Outcome]:
    """The outcomes in a file of lines, the last one of each architecture and form."""
    if not path.exists():
        return {}
    outcomes = map(Outcome.model_validate_json, path.read_text().splitlines())
    return {(one.name, one.form): one for one in outcomes}


def append_outcome(path: Path, outcome: Outcome) -> None:
    """Append one line; several processes may do so at a time."""
    with path.open("a") as lines:
        lines.write(outcome.model_dump_json() + "\n")


def sort_outcomes(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """By package, name and form."""
    forms = tuple(Form)
    return sorted(outcomes, key=lambda one: (one.name.lower(), forms.index(one.form)))
