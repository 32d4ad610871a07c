"""Save torch objects as model files.

This module never imports torch: a torch object proves that the user's program has imported it.
"""

import importlib
import inspect
import sys
import threading
from collections import namedtuple
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeGuard

from bessemer.client.containers import (
    dataclasses_in,
    inputs_in,
    is_array,
    is_container,
    replace_inputs,
    unfold,
)
from bessemer.client.export_errors import (
    TORCHAO,
    advice_on_export,
    methods_but_forward,
    quiet_torch,
    torch_message,
)
from bessemer.client.inputs import (
    NO_DIMENSIONS,
    Dimensions,
    Inputs,
    InputValue,
    named_specs,
    ranges_of,
    spec_of,
)
from bessemer.contract.dynamic import EXAMPLE_SIZE, DimensionRange, check_names
from bessemer.contract.tensor import InputSpec, TensorSpec
from bessemer.errors import ExportError, InvalidArgumentError

Module = Any
Constants = Mapping[str, bool | int | float | str | None]
NO_CONSTANTS: Constants = MappingProxyType({})
Ranges = Mapping[str, DimensionRange]
PROGRAM = "program"
Modules = {
    "torch.export.exported_program.ExportedProgram": PROGRAM,
    "torch.jit._script.ScriptModule": "script",
    "torch.fx.graph_module.GraphModule": "graph",
    "torch.nn.modules.module.Module": "module",
}
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
SEED = 0
LEAST_OPEN = 2
"""``torch.export`` treats the example sizes 0 and 1 as fixed."""

WRAP = "Bessemer compiles `forward`, so pass a module whose `forward` calls the method that you want"

TORCH = threading.Lock()
"""torch keeps the state of an export in globals, so a process can run only one at a time."""


@dataclass(frozen=True)
class Exported:
    """A saved module, and the inputs that the request must name; empty if the file contains them."""

    path: Path
    inputs: tuple[InputSpec, ...]


def torch_kind(model: object) -> str | None:
    """``program``, ``script``, ``graph`` or ``module``; None if the object is not from torch."""
    for kind in type(model).__mro__:
        known = Modules.get(f"{kind.__module__}.{kind.__qualname__}")
        if known:
            return known
    return None


