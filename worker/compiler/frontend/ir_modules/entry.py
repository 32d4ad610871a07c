"""The function of a module that a library runs: which one, its inputs, and its flat form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from bessemer.contract.dynamic import EXAMPLE_SIZE
from bessemer.contract.problem import ErrorCode
from bessemer.contract.structure import ArgumentStructure, Container, ContainerKind, Structure, TensorLeaf
from bessemer.contract.tensor import MAX_DIMENSION, TENSOR_NAME, DType, TensorSpec
from worker.candidates.library import MAIN
from worker.compiler.frontend.dynamic_shapes import AffineSize, SymbolicAxis
from worker.compiler.frontend.ir_modules.buffers import buffer_roles, with_relax_function
from worker.compiler.frontend.ir_modules.module_file import ModuleFile, Named
from worker.compiler.frontend.loaded_model import Argument, choose_method
from worker.compiler.frontend.outputs import counted_names
from worker.compiler.values import MethodName
from worker.errors import JobError

_FUNCTION_NAME = re.compile(r"[\w.<>$@-]{1,512}", re.ASCII)
_BOUNDS = "tir_var_upper_bound"
"""The attribute of a Relax function with the largest values of its symbolic sizes."""


@dataclass(frozen=True)
class ModuleEntry:
    """A function of a module, as ``main`` of a module of its own.

    ``main`` takes tensors, the inputs before the weights, and returns a flat tuple of tensors.

    Attributes:
        module: the module.
        function: the function's name in the author's module.
        other_functions: the author's other functions that could be run.
        arguments: the inputs.
        structures: how the author's arguments are made of the inputs.
        weights: the values of the arguments after the inputs.
        order: the names of inputs and weights in the author's order.
        outputs: the names of the outputs.
        returns: how the author's result is made of the outputs.
    """

    module: tvm.IRModule
    function: str
    other_functions: tuple[str, ...]
    arguments: tuple[Argument, ...]
    structures: tuple[ArgumentStructure, ...]
    weights: Named
    order: tuple[str, ...]
    outputs: tuple[str, ...]
    returns: Structure

    @property
    def main(self) -> relax.Function:
        """The function to run."""
        return self.module[MAIN]

    def at(self, sizes: Mapping[str, int]) -> ModuleEntry:
        """The entry with symbolic sizes fixed, by their names."""
        if not sizes:
            return self
        module = relax.transform.BindSymbolicVars(dict(sizes), MAIN)(self.module)
        return self._of(relax.transform.Normalize()(module))

    def shaped(self, specs: Iterable[TensorSpec]) -> ModuleEntry:
        """The entry with inputs of unknown shape fixed to these specs."""
        main = self.main
        given = {spec.name: spec for spec in specs}
        new = {
            one: relax.Var(one.name, relax.TensorType(given[one.name].shape, given[one.name].dtype.value))
            for one in main.params
            if one.name in given and one.ty.shape is None
        }
        if not new:
            return self
        body = main.bind_params(new).body
        parameters = [new.get(one, one) for one in main.params]
        ret_ty = relax.TupleType(
            [relax.TensorType(dtype=one.dtype, ndim=one.ndim) for one in main.ret_ty.fields]
        )
        module = self.module.clone()
        module.update_func(
            module.get_global_var(MAIN), relax.Function(parameters, body, ret_ty, main.is_pure, main.attrs)
        )
        return self._of(relax.transform.Normalize()(module))

    def _of(self, module: tvm.IRModule) -> ModuleEntry:
        inputs = [one for one in module[MAIN].params if str(one.name) not in self.weights]
        return replace(self, module=module, arguments=_arguments(module[MAIN], inputs))

    @property
    def parameters(self) -> int:
        """The number of elements in all weights and constants."""
        return sum(array.size for array in self.weights.values()) + _constant_elements(self.module)


def open_entry(file: ModuleFile, asked: MethodName | None) -> ModuleEntry:
    """Make a function of the module the function ``main`` of a module of its own.

    Args:
        file: the module, and the weights beside it.
        asked: the function that an entry point names; by default ``main``, or the first.

    Raises:
        JobError: ``method-missing``, ``model-forward-missing``, ``model-signature-unsupported``, or
            ``inputs-mismatch`` for weights that the module does not take.
    """
    _check_function_names(file.module)
    functions = _runnable(file.module)
    name = choose_method(functions, asked, MAIN)
    others = tuple(one for one in functions if one != name)
    outputs: tuple[str, ...] = ()
    if isinstance(file.module[name], tirx.PrimFunc):
        outputs = tuple(one.name for one in buffer_roles(name, file.module[name]).outputs)
        module = with_relax_function(file.module, name)
    else:
        module = _with_main(file.module, name)
    _check_names(file, functions)
    entry = _flat(module, file.weights, name, others, outputs)
    return entry.at(_bound_sizes(entry))


def _runnable(module: tvm.IRModule) -> tuple[str, ...]:
    """The public Relax functions; in a module without Relax functions, its TensorIR functions."""
    named = {str(variable.name_hint): function for variable, function in module.functions_items()}
    public = [
        name
        for name, function in named.items()
        if isinstance(function, relax.Function) and "global_symbol" in (function.attrs or {})
    ]
    kernels = [name for name, function in named.items() if isinstance(function, tirx.PrimFunc)]
    has_relax = any(isinstance(function, relax.Function) for function in named.values())
    return tuple(sorted(public if has_relax else kernels))


def _with_main(module: tvm.IRModule, name: str) -> tvm.IRModule:
    """The module with one public Relax function, ``main``; others that it calls are private."""
    changed = tvm.IRModule(attrs=module.attrs, global_infos=module.global_infos)
    for variable, function in module.functions_items():
        if variable.name_hint == name or not isinstance(function, relax.Function):
            changed[variable] = function
        elif variable.name_hint != MAIN or name == MAIN:
            changed[variable] = function.without_attr("global_symbol")
    if name != MAIN:
        chosen = changed[name].with_attr("global_symbol", MAIN)
        del changed[name]
        changed[MAIN] = chosen
    return changed


def _check_function_names(module: tvm.IRModule) -> None:
    """Refuse names that no symbol should have; ``<lambda>`` is what TVM calls the function of a lambda."""
    for variable in module.get_global_vars():
        name = str(variable.name_hint)
        if _FUNCTION_NAME.fullmatch(name) is None:
            detail = (
                f"the function {name[:128]!r} has a name that a library cannot have; use letters and digits"
            )
            raise JobError(ErrorCode.MODEL_SIGNATURE_UNSUPPORTED, detail)


def _check_names(file: ModuleFile, functions: Iterable[str]) -> None:
    taken = {str(one.name) for name in functions for one in file.module[name].params}
    unknown = sorted(set(file.weights) - taken)
    if unknown:
        listed = ", ".join(map(repr, unknown[:8]))
        detail = f"the weights have {listed}, but the module's arguments are {', '.join(sorted(taken))}"
        raise JobError(ErrorCode.INPUTS_MISMATCH, detail)


def _flat(
    module: tvm.IRModule,
    weights: Named,
    name: str,
    others: tuple[str, ...],
    outputs: tuple[str, ...],
) -> ModuleEntry:
    main = module[MAIN]
    leaves = {str(one.name): _leaves(str(one.name), one.ty) for one in main.params}
    flat = [leaf for own in leaves.values() for leaf in own]
    order = tuple(str(leaf.name) for leaf in flat)
    held = {leaf: weights[leaf] for leaf in order if leaf in weights}
    ordered = [one for one in flat if str(one.name) not in held]
    ordered += [one for one in flat if str(one.name) in held]
    values = {one: _packed(one.ty, iter(leaves[str(one.name)])) for one in main.params}
    result, names, returns = _returned(main, outputs)
    body = main.bind_params(values).body
    flattened = relax.Function(ordered, _with_result(body, result), None, main.is_pure, main.attrs)
    changed = module.clone()
    changed.update_func(changed.get_global_var(MAIN), flattened)
    changed = relax.transform.Normalize()(changed)
    inputs = [one for one in ordered if str(one.name) not in held]
    return ModuleEntry(
        module=changed,
        function=name,
        other_functions=others,
        arguments=_arguments(main, inputs),
        structures=tuple(
            ArgumentStructure(name=str(one.name), structure=_structure(one.ty, iter(leaves[str(one.name)])))
            for one in main.params
            if str(one.name) not in held
        ),
        weights=held,
        order=order,
        outputs=names,
        returns=returns,
    )


def symbol_names(arguments: Iterable[Argument]) -> dict[tuple[str, int], str]:
    """The author's names of symbolic sizes, by input and axis."""
    return {
        (argument.name, axis.axis): axis.size.symbol
        for argument in arguments
        for axis in argument.symbolic_axes
        if axis.size.symbol is not None
    }


