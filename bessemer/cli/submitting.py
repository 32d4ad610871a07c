"""Upload a command's model, and submit its compilation."""

from pathlib import Path

from rich.console import Console

from bessemer.cli.arguments import Draft
from bessemer.cli.model_argument import ResolvedModel, resolved_model
from bessemer.cli.views import upload_view
from bessemer.client import Client, Job
from bessemer.contract.base import is_digest
from bessemer.contract.model import Model
from bessemer.errors import InvalidArgumentError, NotFoundError


def submitted(client: Client, model: str, draft: Draft, console: Console) -> Job:
    """Submit a compilation, after building and uploading its model if necessary.

    Args:
        client: a client of the server.
        model: a file, the digest of an uploaded model or its first characters, or ``file.py:function``.
        draft: the request of the command line.
        console: where to show the upload.

    Raises:
        InvalidArgumentError: the model or the request is not valid; nothing was uploaded.
        ExportError: the function raised an error, or torch could not export its result.
    """
    inputs = {spec.name: spec for spec in draft.request.inputs}
    with resolved_model(model, inputs, draft.dimensions) as resolved:
        request = draft.with_inputs(resolved.inputs, resolved.dimensions)
        if request.name is None and resolved.name is not None:
            request = request.model_copy(update={"name": resolved.name})
        digest = _uploaded(client, resolved, model, request.name, console)
    return client.post(request.model_copy(update={"model": digest}))


def _uploaded(client: Client, resolved: ResolvedModel, model: str, name: str | None, console: Console) -> str:
    if isinstance(resolved.source, str):
        return uploaded_model(client, resolved.source).digest
    with upload_view(console, Path(model).name) as progress:
        return client.upload(resolved.source, progress, name=resolved.name or name).digest


def uploaded_model(client: Client, digest: str) -> Model:
    """Find an uploaded model by its digest or its first characters.

    Raises:
        InvalidArgumentError: no model matches, and the text may be the name of a missing file.
    """
    try:
        return client.model(digest)
    except NotFoundError as error:
        if is_digest(digest):
            raise
        detail = f"'{digest}' is neither a file nor the start of an uploaded model's digest"
        raise InvalidArgumentError(detail) from error
