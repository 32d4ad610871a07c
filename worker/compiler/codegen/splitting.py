"""Replaces calls of a function that takes too long to compile by calls of its parts.

Emits, in Relax, for ``y = call_tir(f, x)``::

    t = call_tir(f_part0, x)
    y = call_tir(f_part1, t)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.tirx.analysis import undefined_vars
from tvm_ffi import structural_map

from worker.compiler.codegen.cut import Part, cut

_CALL = tvm.ir.Op.get("relax.call_tir")


@dataclass(frozen=True)
class Pieces:
    """The parameters of a function that was cut, and its parts in execution order."""

    parameters: tuple[tirx.Var, ...]
    parts: tuple[Part, ...]

    def changed(self, change: Callable[[tirx.PrimFunc], tirx.PrimFunc]) -> Pieces:
        """The pieces with every part's function changed."""
        parts = tuple(replace(part, function=change(part.function)) for part in self.parts)
        return replace(self, parts=parts)


class Split(NamedTuple):
    """A module without the functions that were split, and the names of the parts of each."""

    module: tvm.IRModule
    parts: dict[str, tuple[str, ...]]


def pieces_of(name: str, module: tvm.IRModule) -> Pieces | None:
    """The pieces that a function can be split into; None if it cannot be split.

    Args:
        name: the function's name.
        module: legalized and fused; its functions have no schedules.
    """
    function = module[name]
    if name not in _split_by_calls(module):
        return None
    parts = cut(function)
    known = set(chain.from_iterable(map(_sizes, function.params)))
    passed = chain.from_iterable((*part.inputs, *part.outputs) for part in parts)
    is_known = all(_used(size) <= known for buffer in passed for size in buffer.ty.shape)
    if not parts or not is_known or not all(_finds_sizes(part, known) for part in parts):
        return None
    return Pieces(tuple(function.params), parts)


def split_functions(module: tvm.IRModule, pieces: Mapping[str, Pieces]) -> Split:
    """Replace calls of functions by calls of their parts, whose results are tensors of the caller.

    Args:
        module: the module with the calls.
        pieces: the pieces by the function's name.

    Returns:
        The module without those functions.
    """
    splitter = _Splitter(module, pieces)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            splitter.builder_.update_func(variable, splitter.visit_expr(function))
    changed = splitter.builder_.get()
    kept = {
        variable: function
        for variable, function in changed.functions.items()
        if variable.name_hint not in pieces
    }
    names = {
        name: tuple(str(variable.name_hint) for variable in variables)
        for name, variables in splitter.variables.items()
    }
    return Split(tvm.IRModule(kept, attrs=module.attrs), names)


@mutator
class _Splitter(PyExprMutator):
    def __init__(self, module: tvm.IRModule, pieces: Mapping[str, Pieces]) -> None:
        super().__init__(module)
        self._pieces = pieces
        self.variables = {
            name: [self.builder_.add_func(part.function, f"{name}_part") for part in own.parts]
            for name, own in pieces.items()
        }

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        name = str(call.args[0].name_hint) if call.op == _CALL else ""
        return self._call_parts(name, call) if name in self._pieces else call

    def _call_parts(self, name: str, call: relax.Call) -> relax.Expr:
        parameters, parts = self._pieces[name].parameters, self._pieces[name].parts
        arguments = list(call.args[1].fields)
        types = [*(argument.ty for argument in arguments), *_fields(call.ty)]
        sizes = dict(chain.from_iterable(map(_matched_sizes, parameters, types)))
        tensors = dict(zip(parameters, arguments, strict=False))
        for part, variable in zip(parts, self.variables[name], strict=True):
            inputs = relax.Tuple([tensors[buffer] for buffer in part.inputs])
            outputs = [_tensor_type(buffer, sizes) for buffer in part.outputs]
            result = self.builder_.emit(relax.call_tir(variable, inputs, _one_or_all(outputs)))
            tensors.update(zip(part.outputs, self._unpacked(result, len(outputs)), strict=True))
        results = [tensors[buffer] for buffer in parameters[len(arguments) :]]
        return relax.Tuple(results) if isinstance(call.ty, relax.TupleType) else results[0]

    def _unpacked(self, result: relax.Expr, count: int) -> list[relax.Expr]:
        if count == 1:
            return [result]
        return [self.builder_.emit(relax.TupleGetItem(result, index)) for index in range(count)]


def _split_by_calls(module: tvm.IRModule) -> set[str]:
    """The functions that only ``call_tir`` calls, with tensors only."""
    called: set[str] = set()
    otherwise: set[str] = set()

    def visit(expression: relax.Expr) -> None:
        if not isinstance(expression, relax.Call):
            return
        is_plain = expression.op == _CALL and len(expression.args) == 2
        names = called if is_plain else otherwise
        used = (part for part in (expression.op, *expression.args) if isinstance(part, tvm.ir.GlobalVar))
        names.update(str(variable.name_hint) for variable in used)

    for function in module.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return called - otherwise


def _finds_sizes(part: Part, open_sizes: set[tirx.Var]) -> bool:
    """Whether the shapes of a part's tensors determine every open size that it uses."""
    buffers = (*part.inputs, *part.outputs)
    used = chain(_used(part.function.body), *(_used(size) for buffer in buffers for size in buffer.ty.shape))
    return set(used) & open_sizes <= set(chain.from_iterable(map(_sizes, buffers)))


def _sizes(buffer: tirx.Var) -> Iterator[tirx.Var]:
    return (size for size in buffer.ty.shape if isinstance(size, tirx.Var))


def _used(part: Any) -> set[tirx.Var]:
    return set(undefined_vars(part, []))


def _matched_sizes(parameter: tirx.Var, given: relax.Type) -> Iterator[tuple[tirx.Var, Any]]:
    pairs = zip(parameter.ty.shape, given.shape.values, strict=True)
    return ((size, value) for size, value in pairs if isinstance(size, tirx.Var))


def _tensor_type(buffer: tirx.Var, sizes: dict[tirx.Var, Any]) -> relax.TensorType:
    shape = [structural_map(size, (tirx.Var, lambda size: sizes.get(size, size))) for size in buffer.ty.shape]
    return relax.TensorType(shape, str(buffer.ty.dtype))


def _fields(given: relax.Type) -> Iterable[relax.Type]:
    return given.fields if isinstance(given, relax.TupleType) else (given,)


def _one_or_all(types: list[relax.TensorType]) -> Any:
    return types[0] if len(types) == 1 else types