def _arguments(main: relax.Function, inputs: list[relax.Var]) -> tuple[Argument, ...]:
    bounds = (main.attrs or {}).get(_BOUNDS, {})
    return tuple(_argument(one, bounds) for one in inputs)


def _leaves(name: str, ty: Any) -> list[relax.Var]:
    """A variable for each tensor of an argument."""
    if isinstance(ty, relax.TensorType):
        return [relax.Var(_checked_name(name), ty)]
    if isinstance(ty, relax.TupleType):
        return [leaf for place, one in enumerate(ty.fields) for leaf in _leaves(f"{name}.{place}", one)]
    detail = f"argument '{name}' is {ty}; the library takes tensors and tuples of tensors"
    raise JobError(ErrorCode.MODEL_SIGNATURE_UNSUPPORTED, detail)


def _checked_name(name: str) -> str:
    if TENSOR_NAME.fullmatch(name) is None:
        detail = (
            f"the argument {name[:128]!r} has a name that no tensor can have; use letters, digits and '_'"
        )
        raise JobError(ErrorCode.MODEL_SIGNATURE_UNSUPPORTED, detail)
    return name


def _packed(ty: Any, leaves: Iterator[relax.Var]) -> relax.Expr:
    if isinstance(ty, relax.TupleType):
        return relax.Tuple([_packed(one, leaves) for one in ty.fields])
    return next(leaves)


