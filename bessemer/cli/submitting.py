"""Brings a command's model to the server, and asks for its compilation."""

from pathlib import Path

from rich.console import Console

from bessemer.cli.arguments import Draft
from bessemer.cli.model_argument import Made, model_at_hand
from bessemer.cli.views import upload_view
from bessemer.client import Client, Job
from bessemer.contract.base import is_digest
from bessemer.contract.model import Model
from bessemer.errors import InvalidArgumentError, NotFoundError

__all__ = ["submitted", "uploaded_model"]


def submitted(client: Client, model: str, draft: Draft, console: Console) -> Job:
    """Ask for a compilation of a model, which is made and uploaded if need be.

    Args:
        client: of the server.
        model: a file, the digest of an uploaded model or the start of it, or ``file.py:function``.
        draft: what the command line says of the request.
        console: shows the upload.

    Raises:
        InvalidArgumentError: the model cannot be had, or the request with its inputs is not valid; nothing
            was uploaded.
        ExportError: its function raised an error, or torch could not export what it returned.
    """
    inputs = {spec.name: spec for spec in draft.request.inputs}
    with model_at_hand(model, inputs, draft.dimensions) as made:
        request = draft.with_inputs(made.inputs, made.dimensions)
        if request.name is None and made.name is not None:
            request = request.model_copy(update={"name": made.name})
        digest = _uploaded(client, made, model, request.name, console)
    return client.post(request.model_copy(update={"model": digest}))


def _uploaded(client: Client, made: Made, model: str, name: str | None, console: Console) -> str:
    if isinstance(made.source, str):
        return uploaded_model(client, made.source).digest
    with upload_view(console, Path(model).name) as progress:
        return client.upload(made.source, progress, name=made.name or name).digest


def uploaded_model(client: Client, digest: str) -> Model:
    """An uploaded model, by its digest or the start of it.

    Raises:
        InvalidArgumentError: no model has this digest, and the text may be the name of a missing file.
    """
    try:
        return client.model(digest)
    except NotFoundError as error:
        if is_digest(digest):
            raise
        detail = f"there is no file '{digest}', and no uploaded model has a digest that starts with it"
        raise InvalidArgumentError(detail) from error
