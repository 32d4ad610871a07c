"""Submissions as forms: the model, the extensions and the request in one body.

Files are stored as uploads, and the request, with their digests, becomes the route's JSON body.
"""

import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from fastapi import Request, Response
from starlette.requests import ClientDisconnect
from starlette.types import Message

from app.http.bodies import MAX_DOCUMENT_BYTES, DocumentRoute, in_time
from app.http.json_bodies import read_json
from app.http.multipart import MULTIPART, Form, Part, boundary_of
from app.http.problems import RefusalError, invalid_problem, refuse
from app.http.uploads import receive_extension, receive_model, refuse_if_too_large
from app.http.validation import clean, not_json
from app.identity.caller import Caller
from app.service import Service, TenantService
from bessemer.contract.base import is_digest
from bessemer.contract.extension import MAX_EXTENSIONS, extension_name
from bessemer.contract.names import name_of_file
from bessemer.contract.options import MAX_RECORDS
from bessemer.contract.problem import ErrorCode, FieldError
from bessemer.contract.request import MAX_ENTRIES
from bessemer.store.errors import DigestMismatchError

MODEL, EXTENSION, RECORDS, REQUEST = "model", "extension", "records", "request"
ENVELOPE_BYTES = MAX_DOCUMENT_BYTES + (1 << 16)
"""The maximum size of a form without its files."""


EXPECTED = (
    f"expected `{MODEL}`, at most {MAX_EXTENSIONS} `{EXTENSION}`, {MAX_RECORDS} `{RECORDS}` and one "
    f"`{REQUEST}` in the form"
)


class SubmissionRoute(DocumentRoute):
    """A route that also accepts a form instead of a JSON body."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap the route's handler to read forms."""
        handler = super().get_route_handler()

        async def submit(request: Request) -> Response:
            boundary = boundary_of(request.headers.get("content-type", ""))
            return await handler(request if boundary is None else await _as_json(request, boundary))

        return submit


async def _as_json(request: Request, boundary: bytes) -> Request:
    service = _service(request)
    settings = service.settings
    most_bytes = (
        settings.max_upload_bytes
        + (MAX_EXTENSIONS + MAX_RECORDS) * settings.max_extension_bytes
        + ENVELOPE_BYTES
    )
    refuse_if_too_large(request, most_bytes)
    async with aclosing(Request(request.scope, in_time(request)).stream()) as chunks:
        try:
            document = await _read(service, Form(boundary, chunks))
        except ClientDisconnect as error:
            raise refuse(
                ErrorCode.UPLOAD_INCOMPLETE, "The connection closed before the form was complete."
            ) from error
    return _with_body(request, json.dumps(document).encode())


def _service(request: Request) -> TenantService:
    service: Service = request.app.state.service
    caller: Caller = request.state.caller
    return service.for_caller(caller)


async def _read(service: TenantService, form: Form) -> dict[str, Any]:
    received = _Received(service)
    async for part in form.parts():
        if part.name == MODEL and len(received.models) < MAX_ENTRIES:
            await received.take_model(part)
        elif part.name == EXTENSION and len(received.extensions) < MAX_EXTENSIONS:
            await received.take_extension(part)
        elif part.name == RECORDS and len(received.records) < MAX_RECORDS:
            await received.take_records(part)
        elif part.name == REQUEST and received.request is None:
            received.request = await _document(part)
        else:
            raise _invalid(part.name[:64] or "body", EXPECTED)
    return received.document()


class _Received:
    """The parts of a form so far: stored files, the models by name, and the request."""

    def __init__(self, service: TenantService) -> None:
        self._service = service
        self._digest: str | None = None
        self._name: str | None = None
        self.models: dict[str, str] = {}
        self.extensions: list[str] = []
        self._names: dict[str, str] = {}
        self.records: list[str] = []
        self.request: dict[str, Any] | None = None

    async def take_model(self, part: Part) -> None:
        """Store a model."""
        promised = self.request.get("model") if self.request and self._digest is None else None
        expected = promised if is_digest(promised) else None
        stem = name_of_file(part.file or "")
        digest = (await receive_model(self._service, part.chunks, expected, stem))[0].digest
        if self._digest is None:
            self._digest, self._name = digest, stem
        elif stem is None or stem in self.models or "" in self.models:
            raise _invalid(MODEL, "each of several models needs a file name of its own, such as decode.pt2")
        self.models[stem or ""] = digest

    async def take_extension(self, part: Part) -> None:
        """Store an extension."""
        name = extension_name(part.file or "")
        digest = (await receive_extension(self._service, part.chunks, None, name))[0].digest
        self.extensions.append(digest)
        if name is not None:
            self._names.setdefault(digest, name)

    async def take_records(self, part: Part) -> None:
        """Store a file of tuning records."""
        name = extension_name(part.file or "")
        self.records.append((await receive_extension(self._service, part.chunks, None, name))[0].digest)

    def document(self) -> dict[str, Any]:
        """The request with the digests of the files."""
        digest, document = self._digest, self.request
        if digest is None or document is None:
            raise _invalid(MODEL if digest is None else REQUEST, "required: missing from the form")
        if self._name is not None:
            document.setdefault("name", self._name)
        named = document.setdefault("model", digest)
        if is_digest(named) and named != digest:
            raise DigestMismatchError(named, digest)
        if self.extensions:
            document["extensions"] = _joined(document.get("extensions"), self.extensions)
        if self._names:
            names = document.setdefault("extension_names", {})
            if isinstance(names, dict):
                document["extension_names"] = {**self._names, **names}
        if self.records:
            tune = document.setdefault("tune", {})
            if isinstance(tune, dict):
                tune["records"] = _joined(tune.get("records"), self.records)
        if len(self.models) > 1:
            document["entries"] = _entries(document.get("entries"), self.models)
        return document


