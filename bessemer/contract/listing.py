"""Which compilations or models a list holds."""

import re
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field

from bessemer.contract.base import DigestPrefix, Document
from bessemer.contract.job import JobState
from bessemer.contract.model import ModelFormat, ModelState
from bessemer.contract.names import MAX_LABELS, LabelSelector, Name
from bessemer.contract.target import Word

MAX_PAGE = 200
NUMBER = re.compile(r"[-+]?[0-9.]+")


def _no_number(given: object) -> object:
    """Pydantic would take 20261101 for seconds since 1970."""
    if isinstance(given, (int, float)) or (isinstance(given, str) and NUMBER.fullmatch(given.strip())):
        raise ValueError("expected a moment such as 2026-11-01T00:00:00Z, not a number")
    return given


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("a moment before the year 1 or after the year 9999 of UTC") from error


Moment = Annotated[AwareDatetime, BeforeValidator(_no_number), AfterValidator(_in_utc)]
"""A moment in UTC, whatever its time zone was."""


class Page(Document):
    """Which part of a list is wanted."""

    limit: int = Field(
        default=50, ge=1, le=MAX_PAGE, description="The most entries of one page.", examples=[20]
    )
    cursor: str | None = Field(
        default=None,
        max_length=512,
        description="`next` of the page before.",
        examples=["MjAyNi0wMS0wMVQxMjowMDowMCswMDowMCAyYzI2YjQ2YjY4ZmZjNjhmZjk5YjQ1M2MxZDMwNDEzNA"],
    )


class Filter(Document):
    """What the entries of a list have in common: all that is given."""

    created_after: Moment | None = Field(
        default=None,
        description="Only what was created after this moment, given with its time zone.",
        examples=["2026-11-01T00:00:00Z"],
    )
    created_before: Moment | None = Field(
        default=None,
        description="Only what was created before this moment, given with its time zone.",
        examples=["2026-12-01T00:00:00+01:00"],
    )

    def parameters(self) -> dict[str, str | list[str]]:
        """The fields that are given, as parameters of an address."""
        return self.model_dump(mode="json", exclude_defaults=True)


class CompilationFilter(Filter):
    """What the compilations of a list have in common."""

    state: JobState | None = Field(
        default=None, description="Only compilations in this state.", examples=["running"]
    )
    label: tuple[LabelSelector, ...] = Field(
        default=(),
        max_length=MAX_LABELS,
        description="Only compilations with this label: `key=value`, or `key` for any value. May be given "
        "several times: all must be there.",
        examples=[["team=vision", "nightly"]],
    )
    name: Name | None = Field(
        default=None, description="Only compilations of this name.", examples=["resnet50"]
    )
    model: DigestPrefix | None = Field(
        default=None,
        description="Only compilations of this model: its digest, or the first characters of it.",
        examples=["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"],
    )
    target: Word | None = Field(
        default=None,
        description="Only compilations for this target: a preset's name, or an `mcpu`.",
        examples=["x86-64-v3"],
    )


class CompilationQuery(CompilationFilter, Page):
    """A page of the compilations."""


class ModelFilter(Filter):
    """What the models of a list have in common."""

    state: ModelState | None = Field(
        default=None, description="Only models in this state.", examples=["ready"]
    )
    name: Name | None = Field(default=None, description="Only models of this name.", examples=["resnet50"])
    format: ModelFormat | None = Field(
        default=None,
        description="Only models in which an inspection found this format.",
        examples=["pt2"],
    )


class ModelQuery(ModelFilter, Page):
    """A page of the models."""


EVERYTHING = CompilationFilter()
EVERY_MODEL = ModelFilter()
