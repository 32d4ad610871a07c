"""Filters and pages of the lists of compilations and models."""

import re
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field

from bessemer.contract.base import DigestPrefix, Document, JobId
from bessemer.contract.job import JobState
from bessemer.contract.model import ModelFormat, ModelState
from bessemer.contract.names import MAX_LABELS, LabelSelector, Name
from bessemer.contract.target import Word

MAX_PAGE = 200
NUMBER = re.compile(r"[-+]?[0-9.]+")


def _reject_numbers(given: object) -> object:
    """Pydantic would read 20261101 as seconds since 1970."""
    if isinstance(given, (int, float)) or (isinstance(given, str) and NUMBER.fullmatch(given.strip())):
        raise ValueError("expected a time such as 2026-11-01T00:00:00Z, not a number")
    return given


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("expected a time between the years 1 and 9999 in UTC") from error


Moment = Annotated[AwareDatetime, BeforeValidator(_reject_numbers), AfterValidator(_in_utc)]
"""A time, converted to UTC."""


class Page(Document):
    """The part of a list to return."""

    limit: int = Field(
        default=50, ge=1, le=MAX_PAGE, description="Maximum number of entries on a page.", examples=[20]
    )
    cursor: str | None = Field(
        default=None,
        max_length=512,
        description="`next` of the previous page.",
        examples=["MjAyNi0wMS0wMVQxMjowMDowMCswMDowMCAyYzI2YjQ2YjY4ZmZjNjhmZjk5YjQ1M2MxZDMwNDEzNA"],
    )


class Filter(Document):
    """Conditions that every entry of a list meets."""

    created_after: Moment | None = Field(
        default=None,
        description="Only entries created after this time, which must have a time zone.",
        examples=["2026-11-01T00:00:00Z"],
    )
    created_before: Moment | None = Field(
        default=None,
        description="Only entries created before this time, which must have a time zone.",
        examples=["2026-12-01T00:00:00+01:00"],
    )

    def parameters(self) -> dict[str, str | list[str]]:
        """The given fields as query parameters."""
        return self.model_dump(mode="json", exclude_defaults=True)


class CompilationFilter(Filter):
    """Conditions that every compilation of a list meets."""

    state: JobState | None = Field(
        default=None, description="Only compilations in this state.", examples=["running"]
    )
    label: tuple[LabelSelector, ...] = Field(
        default=(),
        max_length=MAX_LABELS,
        description="Only compilations with this label: `key=value`, or `key` for any value. Repeat the "
        "parameter to require several labels.",
        examples=[["team=vision", "nightly"]],
    )
    name: Name | None = Field(
        default=None, description="Only compilations with this name.", examples=["resnet50"]
    )
    model: DigestPrefix | None = Field(
        default=None,
        description="Only compilations of the model with this digest, or with a digest that starts with it.",
        examples=["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"],
    )
    target: Word | None = Field(
        default=None,
        description="Only compilations for this target: the name of a preset, or an `mcpu`.",
        examples=["x86-64-v3"],
    )
    group: JobId | None = Field(
        default=None,
        description="Only compilations of this group.",
        examples=["b51c5a3f0f3e4d0b8a2f6c1d7e9a0b4c"],
    )


class CompilationQuery(CompilationFilter, Page):
    """Filter and page of a list of compilations."""


class ModelFilter(Filter):
    """Conditions that every model of a list meets."""

    state: ModelState | None = Field(
        default=None, description="Only models in this state.", examples=["ready"]
    )
    name: Name | None = Field(default=None, description="Only models with this name.", examples=["resnet50"])
    format: ModelFormat | None = Field(
        default=None, description="Only models of this format, as found by the inspection.", examples=["pt2"]
    )


class ModelQuery(ModelFilter, Page):
    """Filter and page of a list of models."""


EVERYTHING = CompilationFilter()
EVERY_MODEL = ModelFilter()
