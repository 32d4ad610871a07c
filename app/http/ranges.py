"""The conditions and ranges of a download (RFC 9110, sections 13 and 14). Pure functions."""

import re
from dataclasses import dataclass

_RANGE = re.compile(r"(\d{0,18})-(\d{0,18})")
_TAG = re.compile(r'(?:W/)?("[^"]*")')


@dataclass(frozen=True)
class ByteRange:
    """Bytes from ``start`` up to, not including, ``end``."""

    start: int
    end: int


class RangeNotSatisfiableError(ValueError):
    """The range is malformed, or holds no byte of the artifact."""


def requested_range(header: str | None, if_range: str | None, etag: str, size_bytes: int) -> ByteRange | None:
    """The range that is to be sent; None for the whole.

    Several ranges, another unit than bytes, or an ``If-Range`` that does not hold give the whole, as
    the RFC allows.

    Args:
        header: the ``Range`` header.
        if_range: the ``If-Range`` header: the range holds for this entity tag only.
        etag: the artifact's own, quoted and strong.
        size_bytes: of the artifact.

    Raises:
        RangeNotSatisfiableError: the range is malformed, or holds no byte of the artifact.
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
    """Whether the client has this version already, by weak comparison."""
    if if_none_match is None:
        return False
    return if_none_match.strip() == "*" or etag in _TAG.findall(if_none_match)
