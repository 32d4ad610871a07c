"""Loads a model of any format."""

from collections.abc import Callable
from pathlib import Path

from bessemer.contract.model import ModelFormat
from worker.compiler.frontend import fx, pt2
from worker.compiler.frontend import torchscript_file as torchscript
from worker.compiler.frontend.loaded import LoadedModel, load_failed
from worker.compiler.frontend.recognize import recognize

LOADERS: dict[ModelFormat, Callable[[Path], LoadedModel]] = {
    ModelFormat.PT2: pt2.load,
    ModelFormat.TORCHSCRIPT: torchscript.load,
    ModelFormat.FX: fx.load,
}


def load_model(path: Path) -> LoadedModel:
    """Recognize, check and load a model. Loading runs the model's code: only call it confined.

    Raises:
        JobError: one of the codes of the model: it is not recognized, damaged, unsafe, or does not load.
    """
    try:
        return LOADERS[recognize(path)](path)
    except Exception as error:
        raise load_failed(error) from error
