"""Writes an example model in a format that Bessemer accepts."""

import warnings
from enum import StrEnum
from pathlib import Path

import torch

from . import Example


class SavedAs(StrEnum):
    """A file format."""

    PT2 = "pt2"
    TRACED = "torchscript-traced"
    SCRIPTED = "torchscript-scripted"
    FX = "fx"


def save(example: Example, saved_as: SavedAs, path: Path) -> None:
    """Build the model and write it to ``path``."""
    module, inputs = example.build(), example.example_inputs()
    with warnings.catch_warnings(), path.open("wb") as file, torch.no_grad():
        warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*torch.jit")
        if saved_as is SavedAs.PT2:
            torch.export.save(torch.export.export(module, inputs), file)
        elif saved_as is SavedAs.TRACED:
            torch.jit.save(torch.jit.trace(module, inputs), file)
        elif saved_as is SavedAs.SCRIPTED:
            torch.jit.save(torch.jit.script(module), file)
        else:
            torch.save(torch.fx.symbolic_trace(module), file)
