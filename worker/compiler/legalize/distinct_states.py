"""Give each state memory of its own.

    main(x, one, other):
        new = call_tir(f, (x, one))
        return y, new, new                →    return y, new, copy(new)

The next run may write to a state in place. So no two states may be the same memory, and none may be a
constant of the library, a parameter or an input. A state that a run returns as it came keeps its memory. One
that was another state is copied: callers write the new states over the old ones, one after another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from worker.compiler.layout.relax_graph import Graph, operator_of, read_graph, static_shape
from worker.compiler.schedules import nest
from worker.compiler.schedules.annotations import STATE

_VIEW = "reshape"


@tvm.transform.module_pass(opt_level=0, name="SeparateStates")
def separate_states(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Copy the states that a run returns in memory which something else holds."""
    main = module["main"]
    shared = frozenset(_shared(main)) if main.attrs and STATE in main.attrs else frozenset()
    if not shared:
        return module
    writer = _Writer(module, read_graph(main), shared)
    writer.builder_.update_func(module.get_global_var("main"), writer.visit_expr(main))
    return writer.builder_.get()


def _shared(main: relax.Function) -> Iterator[int]:
    """The indices of results that must be copied."""
    first_input, first_output, count = map(int, main.attrs[STATE])
    graph = read_graph(main)
    results = graph.lookup(main.body.body).fields
    states = main.params[first_input : first_input + count]
    for index, state in enumerate(states, first_output):
        memory = _memory(results[index], graph)
        if operator_of(graph.values.get(memory)) == "call_tir":
            graph.values.pop(memory)
        elif not memory.same_as(state):
            yield index


def _memory(result: relax.Expr, graph: Graph) -> Any:
    """The variable whose memory a result has: the one before any views."""
    value: Any = graph.values.get(result) if isinstance(result, relax.Var) else None
    while isinstance(value, relax.Var) or operator_of(value) == _VIEW:
        result = value if isinstance(value, relax.Var) else value.args[0]
        value = graph.values.get(result) if isinstance(result, relax.Var) else None
    return result


@mutator
class _Writer(PyExprMutator):
    def __init__(self, module: tvm.IRModule, graph: Graph, shared: frozenset[int]) -> None:
        super().__init__(module)
        self._results = graph.lookup(module["main"].body.body)
        self._shared = shared

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if binding.value.same_as(self._results):
            fields = [
                self._copied(field) if index in self._shared else field
                for index, field in enumerate(self._results.fields)
            ]
            binding = relax.VarBinding(binding.var, relax.Tuple(fields))
        super().visit_var_binding_(binding)

    def _copied(self, state: relax.Expr) -> relax.Expr:
        shape = static_shape(state)
        assert shape is not None
        copy = self.builder_.add_func(_write_copy(shape, str(state.ty.dtype)), "copy_state")
        return self.builder_.emit(relax.call_tir(copy, [state], state.ty))


def _write_copy(shape: tuple[int, ...], dtype: str) -> tirx.PrimFunc:
    """A scheduled function that copies a tensor."""
    function = nest.signature({"data": (shape, dtype)}, {"copied": (shape, dtype)})
    data, copied = function.params

    def loops(*indices: Any) -> tirx.Stmt:
        if len(indices) == len(shape):
            return nest.store(copied, data[indices], *indices)
        return nest.serial(shape[len(indices)], lambda index: loops(*indices, index))

    return nest.with_loops(function, loops())