def is_programs(model: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether a model is a dictionary of exported programs, one for each entry point."""
    if not isinstance(model, Mapping) or not model:
        return False
    return all(torch_kind(each) == PROGRAM for each in model.values())


def save_programs(programs: Mapping[str, Any], folder: Path) -> Path:
    """Save exported programs in one file. Raises ``ExportError``."""
    path = folder / "model.pt2"
    package = importlib.import_module("torch.export.pt2_archive._package")
    try:
        with TORCH, quiet_torch():
            package.package_pt2(str(path), exported_programs=dict(programs))
    except Exception as error:
        message = torch_message(error, Path(_torch().__file__).parent)
        raise ExportError(f"torch could not save the programs {', '.join(programs)}: {message}") from error
    return path


def save_module(
    module: Module,
    inputs: Inputs,
    folder: Path,
    dimensions: Dimensions = NO_DIMENSIONS,
    constants: Constants = NO_CONSTANTS,
) -> Exported:
    """Save a torch object in a folder.

    An ``nn.Module`` is exported in evaluation mode, with ``inputs`` as example tensors or with seeded random
    tensors of their shapes, and with ``constants`` as its other arguments; afterward it is back in its own
    mode. Named sizes stay dynamic in the ``.pt2``.

    Raises:
        ExportError: torch failed.
        InvalidArgumentError: the inputs do not match the module or the dimensions.
    """
    save = {PROGRAM: _save_program, "script": _save_script, "graph": _save_graph}.get(
        torch_kind(module) or ""
    )
    try:
        with TORCH, quiet_torch():
            if save is not None:
                return save(module, inputs, folder)
            return _export(module, inputs, ranges_of(dimensions), constants, folder)
    except InvalidArgumentError:
        raise
    except Exception as error:
        message = torch_message(error, Path(_torch().__file__).parent)
        advice = advice_on_export(module, error)
        why = f"{advice}.\ntorch's own message: {message}" if advice else message
        raise ExportError(f"torch could not export {type(module).__name__}: {why}") from error


def _torch() -> Any:
    return sys.modules["torch"]


def _save_program(program: Module, inputs: Inputs, folder: Path) -> Exported:
    path = folder / "model.pt2"
    _save_exported(program, path)
    return Exported(path, named_specs(inputs, program.graph_signature.user_inputs))


def _save_script(module: Module, inputs: Inputs, folder: Path) -> Exported:
    path = folder / "model.pt"
    if not hasattr(module, "forward"):
        methods = ", ".join(map(repr, methods_but_forward(module))) or "no public method"
        raise InvalidArgumentError(f"the script module has {methods}, but no 'forward': {WRAP}")
    names = [argument.name for argument in module.forward.schema.arguments[1:]]
    _torch().jit.save(module, str(path))
    return Exported(path, named_specs(inputs, names))


def _save_graph(module: Module, inputs: Inputs, folder: Path) -> Exported:
    path = folder / "model.fx.pt"
    names = [node.target for node in module.graph.nodes if node.op == "placeholder"]
    _torch().save(module, str(path))
    return Exported(path, named_specs(inputs, names))


def _export(module: Module, inputs: Inputs, ranges: Ranges, constants: Constants, folder: Path) -> Exported:
    if not inputs:
        raise InvalidArgumentError("to export an nn.Module, pass its inputs, such as inputs={'x': (1, 784)}")
    if getattr(module.forward, "__name__", "") == "_forward_unimplemented":
        raise InvalidArgumentError(f"{type(module).__name__} has no method 'forward': {WRAP}")
    path = folder / "model.pt2"
    positional, named = _arrange(module, inputs, _arguments(inputs, ranges), constants)
    _register_dataclasses((positional, named))
    export = _torch().export
    with _evaluating(module):
        program = export.export(
            module,
            tuple(argument.example for argument in positional),
            {name: argument.example for name, argument in named.items()} | dict(constants),
            dynamic_shapes=_dynamic_shapes((*positional, *named.values()), ranges) if ranges else None,
        )
        _save_exported(program, path)
    return Exported(path, _program_specs(program, positional, named) if ranges else ())


def _program_specs(
    program: Any, positional: Sequence["_Argument"], named: Mapping[str, "_Argument"]
) -> tuple[InputSpec, ...]:
    """The specs of the inputs under the program's names."""
    own = program.module_call_graph[0].signature.forward_arg_names or ()
    names = (*own[: len(positional)], *named)
    pairs = zip(names, (*positional, *named.values()), strict=True)
    return tuple(
        spec.model_copy(update={"name": name + spec.name.removeprefix(argument.name)})
        for name, argument in pairs
        for spec in argument.specs
    )


def _register_dataclasses(arguments: Any) -> None:
    """Register the dataclasses among the arguments that torch does not know."""
    torch = _torch()
    for kind in dict.fromkeys(dataclasses_in(arguments)):
        if kind not in torch.utils._pytree.SUPPORTED_NODES:
            name = f"{kind.__module__}.{kind.__qualname__}"
            torch.export.register_dataclass(kind, serialized_type_name=name)


def _save_exported(program: Any, path: Path) -> None:
    """Save a program. If torch refuses because named tuples are not registered, register them and retry."""
    program = _with_plain_tensors(program)
    try:
        _torch().export.save(program, str(path))
    except NotImplementedError:
        if not _register_named_tuples(program):
            raise
        _torch().export.save(program, str(path))


def _with_plain_tensors(program: Any) -> Any:
    """The program with plain tensors in place of torchao's, which only torchao can load."""
    if not any(type(tensor).__module__.startswith(TORCHAO) for tensor in program.state_dict.values()):
        return program
    table = _torch().export.default_decompositions()
    own = {operator: steps for operator, steps in table.items() if operator.namespace == TORCHAO}
    return program.run_decompositions(own)


def _register_named_tuples(program: Any) -> bool:
    """Register the named tuples of a program's inputs and outputs; False if all were registered."""
    pytree, call = _torch().utils._pytree, program.call_spec
    kinds = {*_named_tuples(call.in_spec), *_named_tuples(call.out_spec)}
    missing = kinds - set(pytree.SUPPORTED_SERIALIZED_TYPES)
    for kind in missing:
        pytree._register_namedtuple(kind, serialized_type_name=f"{kind.__module__}.{kind.__qualname__}")
    return bool(missing)


def _named_tuples(structure: Any) -> Iterator[type]:
    if structure.type is namedtuple:
        yield structure.context
    for child in structure.children():
        yield from _named_tuples(child)


@dataclass(frozen=True)
class _Argument:
    """An argument: a tensor, or a container of tensors. ``specs`` and ``tensors`` are those in it."""

    name: str
    example: Any
    specs: tuple[InputSpec, ...]
    tensors: tuple[Any, ...]


def _arguments(inputs: Inputs, ranges: Ranges) -> dict[str, _Argument]:
    """Each argument by name or position, with example tensors."""
    values = (
        unfold(inputs) if isinstance(inputs, Mapping) else dict(map(_named_value, range(len(inputs)), inputs))
    )
    specs = {name: spec_of(name, value) for given in values.items() for name, value in inputs_in(*given)}
    try:
        check_names(tuple(specs.values()), ranges)
    except ValueError as error:
        raise InvalidArgumentError(str(error)) from error
    sizes = {
        name: max(LEAST_OPEN, limits.example or limits.nearest(EXAMPLE_SIZE))
        for name, limits in ranges.items()
    }
    return {name: _argument(name, value, specs, sizes) for name, value in values.items()}


def _named_value(index: int, value: Any) -> tuple[str, Any]:
    if is_container(value):
        return f"input{index}", value
    (spec,) = named_specs((value,), (f"input{index}",))
    return spec.name, value if is_array(value) else spec


def _argument(name: str, value: Any, specs: Mapping[str, InputSpec], sizes: Mapping[str, int]) -> _Argument:
    tensors: dict[str, Any] = {}

    def example(place: str, part: InputValue) -> Any:
        tensors[place] = _example(specs[place].at(sizes), part)
        return tensors[place]

    made = replace_inputs(name, value, example)
    return _Argument(name, made, tuple(specs[place] for place in tensors), tuple(tensors.values()))


def _arrange(
    module: Module, inputs: Inputs, arguments: dict[str, _Argument], constants: Constants
) -> tuple[tuple[_Argument, ...], dict[str, _Argument]]:
    """The positional and the keyword arguments of ``forward``; positional if possible.

    Constants are further keyword arguments.
    """
    parameters = inspect.signature(module.forward).parameters
    variadic = any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters.values())
    if variadic:
        return tuple(arguments.values()), {}
    if not isinstance(inputs, Mapping):
        _check_count(len(arguments), parameters, constants)
        return tuple(arguments.values()), {}
    _check_names({**arguments, **constants}, parameters)
    leading = list(parameters)[: len(arguments)]
    by_place = all(parameters[name].kind is not inspect.Parameter.KEYWORD_ONLY for name in leading)
    if by_place and set(leading) == set(arguments):
        return tuple(arguments[name] for name in leading), {}
    return (), arguments


