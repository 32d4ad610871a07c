"""Write to state in place where nothing reads its old value afterwards.

    main(x, cache):
        new = call_tir(scatter, (cache, i, rows))    →    new = call_tir_inplace(in_place, (i, rows, cache))
        y = attention(x, new)
        return y, new

``scatter`` copies the cache and writes some rows; ``in_place`` only writes them. Reshapes between are views
of the same memory. The caller's tensor then holds the new state, so that no run copies a cache. A state that
something else reads as well, or that is computed otherwise, keeps its copy.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from worker.compiler.layout.relax_graph import Graph, count_reads, operator_of, read_graph
from worker.compiler.legalize.scatter import Scatter, scatter_of, write_scatter_in_place
from worker.compiler.schedules.annotations import STATE
from worker.compiler.schedules.processors import Machine

_VIEW = "reshape"


def update_state_in_place(machine: Machine) -> tvm.transform.Pass:
    """A pass that replaces copies of state by writes to it."""

    @tvm.transform.module_pass(opt_level=0, name="UpdateStateInPlace")
    def update(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        main = module["main"]
        updates = _updates(module, main) if main.attrs and STATE in main.attrs else {}
        if not updates:
            return module
        writer = _Writer(module, updates, machine)
        writer.builder_.update_func(module.get_global_var("main"), writer.visit_expr(main))
        return writer.builder_.get()

    return update


def _updates(module: tvm.IRModule, main: relax.Function) -> dict[relax.Var, Scatter]:
    """The bindings whose calls can write to their first operand, with what they compute."""
    first_input, first_output, count = map(int, main.attrs[STATE])
    graph, reads = read_graph(main), count_reads(main)
    results = graph.lookup(main.body.body).fields[first_output : first_output + count]
    states = main.params[first_input : first_input + count]
    calls = (
        _call_between(state, result, graph, reads) for state, result in zip(states, results, strict=True)
    )
    scatters = {call: scatter_of(module[graph.values[call].args[0]]) for call in calls if call is not None}
    return {call: scatter for call, scatter in scatters.items() if scatter is not None}


def _call_between(
    state: relax.Var, result: relax.Expr, graph: Graph, reads: Counter[relax.Var]
) -> relax.Var | None:
    """The call from a state to its new value, if only views lie between and nothing else reads the state."""
    value: Any = graph.values.get(result)
    while operator_of(value) == _VIEW:
        result = value.args[0]
        value = graph.values.get(result)
    if operator_of(value) != "call_tir":
        return None
    source: Any = value.args[1].fields[0]
    while not source.same_as(state):
        view: Any = graph.values.get(source)
        if reads[source] != 1 or operator_of(view) != _VIEW:
            return None
        source = view.args[0]
    return result if reads[state] == 1 else None


@mutator
class _Writer(PyExprMutator):
    def __init__(self, module: tvm.IRModule, updates: dict[relax.Var, Scatter], machine: Machine) -> None:
        super().__init__(module)
        self._updates = updates
        self._machine = machine

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if binding.var in self._updates:
            data, indices, values = binding.value.args[1].fields
            function = write_scatter_in_place(self._updates[binding.var], self._machine)
            in_place = self.builder_.add_func(function, "scatter_in_place")
            arguments, kind = [indices, values, data], binding.value.ty_args[0]
            call = relax.op.call_tir_inplace(in_place, arguments, [2], kind)
            binding = relax.VarBinding(binding.var, call)
        super().visit_var_binding_(binding)
