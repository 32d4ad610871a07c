"""Brings a command's model to the server, and asks for its compilation."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from bessemer.cli.entries import Made, model_at_hand
from bessemer.cli.options import checked_request
from bessemer.cli.views import upload_view
from bessemer.client import Client, Job
from bessemer.client.inputs import NO_DIMENSIONS

__all__ = ["submitted"]


def submitted(client: Client, model: str, fields: Mapping[str, Any], console: Console) -> Job:
    """Ask for a compilation of a model, which is made and uploaded if need be.

    Args:
        client: of the server.
        model: a file, the digest of an uploaded model, or ``file.py:function``.
        fields: of the request, as ``request_fields`` gives them.
        console: shows the upload.

    Raises:
        InvalidArgumentError: the model cannot be had, or the request with its inputs is not valid; nothing
            was uploaded.
        ExportError: its function raised an error, or torch could not export what it returned.
    """
    inputs = {spec.name: spec for spec in fields.get("inputs", ())}
    with model_at_hand(model, inputs, fields.get("dimensions", NO_DIMENSIONS)) as made:
        request = checked_request({**fields, **_named(made)})
        digest = _uploaded(client, made, model, console)
    return client.post(request.model_copy(update={"model": digest}))


def _named(made: Made) -> dict[str, Any]:
    return {"inputs": made.inputs, "dimensions": made.dimensions}


def _uploaded(client: Client, made: Made, name: str, console: Console) -> str:
    if isinstance(made.source, str):
        return made.source
    with upload_view(console, Path(name).name) as progress:
        return client.upload(made.source, progress).digest
