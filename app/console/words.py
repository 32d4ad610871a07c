"""Figures as the console's pages show them. Pure functions."""

from datetime import datetime

UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def moment(value: datetime | None) -> str:
    """A time to the second, in UTC; empty for None."""
    return "" if value is None else f"{value:%Y-%m-%d %H:%M:%S}"


def duration(milliseconds: float) -> str:
    """A latency with three or four digits."""
    return f"{milliseconds * 1000:.3g} µs" if milliseconds < 1 else f"{milliseconds:.4g} ms"


def seconds(value: float) -> str:
    """A time of a stage or a compilation."""
    minutes, rest = divmod(value, 60)
    return f"{minutes:.0f} min {rest:.0f} s" if minutes else f"{value:.1f} s"


def size(count: int) -> str:
    """A number of bytes."""
    known = min(count, 1 << 80)  # jobs write sizes: any number occurs
    if known < 1 << 10:
        return f"{known} bytes"
    unit, name = next(each for each in UNITS if known >= each[0])
    return f"{known / unit:.1f} {name}"


def short(digest: str) -> str:
    """The start of an id or a digest, which the API accepts in place of the whole."""
    return digest[:8]


def clip(text: object, most: int = 200) -> str:
    """A text that a model or a user chose, cut to a length that a page can show."""
    shown = str(text)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"
