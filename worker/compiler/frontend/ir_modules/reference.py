"""A Python function that computes what a module computes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bessemer.contract.problem import ErrorCode
from worker.compiler.frontend.ir_modules.entry import ModuleEntry, open_entry
from worker.compiler.frontend.ir_modules.module_file import ModuleFile, Named, read_module_file
from worker.errors import JobError, failure_of, short_message
from worker.tensors import as_array, as_tensor

if TYPE_CHECKING:
    from pathlib import Path

    from bessemer.contract.tensor import TensorSpec
    from worker.compiler.values import MethodName

    Arrays = tuple[np.ndarray[Any, Any], ...]

FUNCTION = "reference"
"""The function that is the reference if the request names none."""

_OTHER_KIND = (TypeError, AttributeError)
"""What NumPy's functions raise for tensors, and torch's for arrays."""


@dataclass(frozen=True)
class ReferenceFunction:
    """A function of NumPy or torch. It gets arrays, or tensors if it refuses arrays.

    Attributes:
        name: its name in the script.
        call: the function. It takes the inputs, the inputs and the weights in the author's order, or all of
            these and the outputs, which it fills.
        weights: the values of the weights.
        order: the names of inputs and weights in the author's order.
        inputs: the names of the inputs.
    """

    name: str
    call: Callable[..., Any]
    weights: Named
    order: tuple[str, ...]
    inputs: tuple[str, ...]

    def __call__(self, inputs: Arrays, outputs: tuple[TensorSpec, ...]) -> Arrays:
        """Run the function on copies of the inputs; see ``bound``."""
        return self.bound(inputs, outputs)[1]

    def bound(self, inputs: Arrays, outputs: tuple[TensorSpec, ...]) -> tuple[Callable[[], object], Arrays]:
        """Run the function on copies of the inputs.

        Args:
            inputs: the inputs.
            outputs: the outputs, for a function that takes them as arguments and fills them.

        Returns:
            The function with these arguments, and its outputs.

        Raises:
            JobError: ``model-raised``, or ``model-signature-unsupported`` for what it takes or returns.
        """
        try:
            return self._run(inputs, outputs, np.copy, np.zeros)
        except _OTHER_KIND as refusal:
            try:
                return self._run(inputs, outputs, as_tensor, _zero_tensor)
            except JobError:
                raise
            except Exception as error:
                first, second = short_message(refusal), short_message(error)
                detail = f"the reference '{self.name}' raised {first} for arrays, and {second} for tensors"
                raise failure_of(ErrorCode.MODEL_RAISED, error, detail) from error
        except JobError:
            raise
        except Exception as error:
            detail = f"the reference '{self.name}' raised {short_message(error)}"
            raise failure_of(ErrorCode.MODEL_RAISED, error, detail) from error

    def _run(
        self,
        inputs: Arrays,
        outputs: tuple[TensorSpec, ...],
        convert: Callable[[Any], Any],
        zeros: Callable[[tuple[int, ...], Any], Any],
    ) -> tuple[Callable[[], object], Arrays]:
        given = dict(zip(self.inputs, inputs, strict=True))
        every = [{**self.weights, **given}[name] for name in self.order]
        written = [zeros(spec.shape, np.dtype(spec.dtype.value)) for spec in outputs]
        arguments = self._fitting(list(map(convert, inputs)), list(map(convert, every)), written)
        call = partial(self.call, *arguments)
        with torch.no_grad():
            result = call()
        fills = written and arguments[-1] is written[-1]
        return call, tuple(_flattened(written if fills else result, self.name))

    def _fitting(self, inputs: list[Any], every: list[Any], outputs: list[Any]) -> list[Any]:
        choices = (inputs, every, [*inputs, *outputs], [*every, *outputs])
        signature = inspect.signature(self.call)
        for choice in choices:
            try:
                signature.bind(*choice)
            except TypeError:
                continue
            return choice
        counts = " or ".join(sorted({str(len(choice)) for choice in choices}))
        detail = f"the reference '{self.name}' takes {signature}; expected {counts} arguments"
        raise JobError(ErrorCode.MODEL_SIGNATURE_UNSUPPORTED, detail)


def open_reference(path: Path, method: MethodName | None, name: str) -> ReferenceFunction:
    """The function of an uploaded script. This runs the script, so call it only in the sandbox."""
    file = read_module_file(path)
    return reference_of(file, open_entry(file, method), name)


def reference_of(file: ModuleFile, entry: ModuleEntry, name: str) -> ReferenceFunction:
    """The function of this name as a reference of the entry."""
    inputs = tuple(argument.name for argument in entry.arguments)
    return ReferenceFunction(name, file.functions[name], entry.weights, entry.order, inputs)


def _zero_tensor(shape: tuple[int, ...], dtype: Any) -> torch.Tensor:
    return as_tensor(np.zeros(shape, dtype))


def _flattened(value: Any, name: str) -> Iterator[np.ndarray[Any, Any]]:
    if isinstance(value, torch.Tensor):
        yield as_array(value)
    elif isinstance(value, np.ndarray | np.generic | float | int):
        yield np.ascontiguousarray(value)
    elif isinstance(value, Mapping):
        yield from _flattened(list(value.values()), name)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _flattened(item, name)
    else:
        detail = f"the reference '{name}' returned {type(value).__name__}, not arrays or tensors"
        raise JobError(ErrorCode.MODEL_SIGNATURE_UNSUPPORTED, detail)
