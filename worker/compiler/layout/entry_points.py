"""Joins the modules of several entry points into one.

Each module has a function ``main`` in Relax and TensorIR functions that it calls::

    main: f, g        main, entry_decode: f
    main: f, h   →    main: g
                      entry_decode: h

A function that occurs in several modules is in the result once. So is a constant, when the virtual machine's
code is generated.
"""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import relax
from tvm.ir import GlobalVar
from tvm.relax.expr_functor import PyExprMutator, mutator

from worker.candidates.library import MAIN


def join_entries(first: tvm.IRModule, others: Mapping[str, tvm.IRModule]) -> tvm.IRModule:
    """Join modules that are legalized and fused.

    Args:
        first: keeps its names.
        others: each module by the name that its ``main`` gets.
    """
    builder = relax.BlockBuilder(first)
    for name, module in others.items():
        chosen = {
            variable.name_hint: builder.add_func(function, variable.name_hint)
            for variable, function in module.functions_items()
            if isinstance(function, tvm.tirx.PrimFunc)
        }
        main = _Renamer(chosen).visit_expr(module[MAIN]).with_attr("global_symbol", name)
        builder.add_func(main, name)
    return builder.get()


@mutator
class _Renamer(PyExprMutator):
    def __init__(self, chosen: Mapping[str, GlobalVar]) -> None:
        super().__init__()
        self._chosen = chosen

    def visit_global_var_(self, variable: GlobalVar) -> GlobalVar:
        return self._chosen[variable.name_hint]
