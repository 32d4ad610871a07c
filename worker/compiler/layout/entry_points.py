"""Joins the modules of several entry points into one.

Each module has a function ``main`` in Relax and TensorIR functions that it calls::

    main: f, g        main, entry_decode: f
    main: f, h   →    main: g
                      entry_decode: h

A function that occurs in several modules is in the result once. So is a constant, when the virtual machine's
code is generated.

If parameters are separate, each module also has a function that prepares its own. The result has one that
prepares the parameters of all, and every entry point takes everything that it returns::

    main(x, a, b)         prepare(p) → (a, b)          main(x, a, b, c)             prepare(p) → (a, b, c)
    main(y, b, c)         prepare(p) → (b, c)     →    entry_decode(y, a, b, c)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tvm
from tvm import relax
from tvm.ir import GlobalVar
from tvm.relax.expr_functor import PyExprMutator, mutator

from worker.candidates.library import MAIN
from worker.parameters import PREPARE

_MERGE_EQUAL = tvm.transform.Sequential(
    [
        relax.transform.InlinePrivateFunctions(),
        relax.transform.CanonicalizeBindings(),
        relax.transform.EliminateCommonSubexpr(),
        relax.transform.DeadCodeElimination([PREPARE]),
    ]
)


class EntryModule(NamedTuple):
    """The module of one entry point, legalized and fused.

    Attributes:
        name: the name that its ``main`` gets.
        module: the module.
        parameters: the names of its separate parameters, in the order of ``PREPARE``'s tuple.
    """

    name: str
    module: tvm.IRModule
    parameters: tuple[str, ...] = ()


class _Entry(NamedTuple):
    """An entry point that calls functions of the joined module."""

    name: str
    main: relax.Function
    prepare: relax.Function | None
    parameters: tuple[str, ...]


def join_entries(modules: Sequence[EntryModule]) -> tvm.IRModule:
    """Join modules. The tuple of parameters has each name once, in order of first occurrence."""
    builder = relax.BlockBuilder(tvm.IRModule({}, attrs=modules[0].module.attrs))
    entries = [_with_shared_functions(each, builder) for each in modules]
    if any(entry.prepare is not None for entry in entries):
        prepare, places = _joined_preparation(entries, builder.get())
        builder.add_func(prepare, PREPARE)
        entries = [
            entry._replace(main=_with_all_parameters(entry.main, prepare.ret_ty.fields, own))
            for entry, own in zip(entries, places, strict=True)
        ]
    for entry in entries:
        builder.add_func(entry.main.with_attr("global_symbol", entry.name), entry.name)
    return builder.get()


def _with_shared_functions(entry: EntryModule, builder: relax.BlockBuilder) -> _Entry:
    """Add the TensorIR functions of a module, unless the builder has the same."""
    chosen: dict[str, GlobalVar] = {}
    functions: dict[str, relax.Function] = {}
    for variable, function in entry.module.functions_items():
        if isinstance(function, tvm.tirx.PrimFunc):
            chosen[variable.name_hint] = builder.add_func(function, variable.name_hint)
        else:
            functions[variable.name_hint] = function
    renamed = {name: _Renamer(chosen).visit_expr(function) for name, function in functions.items()}
    return _Entry(entry.name, renamed[MAIN], renamed.get(PREPARE), entry.parameters)


def _joined_preparation(
    entries: Sequence[_Entry], module: tvm.IRModule
) -> tuple[relax.Function, list[list[int]]]:
    """One function that prepares all parameters, and where its result has those of each entry point."""
    scratch = relax.BlockBuilder(module)
    types = {
        name: type_
        for entry in entries
        if entry.prepare is not None
        for name, type_ in zip(entry.parameters, entry.prepare.params[0].ty.fields, strict=True)
    }
    order = {name: index for index, name in enumerate(types)}
    given = relax.Var("model_params", relax.TupleType(list(types.values())))
    with scratch.function(PREPARE, [given], attrs={"num_input": 0}):
        with scratch.dataflow():
            results = [_call_of(entry, given, order, scratch) for entry in entries]
            found = scratch.emit_output(relax.Tuple([each for part in results for each in part]))
        scratch.emit_func_output(found)
    merged = _MERGE_EQUAL(scratch.get())[PREPARE]
    fields = list(merged.body.blocks[-1].bindings[-1].value.fields)
    distinct = list(dict.fromkeys(fields))
    position = {variable: index for index, variable in enumerate(distinct)}
    places, start = [], 0
    for part in results:
        places.append([position[each] for each in fields[start : start + len(part)]])
        start += len(part)
    return _returning(merged, distinct), places


def _call_of(
    entry: _Entry, given: relax.Var, order: Mapping[str, int], builder: relax.BlockBuilder
) -> list[relax.Expr]:
    """Call an entry point's own preparation, which is inlined later; returns its results."""
    if entry.prepare is None:
        return []
    private = builder.add_func(entry.prepare.without_attr("global_symbol"), f"{entry.name}_preparation")
    own = relax.Tuple([builder.emit(relax.TupleGetItem(given, order[name])) for name in entry.parameters])
    result = builder.emit(relax.Call(private, [builder.emit(own)]))
    return [builder.emit(relax.TupleGetItem(result, index)) for index in range(len(result.ty.fields))]


def _returning(function: relax.Function, results: Sequence[relax.Var]) -> relax.Function:
    """The function with other variables of its only block as its result."""
    (block,) = function.body.blocks
    returned = relax.Var("prepared", relax.TupleType([each.ty for each in results]))
    bindings = [*block.bindings[:-1], relax.VarBinding(returned, relax.Tuple(results))]
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], returned)
    return relax.Function(function.params, body, returned.ty, function.is_pure, function.attrs)


def _with_all_parameters(
    main: relax.Function, types: Sequence[relax.Type], places: Sequence[int]
) -> relax.Function:
    """Let an entry point take all prepared parameters; its own are at ``places``."""
    count = len(main.params) - len(places)
    own = dict(zip(places, main.params[count:], strict=True))
    every = [own.get(index, relax.Var(f"unused_{index}", type_)) for index, type_ in enumerate(types)]
    return relax.Function([*main.params[:count], *every], main.body, main.ret_ty, main.is_pure, main.attrs)


@mutator
class _Renamer(PyExprMutator):
    def __init__(self, chosen: Mapping[str, GlobalVar]) -> None:
        super().__init__()
        self._chosen = chosen

    def visit_global_var_(self, variable: GlobalVar) -> GlobalVar:
        return self._chosen[variable.name_hint]
