"""What C can call of a model: its entry points, and the states that they share."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bessemer.contract.request import Parameters
from worker.compiler.codegen.executable import Exposed
from worker.compiler.codegen.standalone.emit import EntryTensors
from worker.compiler.values import Captured


def exposed_by(captured: Captured) -> Exposed:
    """What C can call: nothing if parameters are separate."""
    if captured.upload.request.parameters is Parameters.SEPARATE:
        return Exposed()
    entries = {entry.function: _tensors_of(entry) for entry in captured.entries}
    initial = {name: value for entry in captured.entries for name, value in _initial(entry)}
    return Exposed(entries, initial)


def _tensors_of(entry: Captured) -> EntryTensors:
    inputs, outputs = len(entry.input_specs) - entry.kept, len(entry.output_specs) - entry.kept
    return EntryTensors(
        entry.name, entry.input_specs[:inputs], entry.output_specs[:outputs], entry.input_specs[inputs:]
    )


def _initial(entry: Captured) -> Iterator[tuple[str, np.ndarray]]:
    first = len(entry.input_specs) - entry.kept
    for spec, value in zip(entry.input_specs[first:], entry.inputs[first:], strict=True):
        yield spec.name, value
