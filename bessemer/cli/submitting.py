"""Brings a command's model to the server, and asks for its compilation."""

from pathlib import Path

from rich.console import Console

from bessemer.cli.entries import Made, model_at_hand
from bessemer.cli.options import Draft
from bessemer.cli.views import upload_view
from bessemer.client import Client, Job

__all__ = ["submitted"]


def submitted(client: Client, model: str, draft: Draft, console: Console) -> Job:
    """Ask for a compilation of a model, which is made and uploaded if need be.

    Args:
        client: of the server.
        model: a file, the digest of an uploaded model, or ``file.py:function``.
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
        digest = _uploaded(client, made, model, console)
    return client.post(request.model_copy(update={"model": digest}))


def _uploaded(client: Client, made: Made, name: str, console: Console) -> str:
    if isinstance(made.source, str):
        return made.source
    with upload_view(console, Path(name).name) as progress:
        return client.upload(made.source, progress).digest
