"""Options that every list takes."""

from datetime import datetime
from typing import Annotated

import typer

__all__ = ["AfterOption", "BeforeOption", "LimitOption", "aware"]


AfterOption = Annotated[
    datetime | None,
    typer.Option(help="Only what came after this moment: 2026-11-30, 2026-11-30T18:00:00, local time."),
]
BeforeOption = Annotated[datetime | None, typer.Option(help="Only what came before this moment, local time.")]
LimitOption = Annotated[int, typer.Option(min=1, max=10_000, help="The newest so many.")]


def aware(moment: datetime | None) -> datetime | None:
    """A moment of the command line, with its time zone."""
    return moment.astimezone() if moment else None