def _dynamic_shapes(arguments: Iterable[_Argument], ranges: Ranges) -> Any:
    """The dynamic axes of the tensors, for ``torch.export.export``."""
    export = _torch().export
    dims = {name: export.Dim(name, min=limits.minimum, max=limits.maximum) for name, limits in ranges.items()}
    shapes = export.ShapesCollection()
    for argument in arguments:
        for spec, tensor in zip(argument.specs, argument.tensors, strict=True):
            shapes[tensor] = {axis: dims[name] for axis, name in spec.named_axes.items()}
    return shapes


def _check_names(names: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter]) -> None:
    open_ended = any(entry.kind is inspect.Parameter.VAR_KEYWORD for entry in parameters.values())
    unknown = [name for name in names if name not in parameters]
    if unknown and not open_ended:
        takes = ", ".join(parameters) or "nothing"
        raise InvalidArgumentError(f"forward has no argument '{unknown[0]}'; it takes {takes}")
    _check_complete(names, parameters)


def _check_count(count: int, parameters: Mapping[str, inspect.Parameter], constants: Constants) -> None:
    positional = [name for name, entry in parameters.items() if entry.kind in POSITIONAL]
    if count > len(positional):
        takes = ", ".join(parameters) or "nothing"
        raise InvalidArgumentError(f"forward takes {len(positional)} inputs ({takes}), but got {count}")
    _check_complete((*positional[:count], *constants), parameters)


def _check_complete(given: Iterable[str], parameters: Mapping[str, inspect.Parameter]) -> None:
    missing = [
        name
        for name, entry in parameters.items()
        if entry.default is entry.empty and entry.kind not in VARIADIC and name not in set(given)
    ]
    if missing:
        listed = ", ".join(map(repr, missing))
        raise InvalidArgumentError(
            f"forward takes {', '.join(parameters)}, but {listed} is not among the inputs"
        )


def _example(spec: TensorSpec, value: InputValue) -> Any:
    torch = _torch()
    if isinstance(value, torch.Tensor):
        # torch.export treats a tensor that is given twice as one input.
        return value.detach().clone()
    if is_array(value):
        return torch.as_tensor(value)
    dtype = getattr(torch, spec.dtype.value)
    generator = torch.Generator().manual_seed(SEED)
    if spec.dtype.is_float or spec.dtype.is_complex:
        return torch.randn(
            spec.shape, generator=generator, dtype=dtype if spec.dtype.is_complex else None
        ).to(dtype)
    # 0 and 1 are valid indices into every embedding
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
