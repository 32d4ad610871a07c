"""Logs of app and worker: lines of text or of JSON, which name the request, job and worker they are about."""

import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from typing import TypedDict, Unpack

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

from bessemer.contract.queue import TaskKind

OWN_LOGGERS = ("app", "bessemer", "worker")
OTHERS_LEVEL = logging.WARNING
_ADDRESS = re.compile(r"://\S+")
_PASSWORD = re.compile(r"(://[^:/@\s]*:)[^@\s]+@")
_WEB_ADDRESS = re.compile(r"\bhttps?://[^\s\"']+")
_CONTROL_CODES = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
_ESCAPES = str.maketrans({chr(code): repr(chr(code))[1:-1] for code in _CONTROL_CODES})
HIDDEN = "***"


class LogFields(TypedDict, total=False):
    """What a line can be about. ``docs/observability.md`` says what each is."""

    request: str
    worker: str
    task: str
    job: str
    model: str
    invocation: str
    attempt: int
    method: str
    route: str
    status: int
    seconds: float


_FIELDS: ContextVar[LogFields] = ContextVar("bessemer_log_fields")


class LogFormat(StrEnum):
    """The form of a line."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The least that a line must matter."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogSettings(BaseSettings):
    """Read from ``BESSEMER_*``, by app and worker alike."""

    model_config = SettingsConfigDict(env_prefix="BESSEMER_", extra="ignore", frozen=True)

    log_format: LogFormat = Field(
        default=LogFormat.TEXT, description="`text`, or `json`: one document a line, on standard error."
    )
    log_level: LogLevel = Field(
        default=LogLevel.INFO,
        description="`debug`, `info`, `warning` or `error`: lines that matter less are left out. Those of "
        "libraries are left out below `warning` anyway.",
    )
    access_log: bool = Field(
        default=False, description="Whether the app logs a line for each request that it answered."
    )


@contextmanager
def log_fields(**fields: Unpack[LogFields]) -> Iterator[None]:
    """Add fields to every line that is logged within the context, in its threads and tasks too."""
    token = _FIELDS.set({**_FIELDS.get({}), **fields})
    try:
        yield
    finally:
        _FIELDS.reset(token)


def begin_log_fields(**fields: Unpack[LogFields]) -> None:
    """Let every line that the present task logs from now on have these fields, and none from before."""
    _FIELDS.set(fields)


def add_log_fields(**fields: Unpack[LogFields]) -> None:
    """Add fields to those of the innermost ``log_fields`` or ``begin_log_fields``.

    Whoever logs within the same sees them, in whichever thread they were added.
    """
    _FIELDS.get({}).update(fields)


def task_fields(kind: TaskKind, task_id: str) -> LogFields:
    """What a task is about."""
    match kind:
        case TaskKind.INSPECT:
            return {"task": kind.value, "model": task_id}
        case TaskKind.INVOKE:
            return {"task": kind.value, "invocation": task_id}
        case TaskKind.COMPILE | TaskKind.PREFLIGHT:
            return {"task": kind.value, "job": task_id}


def set_up_logs(settings: LogSettings) -> None:
    """Log to standard error: what is ours as the settings say, of libraries what is worth a warning."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(make_formatter(settings.log_format))
    logging.basicConfig(level=OTHERS_LEVEL, handlers=[handler], force=True)
    for name in OWN_LOGGERS:
        logging.getLogger(name).setLevel(settings.log_level.upper())
    logging.getLogger("app.access").setLevel(logging.INFO if settings.access_log else logging.WARNING)
    logging.captureWarnings(True)


def make_formatter(form: LogFormat) -> logging.Formatter:
    """What makes lines of records."""
    return JsonLines() if form is LogFormat.JSON else TextLines()


class TextLines(logging.Formatter):
    """``time level logger: message [job=… attempt=1]``."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """The first line, with its fields. What it quotes can neither end it nor steer a terminal."""
        fields = " ".join(f"{name}={value}" for name, value in _fields_of(record).items())
        line = super().formatMessage(record) + (f" [{fields}]" if fields else "")
        return line.translate(_ESCAPES)

    def format(self, record: logging.LogRecord) -> str:
        """The whole, without secrets."""
        return without_secrets(super().format(record))


class JsonLines(JsonFormatter):
    """One JSON document a line: ``time``, ``level``, ``logger``, ``message``, the fields, ``exc_info``."""

    def __init__(self) -> None:
        super().__init__(
            "%(levelname)s %(name)s %(message)s",
            rename_fields={"levelname": "level", "name": "logger"},
            reserved_attrs=[*RESERVED_ATTRS, "fields"],
        )

    def add_fields(
        self, log_data: dict[str, object], record: logging.LogRecord, message_dict: dict[str, object]
    ) -> None:
        """Time first, then what every line has, then what this one is about."""
        log_data["time"] = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        super().add_fields(log_data, record, message_dict)
        log_data.update(_fields_of(record))

    def format(self, record: logging.LogRecord) -> str:
        """The line, without secrets."""
        return without_secrets(super().format(record))


def without_secrets(text: str) -> str:
    """A text whose addresses have neither password nor query: signed addresses carry keys there."""
    return _WEB_ADDRESS.sub(_without_query, _ADDRESS.sub(_without_password, text))


def _without_password(address: re.Match[str]) -> str:
    """Behind the last ``@`` nothing is looked for: else a line takes time by the square of its length."""
    end = address[0].rfind("@") + 1
    return _PASSWORD.sub(rf"\1{HIDDEN}@", address[0][:end]) + address[0][end:]


def _without_query(address: re.Match[str]) -> str:
    place, _, query = address[0].partition("?")
    return f"{place}?{HIDDEN}" if query else address[0]


def _fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    own: Mapping[str, object] = getattr(record, "fields", {})
    return {**_FIELDS.get({}), **own}
