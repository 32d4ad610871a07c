"""Let a pool or a depthwise convolution run right behind the convolution that alone feeds it::

    a = call_tir(conv2d, (x, W)); b = call_tir(max_pool, (a,))    →    b = call_tir(conv2d_max_pool, (x, W))

The first convolution's result then stays in the second-level cache. Functions are joined after elementwise
ones are fused, and only if the family of chains claims the result (``families/convolution/chain``).
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx
from tvm.relax import transform
from tvm.relax.expr_functor import PyExprMutator, mutator

from worker.compiler.rewrites.grouping import PRIMITIVE
from worker.compiler.schedules.annotations import CONVOLUTION, DEPTHWISE, FAMILY, POOLING
from worker.compiler.schedules.families.convolution.chain import chain_plans, find_chain
from worker.compiler.schedules.inline import inline_blocks
from worker.compiler.schedules.processors import Machine

JOIN_WINDOWS = "JoinWindows"
_CALL_TIR = tvm.ir.Op.get("relax.call_tir")


def join_windows(machine: Machine) -> tvm.transform.Pass:
    """A pass that joins pools and depthwise convolutions with the convolutions before them."""

    @tvm.transform.module_pass(opt_level=0, name=JOIN_WINDOWS)
    def join(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        if not _has_windows(module):
            return module
        joiner = _Joiner(module, machine)
        for variable, function in module.functions_items():
            if isinstance(function, relax.Function):
                joiner.count(function)
                joiner.builder_.update_func(variable, joiner.visit_expr(function))
        return joiner.builder_.get()

    return join


class _Call(NamedTuple):
    """A call of a TensorIR function."""

    function: tvm.ir.GlobalVar
    operands: tuple[relax.Expr, ...]
    result: Any


@mutator
class _Joiner(PyExprMutator):
    def __init__(self, module: tvm.IRModule, machine: Machine) -> None:
        super().__init__(module)
        self._module = module
        self._machine = machine
        self._values: dict[relax.Var, relax.Expr] = {}
        self._uses: Counter[relax.Var] = Counter()

    def count(self, function: relax.Function) -> None:
        """Count the readers of each variable of a function."""

        def visit(node: Any) -> None:
            if isinstance(node, relax.Var):
                self._uses[node] += 1

        relax.analysis.post_order_visit(function.body, visit)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """Replace windows by their joined function; the convolution is then unread."""
        self._values[binding.var] = binding.value
        joined = self._joined(binding.value)
        super().visit_var_binding_(binding if joined is None else relax.VarBinding(binding.var, joined))

    def _joined(self, value: relax.Expr) -> relax.Expr | None:
        windows = self._call(value, POOLING, DEPTHWISE)
        if windows is None or not isinstance(windows.operands[0], relax.Var):
            return None
        image = windows.operands[0]
        convolution = self._call(self._values.get(image), CONVOLUTION)
        if convolution is None or self._uses[image] != 1:
            return None
        name = f"{convolution.function.name_hint}_{windows.function.name_hint.removeprefix('fused_')}"
        function = _merged(self._module, convolution, windows, name)
        if not _is_claimed(function, self._machine):
            return None
        variable = self.builder_.add_func(function, name)
        operands = [*convolution.operands, *windows.operands[1:]]
        return relax.call_tir(variable, relax.Tuple(operands), windows.result)

    def _call(self, value: relax.Expr | None, *families: str) -> _Call | None:
        if not isinstance(value, relax.Call) or not value.op.same_as(_CALL_TIR) or len(value.args) != 2:
            return None
        function, operands = value.args
        if _family(self._module[function]) not in families or not isinstance(operands, relax.Tuple):
            return None
        return _Call(function, tuple(operands.fields), value.ty_args[0])


def _merged(module: tvm.IRModule, convolution: _Call, windows: _Call, name: str) -> tirx.PrimFunc:
    """One function of a convolution and the windows that read it."""
    builder = relax.BlockBuilder()
    functions = [
        builder.add_func(module[call.function], call.function.name_hint) for call in (convolution, windows)
    ]
    kinds = [each.ty for each in (*convolution.operands, *windows.operands[1:])]
    given = [relax.Var("operand", kind) for kind in kinds]
    own, others = given[: len(convolution.operands)], given[len(convolution.operands) :]
    with builder.function(name, given, attrs={PRIMITIVE: True}, private=True):
        with builder.dataflow():
            image = builder.emit(relax.call_tir(functions[0], relax.Tuple(own), convolution.result))
            result = builder.emit_output(
                relax.call_tir(functions[1], relax.Tuple([image, *others]), windows.result)
            )
        joined = builder.emit_func_output(result)
    passed = [relax.Var("operand", kind) for kind in kinds]
    with builder.function("main", passed):  # FuseTIR drops functions that no other one calls
        builder.emit_func_output(builder.emit(joined(*passed)))
    return transform.FuseTIR()(builder.get())[name]


def _has_windows(module: tvm.IRModule) -> bool:
    return any(_family(function) in (POOLING, DEPTHWISE) for _, function in module.functions_items())


def _family(function: Any) -> str | None:
    """The family that a function's first annotated block names."""
    if not isinstance(function, tirx.PrimFunc):
        return None
    found: list[str] = []

    def visit(block: Any) -> None:
        if FAMILY in block.annotations:
            found.append(str(block.annotations[FAMILY]))

    tvm_ffi.structural_walk(function.body, (s_tir.SBlock, visit))
    return found[0] if found else None


def _is_claimed(function: tirx.PrimFunc, machine: Machine) -> bool:
    """Whether the family of chains computes a function without much repeated work."""
    schedule = inline_blocks(
        s_tir.Schedule(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}))
    )
    chain = find_chain(schedule)
    return chain is not None and bool(chain_plans(chain, machine))
