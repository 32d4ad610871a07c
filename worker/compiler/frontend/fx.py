"""Loads an FX ``GraphModule`` from a file of ``torch.save``.

The graph is pickled as source, so it loads without the class it was traced from. Its leaf modules are pickled
by reference to their classes, and only torch's classes are available here.
"""

import pickle
import re
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch.fx.graph_module import reduce_graph_module

import worker.compiler.quantized_operators  # noqa: F401 - defines operators of files
from bessemer.contract.model import ModelFormat
from bessemer.contract.problem import ErrorCode, SourcePlace
from bessemer.contract.structure import CallStructure
from worker.compiler.frontend.custom_operators import refuse_unknown_calls
from worker.compiler.frontend.dynamic_export import export_graph
from worker.compiler.frontend.fx_arguments import expand_arguments
from worker.compiler.frontend.loaded_model import (
    FORWARD,
    LoadedModel,
    choose_method,
    count_elements,
    load_failed,
)
from worker.compiler.frontend.unsupported_tensors import refuse_quantized_modules, refuse_unsupported_tensors
from worker.compiler.values import WHOLE, Selection
from worker.errors import JobError

_CUSTOM_CALL = re.compile(r"\btorch\.ops\.(\w+)\.(\w+)")


def load(path: Path, selection: Selection = WHOLE) -> LoadedModel:
    """Load a graph module, whose only method is ``forward``.

    Raises:
        JobError: ``model-leaf-unavailable`` with every missing class and its modules, ``model-load-failed``
            with torch's message, ``model-operator-unavailable`` with every custom operator that the worker
            does not know, or ``model-tensors-unsupported``.
    """
    choose_method((FORWARD,), selection.method)
    missing: dict[type, str] = {}
    graph_module = _read(path, missing)
    if missing:
        raise _leaves_unavailable(graph_module, missing)
    refuse_quantized_modules(graph_module.named_modules())
    refuse_unsupported_tensors((*graph_module.named_parameters(), *graph_module.named_buffers()))
    structures, arguments = expand_arguments(graph_module, selection)
    return LoadedModel(
        format=ModelFormat.FX,
        eager=graph_module,
        export=partial(export_graph, graph_module),
        call=CallStructure(arguments=structures),
        arguments=arguments,
        examples=None,
        parameters=count_elements([*graph_module.parameters(), *graph_module.buffers()]),
    )


def _read(path: Path, missing: dict[type, str]) -> fx.GraphModule:
    try:
        loaded = torch.load(
            path, map_location="cpu", weights_only=False, pickle_module=_collecting_pickle(missing)
        )
    except ImportError as error:
        detail = f"the graph's code imports a module that this worker does not have: {error}"
        raise JobError(ErrorCode.MODEL_LEAF_UNAVAILABLE, detail) from error
    except JobError:
        raise
    except Exception as error:
        if missing:
            raise _leaves_unavailable(None, missing) from error
        raise load_failed(error) from error
    if not isinstance(loaded, fx.GraphModule):
        raise load_failed(TypeError(f"the file holds a {type(loaded).__name__}, not a GraphModule"))
    return loaded


def _collecting_pickle(missing: dict[type, str]) -> Any:
    """A replacement of the ``pickle`` module whose unpickler creates an empty class for each missing one."""

    class Unpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            if (module, name) == (reduce_graph_module.__module__, reduce_graph_module.__name__):
                return _checked_graph_module
            try:
                return super().find_class(module, name)
            except (ImportError, AttributeError):
                stand_in = type(name.rpartition(".")[2], (_MissingModule,), {})
                missing[stand_in] = f"{module}.{name}"
                return stand_in

    class Pickle:
        pass

    for name in ("load", "loads", "UnpicklingError", "PickleError", "HIGHEST_PROTOCOL"):
        setattr(Pickle, name, getattr(pickle, name))
    Pickle.Unpickler = Unpickler  # type: ignore[attr-defined]
    Pickle.__name__ = pickle.__name__
    return Pickle


def _checked_graph_module(body: dict[str, Any], import_block: str) -> nn.Module:
    """Trace the graph's source, which calls its operators, if it calls none that is unknown."""
    calls = _CUSTOM_CALL.findall(str(body.get("_code", "")))
    refuse_unknown_calls(SourcePlace(operator=f"{namespace}::{name}") for namespace, name in calls)
    return reduce_graph_module(body, import_block)


class _MissingModule(nn.Module):
    """Replaces a leaf module whose class is missing, so that all of them can be listed."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def _leaves_unavailable(graph_module: fx.GraphModule | None, missing: dict[type, str]) -> JobError:
    found = [] if graph_module is None else list(graph_module.named_modules())
    places = tuple(
        SourcePlace(operator=missing[type(module)], module_path=path)
        for path, module in found
        if type(module) in missing
    )
    at: dict[str | None, list[str]] = {}
    for place in places:
        at.setdefault(place.operator, []).append(place.module_path or "the model itself")
    names = sorted(set(missing.values()))
    listed = ", ".join(f"{name} ({', '.join(at[name])})" if name in at else name for name in names)
    return JobError(
        ErrorCode.MODEL_LEAF_UNAVAILABLE,
        f"this worker does not have the classes of leaf modules: {listed}",
        places,
    )