def _structure(ty: Any, leaves: Iterator[Any]) -> Structure:
    if isinstance(ty, relax.TupleType):
        items = tuple(_structure(one, leaves) for one in ty.fields)
        return Container(container=ContainerKind.TUPLE, items=items)
    leaf = next(leaves)
    return TensorLeaf(tensor=leaf if isinstance(leaf, str) else str(leaf.name))


def _returned(main: relax.Function, outputs: tuple[str, ...]) -> tuple[Any, tuple[str, ...], Structure]:
    """The paths of the tensors in the result, their names, and the structure of the result."""
    ty = main.body.body.ty
    paths = list(_paths(ty))
    if not paths:
        raise JobError(ErrorCode.MODEL_SIGNATURE_UNSUPPORTED, "the module returns no tensor")
    names = outputs if len(outputs) == len(paths) else counted_names(len(paths))
    return paths, names, _structure(ty, iter(names))


def _paths(ty: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    if isinstance(ty, relax.TensorType):
        yield path
    elif isinstance(ty, relax.TupleType):
        for place, one in enumerate(ty.fields):
            yield from _paths(one, (*path, place))
    else:
        detail = f"the module returns {ty}; the library returns tensors and tuples of tensors"
        raise JobError(ErrorCode.MODEL_SIGNATURE_UNSUPPORTED, detail)


def _with_result(body: relax.SeqExpr, paths: list[tuple[int, ...]]) -> relax.SeqExpr:
    """The body with another block at its end, which returns a flat tuple made of the author's result."""
    fields = []
    for path in paths:
        field = body.body
        for place in path:
            field = relax.TupleGetItem(field, place)
        fields.append(field)
    result = relax.Var("result", relax.TupleType([_type_at(body.body.ty, path) for path in paths]))
    block = relax.BindingBlock([relax.VarBinding(result, relax.Tuple(fields))])
    return relax.BlockBuilder().normalize(relax.SeqExpr([*body.blocks, block], result))


def _type_at(ty: Any, path: tuple[int, ...]) -> Any:
    for place in path:
        ty = ty.fields[place]
    return ty


def _argument(variable: relax.Var, bounds: Mapping[Any, Any]) -> Argument:
    name, ty = str(variable.name), variable.ty
    dtype = element_type(name, ty)
    if ty.shape is None:
        return Argument(name)
    sizes = list(map(affine, ty.shape))
    axes = tuple(
        SymbolicAxis(axis, size, 1, _bound(size, bounds))
        for axis, size in enumerate(sizes)
        if isinstance(size, AffineSize)
    )
    shape = tuple(size if isinstance(size, int) else _example(size, bounds) for size in sizes)
    spec = TensorSpec(name=name, shape=shape, dtype=dtype)
    return Argument(name, spec, frozenset(axis.axis for axis in axes), symbolic_axes=axes)


def element_type(name: str, ty: relax.TensorType) -> DType:
    """The dtype of a tensor. Raises ``model-tensors-unsupported``."""
    try:
        return DType(str(ty.dtype))
    except ValueError as error:
        detail = f"'{name}' has the dtype {str(ty.dtype) or 'unknown'}, which Bessemer does not support"
        raise JobError(ErrorCode.MODEL_TENSORS_UNSUPPORTED, detail) from error


def _bound(size: AffineSize, bounds: Mapping[Any, Any]) -> int | None:
    found = bounds.get(size.symbol)
    return None if found is None else min(int(found), MAX_DIMENSION)


def _example(size: AffineSize, bounds: Mapping[Any, Any]) -> int:
    if size.symbol is None:
        return EXAMPLE_SIZE
    bound = _bound(size, bounds)
    example = EXAMPLE_SIZE if bound is None else min(EXAMPLE_SIZE, bound)
    return size.factor * example + size.offset


def affine(size: Any) -> int | AffineSize:
    """A size of a shape as a number, or as a multiple of one symbolic size plus an offset."""
    found = _affine(size)
    if found is None:
        return AffineSize(None)
    factor, symbol, offset = found
    return offset if symbol is None else AffineSize(symbol, factor, offset)


def _affine(size: Any) -> tuple[int, str | None, int] | None:
    """The factor, the symbol and the offset; None if the size has another form."""
    if isinstance(size, tirx.IntImm):
        return 0, None, int(size.value)
    if isinstance(size, tvm.ir.Var):
        return 1, str(size.name), 0
    if isinstance(size, tirx.Cast):
        return _affine(size.value)
    if not isinstance(size, tirx.Add | tirx.Sub | tirx.Mul):
        return None
    left, right = _affine(size.a), _affine(size.b)
    if left is None or right is None or (left[1] and right[1] and left[1] != right[1]):
        return None
    if isinstance(size, tirx.Mul):
        if left[1] and right[1]:
            return None
        scale, other = (right[2], left) if left[1] else (left[2], right)
        return _positive(other[0] * scale, other[1], other[2] * scale)
    sign = -1 if isinstance(size, tirx.Sub) else 1
    return _positive(left[0] + sign * right[0], left[1] or right[1], left[2] + sign * right[2])


def _positive(factor: int, symbol: str | None, offset: int) -> tuple[int, str | None, int] | None:
    if symbol is None:
        return 0, None, offset
    return (factor, symbol, offset) if factor > 0 else None


def _constant_elements(module: tvm.IRModule) -> int:
    counts: list[int] = []

    def visit(expression: relax.Expr) -> None:
        if isinstance(expression, tvm.ir.GenericConst):
            counts.append(int(np.prod(expression.value.shape, dtype=np.int64)))

    for function in module.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return sum(counts)


def _bound_sizes(entry: ModuleEntry) -> dict[str, int]:
    """The symbolic sizes that the shapes of the weights decide.

    Raises:
        JobError: ``inputs-mismatch``: a weight does not have its argument's shape or dtype.
    """
    sizes: dict[str, int] = {}
    for variable in entry.main.params:
        name = str(variable.name)
        if name in entry.weights:
            _match(name, variable.ty, entry.weights[name], sizes)
    return sizes


def _match(name: str, ty: relax.TensorType, array: Any, sizes: dict[str, int]) -> None:
    expected = list(map(affine, ty.shape)) if ty.shape is not None else [AffineSize(None)] * array.ndim
    fits = len(expected) == array.ndim and array.dtype.name == str(ty.dtype)
    for size, wanted in zip(array.shape, expected, strict=False):
        if isinstance(wanted, int):
            fits &= size == wanted
        elif wanted.symbol is not None:
            value, rest = divmod(size - wanted.offset, wanted.factor)
            fits &= rest == 0 and sizes.setdefault(wanted.symbol, value) == value
    if not fits:
        given = f"{array.dtype.name}[{', '.join(map(str, array.shape))}]"
        raise JobError(ErrorCode.INPUTS_MISMATCH, f"the weight '{name}' is {given}; the module takes {ty}")
