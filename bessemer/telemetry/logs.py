"""Logs of app and worker, as text or JSON lines with fields such as request, job and worker."""

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
_KEY = re.compile(r"\b(bsm_[0-9a-f]{12}_)[\w-]+")
_TOKEN = re.compile(r"(?<![\w-])eyJ[\w-]+\.[\w-]+\.[\w-]+")
_WEB_ADDRESS = re.compile(r"\bhttps?://[^\s\"']+")
_CONTROL_CODES = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
_ESCAPES = str.maketrans({chr(code): repr(chr(code))[1:-1] for code in _CONTROL_CODES})
HIDDEN = "***"


class LogFields(TypedDict, total=False):
    """The fields of a log line. ``docs/observability.md`` describes them."""

    request: str
    worker: str
    task: str
    job: str
    model: str
    invocation: str
    inspection: str
    group: str
    attempt: int
    method: str
    route: str
    status: int
    seconds: float
    caller: str
    tenant: str


_FIELDS: ContextVar[LogFields] = ContextVar("bessemer_log_fields")


class LogFormat(StrEnum):
    """The format of log lines."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The minimum level of log lines."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogSettings(BaseSettings):
    """Log settings of app and worker, read from ``BESSEMER_*``."""

    model_config = SettingsConfigDict(env_prefix="BESSEMER_", extra="ignore", frozen=True)

    log_format: LogFormat = Field(
        default=LogFormat.TEXT,
        description="`text`, or `json` for one JSON document per line. Logs go to standard error.",
    )
    log_level: LogLevel = Field(
        default=LogLevel.INFO,
        description="Minimum level: `debug`, `info`, `warning` or `error`. Libraries always log from "
        "`warning` up.",
    )
    access_log: bool = Field(default=False, description="Whether the app logs a line for each request.")


@contextmanager
def log_fields(**fields: Unpack[LogFields]) -> Iterator[None]:
    """Add fields to every line logged in this context, including its threads and tasks."""
    token = _FIELDS.set({**_FIELDS.get({}), **fields})
    try:
        yield
    finally:
        _FIELDS.reset(token)


def begin_log_fields(**fields: Unpack[LogFields]) -> None:
    """Replace the fields of the current task's log lines."""
    _FIELDS.set(fields)


def add_log_fields(**fields: Unpack[LogFields]) -> None:
    """Add fields to the innermost ``log_fields`` or ``begin_log_fields``, for all threads and tasks in it."""
    _FIELDS.get({}).update(fields)


def task_fields(kind: TaskKind, task_id: str) -> LogFields:
    """The log fields for a task."""
    match kind:
        case TaskKind.INSPECT:
            return {"task": kind.value, "inspection": task_id}
        case TaskKind.INVOKE:
            return {"task": kind.value, "invocation": task_id}
        case TaskKind.COMPILE | TaskKind.PREFLIGHT:
            return {"task": kind.value, "job": task_id}


def set_up_logs(settings: LogSettings) -> None:
    """Log to standard error: Bessemer's lines by the settings, those of libraries from warnings up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(make_formatter(settings.log_format))
    logging.basicConfig(level=OTHERS_LEVEL, handlers=[handler], force=True)
    for name in OWN_LOGGERS:
        logging.getLogger(name).setLevel(settings.log_level.upper())
    logging.getLogger("app.access").setLevel(logging.INFO if settings.access_log else logging.WARNING)
    logging.captureWarnings(True)


def make_formatter(form: LogFormat) -> logging.Formatter:
    """The formatter for a format."""
    return JsonLines() if form is LogFormat.JSON else TextLines()


class TextLines(logging.Formatter):
    """``time level logger: message [job=… attempt=1]``."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Format the first line with its fields, and escape control characters."""
        fields = " ".join(f"{name}={value}" for name, value in _fields_of(record).items())
        line = super().formatMessage(record) + (f" [{fields}]" if fields else "")
        return line.translate(_ESCAPES)

    def format(self, record: logging.LogRecord) -> str:
        """Format the whole record without secrets."""
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
        """Add the time, the common fields and the context's fields, in this order."""
        log_data["time"] = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        super().add_fields(log_data, record, message_dict)
        log_data.update(_fields_of(record))

    def format(self, record: logging.LogRecord) -> str:
        """Format the line without secrets."""
        return without_secrets(super().format(record))


def without_secrets(text: str) -> str:
    """Hide API keys, JSON Web Tokens, and the passwords and queries of URLs; signed URLs contain keys."""
    text = _TOKEN.sub(HIDDEN, _KEY.sub(rf"\1{HIDDEN}", text))
    return _WEB_ADDRESS.sub(_without_query, _ADDRESS.sub(_without_password, text))


def _without_password(address: re.Match[str]) -> str:
    """Search only up to the last ``@``, or a long line would take quadratic time."""
    end = address[0].rfind("@") + 1
    return _PASSWORD.sub(rf"\1{HIDDEN}@", address[0][:end]) + address[0][end:]


def _without_query(address: re.Match[str]) -> str:
    place, _, query = address[0].partition("?")
    return f"{place}?{HIDDEN}" if query else address[0]


def _fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    own: Mapping[str, object] = getattr(record, "fields", {})
    return {**_FIELDS.get({}), **own}
