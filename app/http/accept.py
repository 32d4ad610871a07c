"""Content negotiation between HTML and JSON (RFC 9110, section 12.5.1). Pure functions."""

HTML = "text/html"
JSON = "application/json"


def prefers_html(accept: str | None) -> bool:
    """Whether the ``Accept`` header ranks HTML above JSON; a tie goes to JSON."""
    ranges = [_media_range(part) for part in (accept or "*/*").split(",")]
    return _quality(HTML, ranges) > _quality(JSON, ranges)


def _media_range(text: str) -> tuple[str, float]:
    name, *parameters = (part.strip().lower() for part in text.split(";"))
    quality = 1.0
    for parameter in parameters:
        if parameter.startswith("q="):
            quality = _number(parameter[2:])
    return name, quality


def _number(text: str) -> float:
    try:
        return min(1.0, max(0.0, float(text)))
    except ValueError:
        return 0.0


def _quality(media_type: str, ranges: list[tuple[str, float]]) -> float:
    """The quality of the most specific range that covers the type."""
    qualities = dict(reversed(ranges))
    for name in (media_type, f"{media_type.partition('/')[0]}/*", "*/*"):
        if name in qualities:
            return qualities[name]
    return 0.0
