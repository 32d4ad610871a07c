"""Reads ``multipart/form-data`` (RFC 7578) part by part, holding one chunk at a time."""

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from app.http.problems import RefusalError, invalid_problem, refuse
from bessemer.contract.problem import ErrorCode, FieldError

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

MULTIPART = "multipart/form-data"
WITHOUT_BOUNDARY = "its first line is not `--` and the boundary in its Content-Type"
MISFORMED_PART = 'a part does not begin with lines such as `Content-Disposition: form-data; name="model"`'


def boundary_of(content_type: str) -> bytes | None:
    """The boundary in a form's ``Content-Type``; None for other media types.

    Raises:
        RefusalError: a form without a boundary.
    """
    media_type, options = parse_options_header(content_type)
    if media_type.decode("latin-1").lower() != MULTIPART:
        return None
    boundary = options.get(b"boundary", b"")
    if not boundary:
        raise _malformed("its Content-Type has no boundary")
    return boundary


@dataclass(frozen=True)
class _Begin:
    name: str
    file: str | None


class _End:
    pass


_Event = _Begin | bytes | _End


@dataclass(frozen=True)
class Part:
    """A field of a form, and its file name if any. Read its content before the next part."""

    name: str
    file: str | None
    chunks: AsyncIterator[bytes]


class Form:
    """The parts of a body.

    Each method raises ``RefusalError`` if the body is not a form, or ends before the form does.
    """

    def __init__(self, boundary: bytes, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._events: deque[_Event] = deque()
        self._header = ["", ""]
        self._name = ""
        self._file: str | None = None
        self._fed = False
        self._begun = False
        self._over = False
        callbacks: MultipartCallbacks = {
            "on_part_begin": self._begin_part,
            "on_header_field": lambda data, start, end: self._extend_header(0, data[start:end]),
            "on_header_value": lambda data, start, end: self._extend_header(1, data[start:end]),
            "on_header_end": self._end_header,
            "on_headers_finished": lambda: self._events.append(_Begin(self._name, self._file)),
            "on_part_data": lambda data, start, end: self._events.append(bytes(data[start:end])),
            "on_part_end": lambda: self._events.append(_End()),
            "on_end": self._end,
        }
        try:
            self._parser = MultipartParser(boundary, callbacks)
        except FormParserError as error:
            raise _malformed("the boundary in its Content-Type is too long") from error

    async def parts(self) -> AsyncIterator[Part]:
        """The parts in order; unread content of a part is skipped."""
        while (event := await self._next()) is not None:
            if isinstance(event, _Begin):
                yield Part(event.name, event.file, self._content())

    async def _content(self) -> AsyncIterator[bytes]:
        while isinstance(event := await self._next(), bytes):
            yield event

    async def _next(self) -> _Event | None:
        while not self._events:
            if self._over:
                return None
            chunk = await anext(self._chunks, None)
            if chunk is None:
                raise refuse(ErrorCode.UPLOAD_INCOMPLETE, "The body ended before the form did.")
            self._feed(chunk)
        return self._events.popleft()

    def _feed(self, chunk: bytes) -> None:
        if not self._fed:
            # after a newline, the parser skips everything up to the chunk's next hyphen
            chunk = chunk.lstrip(b"\r\n")
            self._fed = bool(chunk)
        try:
            self._parser.write(chunk)
        except FormParserError as error:
            raise _malformed(MISFORMED_PART if self._begun else WITHOUT_BOUNDARY) from error

    def _begin_part(self) -> None:
        self._begun = True
        self._name, self._file, self._header = "", None, ["", ""]

    def _extend_header(self, which: int, data: bytes) -> None:
        self._header[which] += data.decode("latin-1")

    def _end_header(self) -> None:
        field, value = self._header
        if field.lower() == "content-disposition":
            options = parse_options_header(value)[1]
            self._name = options.get(b"name", b"").decode(errors="replace")
            file = options.get(b"filename")
            self._file = None if file is None else file.decode(errors="replace")
        self._header = ["", ""]

    def _end(self) -> None:
        self._over = True


def _malformed(reason: str) -> RefusalError:
    return RefusalError(invalid_problem((FieldError(field="body", message=f"malformed form: {reason}"),)))
