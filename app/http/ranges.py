"""The conditions and ranges of a download (RFC 9110, sections 13 and 14). Pure functions."""

import re
from dataclasses import dataclass

_RANGE = re.compile(r"(\d{0,18})-(\d{0,18})")
_TAG = re.compile(r'(?:W/)?("[^"]*")')


@dataclass(frozen=True)
class ByteRange:
    """Bytes from ``start`` to ``end``, exclusive."""

    start: int
    end: int


class RangeNotSatisfiableError(ValueError):
    """The range is malformed, or outside the artifact."""


def requested_range(header: str | None, if_range: str | None, etag: str, size_bytes: int) -> ByteRange | None:
    """The range to send; None for the whole artifact.

    Several ranges, other units, or an ``If-Range`` that does not match give the whole, as the RFC allows.

    Args:
        header: the ``Range`` header.
        if_range: the ``If-Range`` header: the range applies to this entity tag only.
        etag: the artifact's strong entity tag, quoted.
        size_bytes: the artifact's size.

    Raises:
        RangeNotSatisfiableError: the range is malformed, or outside the artifact.
    """
    if header is None or (if_range is not None and if_range.strip() != etag):
        return None
    unit, _, ranges = header.partition("=")
    if unit.strip().lower() != "bytes" or "," in ranges:
        return None
    match = _RANGE.fullmatch(ranges.strip())
    if match is None:
        raise RangeNotSatisfiableError(header)
    return _resolved(match[1], match[2], size_bytes)


def _resolved(first: str, last: str, size_bytes: int) -> ByteRange:
    if first:
        start, end = int(first), min(int(last) + 1, size_bytes) if last else size_bytes
    else:
        start, end = max(size_bytes - int(last or 0), 0), size_bytes
    if start >= end:
        raise RangeNotSatisfiableError(f"{first}-{last}")
    return ByteRange(start, end)


def not_modified(if_none_match: str | None, etag: str) -> bool:
    """Whether the client already has this version, by weak comparison."""
    if if_none_match is None:
        return False
    return if_none_match.strip() == "*" or etag in _TAG.findall(if_none_match)