def _joined(named: Any, sent: Sequence[str]) -> Any:
    """The digests that the request names, then those of the form's files; each once."""
    is_list = isinstance(named, list) and all(isinstance(digest, str) for digest in named)
    if named is not None and not is_list:
        return named  # the route refuses it
    return list(dict.fromkeys([*(named or ()), *sent]))


def _entries(entries: Any, files: Mapping[str, str]) -> dict[str, Any]:
    """The entries, each with the model of the file that has its name."""
    named = {stem: {} for stem in files} if entries is None else entries
    if not isinstance(named, dict) or not all(isinstance(entry, dict) for entry in named.values()):
        raise _invalid("entries", "expected an object of objects")
    strange = [stem for stem in files if stem not in named]
    if strange:
        raise _invalid(
            MODEL, f"no entry has the name of the file '{strange[0]}'; entries: {', '.join(named)}"
        )
    return {
        name: {"model": files[name], **entry} if name in files else entry for name, entry in named.items()
    }


async def _document(part: Part) -> dict[str, Any]:
    data = bytearray()
    async for chunk in part.chunks:
        data += chunk
        if len(data) > MAX_DOCUMENT_BYTES:
            detail = f"`{REQUEST}` exceeds {MAX_DOCUMENT_BYTES} bytes."
            raise refuse(ErrorCode.REQUEST_TOO_LARGE, detail)
    try:
        document = read_json(data)
    except (ValueError, RecursionError) as error:
        raise _invalid(REQUEST, not_json(error)) from error
    if not isinstance(document, dict):
        raise _invalid(REQUEST, "expected a JSON object")
    return document


def _with_body(request: Request, body: bytes) -> Request:
    """The request with a JSON body instead of its own."""
    kept = [
        (name, value)
        for name, value in request.scope["headers"]
        if name not in (b"content-type", b"content-length", b"transfer-encoding")
    ]
    headers = [
        *kept,
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request({**request.scope, "headers": headers}, receive)


def _invalid(field: str, message: str) -> RefusalError:
    return RefusalError(invalid_problem((FieldError(field=field, message=clean(message)),)))


FORM: dict[str, Any] = {
    "requestBody": {
        "description": "The request for an uploaded model, or a form with the files and the request.",
        "content": {
            MULTIPART: {
                "schema": {
                    "type": "object",
                    "description": "The model and the request, in any order; `request` needs no `model`. "
                    "The file's name becomes the name of the model and of the compilation, unless `request` "
                    "has a `name`. Several `model` parts become the entries with the names of their files. "
                    "The model stays stored if the request is refused.",
                    "required": [MODEL, REQUEST],
                    "properties": {
                        MODEL: {
                            "type": "string",
                            "format": "binary",
                            "description": "The model's file. Repeat it for each of several.",
                        },
                        EXTENSION: {
                            "type": "string",
                            "format": "binary",
                            "description": "A Python file for this compilation. Repeat it for each of "
                            "several.",
                        },
                        RECORDS: {
                            "type": "string",
                            "format": "binary",
                            "description": "`database_workload.json`, `database_tuning_record.json` or "
                            "`extensions.json` of an earlier search, for `tune.records`. Send all.",
                        },
                        REQUEST: {
                            "type": "object",
                            "description": "A `Submission` without `model`, as JSON.",
                        },
                    },
                },
                "encoding": {REQUEST: {"contentType": "application/json"}},
                "examples": {
                    "a form": {
                        "summary": '`curl -F model=@mlp.pt2 -F \'request={"target": "host"}\'`',
                        "value": {MODEL: "(the file's bytes)", REQUEST: {"target": "host"}},
                    }
                },
            }
        },
    }
}
"""The form in the OpenAPI document."""
