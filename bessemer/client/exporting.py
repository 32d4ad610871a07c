"""Saves objects of torch as files that the server reads.

torch is never imported for its own sake: an object of torch proves that the user has it.
"""

import inspect
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bessemer.client.inputs import Inputs, is_array, named_specs, spec_of
from bessemer.contract.tensor import InputSpec
from bessemer.errors import ExportError, InvalidArgumentError

__all__ = ["Exported", "Module", "Modules", "save_module", "torch_kind"]

Module = Any
Modules = {
    "torch.export.exported_program.ExportedProgram": "program",
    "torch.jit._script.ScriptModule": "script",
    "torch.fx.graph_module.GraphModule": "graph",
    "torch.nn.modules.module.Module": "module",
}
SEED = 0
TORCH = threading.Lock()
"""torch keeps the state of an export in globals: one at a time in a process."""


@dataclass(frozen=True)
class Exported:
    """A saved module, and the inputs that the request must name (none for a `.pt2`, which has its own)."""

    path: Path
    inputs: tuple[InputSpec, ...]


def torch_kind(model: object) -> str | None:
    """``program``, ``script``, ``graph`` or ``module``; None for what is no object of torch."""
    for kind in type(model).__mro__:
        known = Modules.get(f"{kind.__module__}.{kind.__qualname__}")
        if known:
            return known
    return None


def save_module(module: Module, inputs: Inputs, folder: Path) -> Exported:
    """Save an object of torch in a folder.

    An ``nn.Module`` is exported in evaluation mode, with ``inputs`` as example tensors or with seeded random
    ones of their shapes; its own mode is restored.

    Raises:
        ExportError: torch failed.
        InvalidArgumentError: the inputs do not fit the module.
    """
    save = {"program": _save_program, "script": _save_script, "graph": _save_graph, "module": _export}
    try:
        with TORCH:
            return save[torch_kind(module) or "module"](module, inputs, folder)
    except InvalidArgumentError:
        raise
    except Exception as error:
        raise ExportError(f"torch could not export {type(module).__name__}: {error}") from error


def _torch() -> Any:
    return sys.modules["torch"]


def _save_program(program: Module, inputs: Inputs, folder: Path) -> Exported:
    path = folder / "model.pt2"
    _torch().export.save(program, str(path))
    return Exported(path, named_specs(inputs, program.graph_signature.user_inputs))


def _save_script(module: Module, inputs: Inputs, folder: Path) -> Exported:
    path = folder / "model.pt"
    names = [argument.name for argument in module.forward.schema.arguments[1:]]
    _torch().jit.save(module, str(path))
    return Exported(path, named_specs(inputs, names))


def _save_graph(module: Module, inputs: Inputs, folder: Path) -> Exported:
    path = folder / "model.fx.pt"
    names = [node.target for node in module.graph.nodes if node.op == "placeholder"]
    _torch().save(module, str(path))
    return Exported(path, named_specs(inputs, names))


def _export(module: Module, inputs: Inputs, folder: Path) -> Exported:
    if not inputs:
        raise InvalidArgumentError("an nn.Module needs inputs to be exported: inputs={'x': (1, 784)}")
    path = folder / "model.pt2"
    positional, named = _arguments(module, inputs)
    export = _torch().export
    with _evaluating(module):
        export.save(export.export(module, positional, named), str(path))
    return Exported(path, ())


def _arguments(module: Module, inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Example tensors as ``forward`` takes them: by position where that is possible."""
    if not isinstance(inputs, Mapping):
        return tuple(_example(f"input{index}", value) for index, value in enumerate(inputs)), {}
    examples = {name: _example(name, value) for name, value in inputs.items()}
    parameters = inspect.signature(module.forward).parameters
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters.values()):
        return tuple(examples.values()), {}
    _check_names(examples, parameters)
    leading = list(parameters)[: len(examples)]
    if set(leading) == set(examples):
        return tuple(examples[name] for name in leading), {}
    return (), examples


def _check_names(names: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter]) -> None:
    open_ended = any(entry.kind is inspect.Parameter.VAR_KEYWORD for entry in parameters.values())
    unknown = [name for name in names if name not in parameters]
    if unknown and not open_ended:
        takes = ", ".join(parameters) or "nothing"
        raise InvalidArgumentError(f"forward takes no '{unknown[0]}'; it takes {takes}")


def _example(name: str, value: Any) -> Any:
    torch = _torch()
    if isinstance(value, torch.Tensor):
        return value
    if is_array(value):
        return torch.as_tensor(value)
    spec = named_specs([value])[0] if isinstance(value, str) and "=" in value else spec_of(name, value)
    dtype = getattr(torch, spec.dtype.value)
    generator = torch.Generator().manual_seed(SEED)
    if spec.dtype.is_float:
        return torch.randn(spec.shape, generator=generator).to(dtype)
    # 0 and 1 lie within every embedding.
    return torch.randint(0, 2, spec.shape, generator=generator).to(dtype)


@contextmanager
def _evaluating(module: Module) -> Iterator[None]:
    modes: Sequence[tuple[Module, bool]] = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
