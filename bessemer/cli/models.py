"""``bessemer inspect`` and ``targets``."""

from collections.abc import Iterator
from pathlib import Path

from bessemer.cli.options import ModelArgument
from bessemer.cli.output import (
    JsonOption,
    UrlOption,
    aligned,
    clean,
    connected,
    errors,
    print_json,
    results,
    shown_bytes,
)
from bessemer.cli.views import upload_view
from bessemer.client.sources import is_digest
from bessemer.contract.dynamic import shown_shape
from bessemer.contract.model import Model

__all__ = ["inspect", "targets"]


def targets(json: JsonOption = False, url: UrlOption = None) -> None:
    """List the targets that a compilation may name."""
    with connected(url) as client:
        found = client.targets()
        if json:
            print_json(found)
            return
        rows = [(preset.name, preset.mcpu or "", preset.description) for preset in found.items]
        for line in aligned([("target", "mcpu", "description"), *rows]):
            results.print(clean(line), markup=False)


def inspect(
    model: ModelArgument,
    json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """Upload a model if need be, and show its format and signature."""
    with connected(url) as client:
        known = is_digest(model) and not Path(model).exists()
        with upload_view(errors if json else results, Path(model).name) as progress:
            found = client.inspect(model if known else Path(model), progress)
        if json:
            print_json(found)
            return
        for line in _model_lines(found):
            results.print(clean(line), markup=False)


def _model_lines(model: Model) -> Iterator[str]:
    yield f"model       {model.digest}"
    yield f"size        {shown_bytes(model.size_bytes)}"
    if model.inspection is None:
        return
    signature = model.inspection.signature
    known = {spec.name: shown_shape(spec, signature.dynamic.inputs) for spec in signature.inputs}
    yield f"format      {model.inspection.format}"
    yield f"parameters  {signature.parameters}"
    for name in signature.input_names:
        yield f"input       {known.get(name, f'{name}=(shape unknown: give --input)')}"
    for dimension in signature.dynamic.dimensions:
        yield f"dynamic     {dimension}"
