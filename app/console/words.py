"""Figures as the console's pages show them. Pure functions."""

import re
from datetime import datetime

from markupsafe import Markup, escape

from bessemer.contract.job import Compilation, JobState
from bessemer.figures import words

_CODE_OR_PAGE = re.compile(r"`(?P<code>[^`]*)`|docs/(?P<page>[a-z0-9_-]+)\.md")


def moment(value: datetime | None) -> str:
    """A time to the second, in UTC; empty for None."""
    return "" if value is None else f"{value:%Y-%m-%d %H:%M:%S}"


def tone(job: Compilation) -> str:
    """The class that colors a state: only what was verified, or passed its check, is green."""
    if job.state is not JobState.SUCCEEDED:
        return job.state.value
    if job.compiles is False:
        return JobState.FAILED.value
    return JobState.SUCCEEDED.value if job.verified or job.compiles else "unverified"


def tick(milliseconds: float) -> str:
    """A latency on an axis, without trailing zeros."""
    return f"{milliseconds * 1000:.3g} µs" if milliseconds < 1 else f"{milliseconds:.4g} ms"


def seconds(value: float) -> str:
    """A time of a stage or a compilation."""
    if value < 59.95:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def size(count: int) -> str:
    """A number of bytes. Jobs write sizes, so any number occurs."""
    return words.size(min(count, 1 << 80))


def short(digest: str) -> str:
    """The start of an id or a digest, which the API accepts in place of the whole."""
    return digest[:8]


def prose(text: str, root: str, has_guide: bool) -> Markup:
    """A text of the API as HTML: what is between backquotes as code, and pages of ``docs/`` as links.

    Args:
        text: the text.
        root: the root path of the app, which serves the pages at ``/guide``.
        has_guide: the pages are built; otherwise their names stay plain text.
    """
    pieces: list[Markup] = []
    end = 0
    for found in _CODE_OR_PAGE.finditer(text):
        pieces.append(escape(text[end : found.start()]))
        if found["page"] is None:
            pieces.append(Markup("<code>{}</code>").format(found["code"]))
        elif not has_guide:
            pieces.append(escape(found[0]))
        else:
            pieces.append(Markup('<a href="{}/guide/{}/">{}</a>').format(root, found["page"], found[0]))
        end = found.end()
    return Markup("").join((*pieces, escape(text[end:])))


def clip(text: object, most: int = 200) -> str:
    """A text that a model or a user chose, cut to a length that a page can show."""
    shown = str(text)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"
