"""Errors raised by a model: their source location, and hints on what to do."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import fx

from bessemer.contract.dynamic import shown_sizes
from bessemer.contract.model_advice import PLAIN_WEIGHTS, advice_on_dtypes
from bessemer.contract.problem import ErrorCode, SourcePlace
from bessemer.contract.tensor import shown_tensor
from worker.compiler.source_locations import author_frame, place_of
from worker.errors import JobError, failure_of, ran_out_of_memory, short_message

SCRIPT_TRACE = "Traceback of TorchScript"
_NO_DEVICE = ("Torch not compiled with CUDA", "from the 'CUDA' backend", "No CUDA GPUs", "Found no NVIDIA")
_DEVICE_HINT = (
    "the model uses a CUDA device, which this worker does not have; move the model and its inputs to the CPU "
    "(`.cpu()`) before you export or trace it: "
)
_TORCHAO = "torchao"
_SHOWN_INPUTS = 8
RAISED = re.compile(r"^[\w.]*(?:Error|Exception): .+", re.M)


def model_raised(
    error: Exception, model: object, names: Sequence[str], inputs: tuple[torch.Tensor, ...]
) -> JobError:
    """``model-raised`` with the model's message and inputs, and its source location if that is known.

    If memory ran out, the error is ``limit-memory``, and the model does not run again.

    Args:
        error: the error that the model raised on the inputs.
        model: a graph module runs once more, node by node, to find the node that raises.
        names: the names of the inputs, in their order.
        inputs: the inputs.
    """
    text = str(error)
    if SCRIPT_TRACE in text:
        place, message = _script_place(text), (RAISED.findall(text) or [short_message(error)])[-1]
    elif ran_out_of_memory(error):
        return failure_of(ErrorCode.MODEL_RAISED, error)
    else:
        place, message = _graph_place(model, inputs), short_message(error)
    where = [
        f"in module '{place.module_path}'" if place.module_path else "",
        f"at {place.file}:{place.line}" if place.file else "",
    ]
    said = ", ".join([f"{device_hint(text)}{message}", *filter(None, where)])
    detail = "; ".join(filter(None, (said, _shown_inputs(names, inputs), advice_on_dtypes(text))))
    code = ErrorCode.LIMIT_MEMORY if ran_out_of_memory(error) else ErrorCode.MODEL_RAISED
    return JobError(code, detail, (place,) if any(where) else ())


def _shown_inputs(names: Sequence[str], inputs: tuple[torch.Tensor, ...]) -> str:
    shown = [
        shown_tensor(name, tensor.shape, str(tensor.dtype).removeprefix("torch."))
        for name, tensor in zip(names, inputs, strict=True)
    ]
    if not shown:
        return ""
    more = f" and {len(shown) - _SHOWN_INPUTS} more" if len(shown) > _SHOWN_INPUTS else ""
    return f"the inputs were {', '.join(shown[:_SHOWN_INPUTS])}{more}"


@contextmanager
def at_sizes(sizes: Mapping[str, int]) -> Iterator[None]:
    """Add advice on dynamic sizes to errors that the model raises at these sizes.

    There is none if all sizes are fixed, or if the error is known to have another cause.
    """
    try:
        yield
    except JobError as error:
        said = str(error.__cause__)
        is_explained = bool(advice_on_dtypes(said) or device_hint(said))
        if sizes and error.code is ErrorCode.MODEL_RAISED and not is_explained:
            error.detail += (
                f"; it ran {shown_sizes(sizes)}. If the model does not take such sizes, narrow the range: "
                f"`--dimension {next(iter(sizes))}=MIN..MAX@SIZE`. If a size must be a multiple, export "
                '`4 * Dim("h")` to a `.pt2`'
            )
        raise


def _script_place(text: str) -> SourcePlace:
    _, found, original = text.rpartition("original code (most recent call last)")
    scripted = found and 'File "' in original
    file, line = author_frame(original if found else text, innermost_first=bool(found) and not scripted)
    return SourcePlace(file=file, line=line)


def _graph_place(model: object, inputs: tuple[torch.Tensor, ...]) -> SourcePlace:
    if not isinstance(model, fx.GraphModule):
        return SourcePlace()
    tracker = _Tracker(model)
    try:
        tracker.run(*inputs)
    except Exception:
        return SourcePlace() if tracker.reached is None else node_place(tracker.reached)
    return SourcePlace()


class _Tracker(fx.Interpreter):
    """Runs a graph and remembers the last node it reached."""

    reached: fx.Node | None = None

    def run_node(self, n: fx.Node) -> object:
        self.reached = n
        return super().run_node(n)


def node_place(node: fx.Node) -> SourcePlace:
    """The source location of a graph's node in its model, as far as it is known."""
    place = place_of(node)
    if node.op == "call_module":
        return place.model_copy(update={"module_path": node.target})
    return place.model_copy(update={"operator": getattr(node.target, "__name__", place.operator)})


def modifies_input(model: object, name: str) -> JobError:
    """``model-stateful`` with the input's name, and the line that writes into it if a graph records it."""
    nodes = model.graph.nodes if isinstance(model, fx.GraphModule) else ()
    places = tuple(place_of(node) for node in nodes if _writes_into(node, name))[:1]
    where = f": {places[0]}" if places else ""
    return JobError(
        ErrorCode.MODEL_STATEFUL, f"the model modifies its input '{name}'; clone it first{where}", places
    )


def _writes_into(node: fx.Node, name: str) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload) or not node.target._schema.is_mutable:
        return False
    written = node.args[0] if node.args else None
    return isinstance(written, fx.Node) and written.op == "placeholder" and written.name == name


def device_hint(message: str) -> str:
    """A hint for messages of torch about a missing CUDA device; empty for other messages."""
    return _DEVICE_HINT if any(sign in message for sign in _NO_DEVICE) else ""


def package_hint(error: Exception) -> str:
    """A hint for a model that needs a Python package that is not installed; empty for other errors."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    package = error.name.partition(".")[0]
    if package == _TORCHAO:
        return f"the model has torchao's quantized tensors; {PLAIN_WEIGHTS}: "
    return (
        f"the file needs the package '{package}', which this worker does not have; save the model without "
        "that package's classes, or ask the operator to install it (docs/containers.md): "
    )
