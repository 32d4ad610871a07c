"""Joins a function with the one whose result only it reads::

    a = call_tir(conv2d, (x, W)); b = call_tir(max_pool, (a,))    →    b = call_tir(conv2d_max_pool, (x, W))
    a = call_tir(linear, (x, V)); b = call_tir(linear, (a, W))    →    b = call_tir(linear_linear, (x, V, W))

Pools and depthwise convolutions join the convolution before them, products the product before them. The first
function's result then stays in the second-level cache. Functions are joined after elementwise ones are fused,
and only if a family claims the result (``families/convolution/chain``, ``families/matmul/chain``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx
from tvm.relax import transform
from tvm.relax.expr_functor import PyExprMutator, mutator

from worker.compiler.rewrites.grouping import PRIMITIVE
from worker.compiler.schedules.annotations import CONVOLUTION, DEPTHWISE, FAMILY, PACKED, POOLING
from worker.compiler.schedules.each_image import of_one_image
from worker.compiler.schedules.families.convolution.chain import chain_plans, find_chain
from worker.compiler.schedules.families.matmul.chain import find_product_chain, product_chain_plans
from worker.compiler.schedules.inline import inline_blocks
from worker.compiler.schedules.processors import Machine

JOIN = "JoinCalls"
_CALL_TIR = tvm.ir.Op.get("relax.call_tir")


def join_calls(machine: Machine) -> tvm.transform.Pass:
    """A pass that joins each function with the one before it if a family computes both."""

    @tvm.transform.module_pass(opt_level=0, name=JOIN)
    def join(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
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
        self._functions: dict[tuple[str, str], tvm.ir.GlobalVar | None] = {}

    def count(self, function: relax.Function) -> None:
        """Count the readers of each variable of a function."""

        def visit(node: Any) -> None:
            if isinstance(node, relax.Var):
                self._uses[node] += 1

        relax.analysis.post_order_visit(function.body, visit)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """Replace a call by one of a joined function; the call before it is then unread."""
        joined = self._joined(binding.value)
        if joined is None:
            self._values[binding.var] = binding.value
        super().visit_var_binding_(binding if joined is None else relax.VarBinding(binding.var, joined))

    def _joined(self, value: relax.Expr) -> relax.Expr | None:
        second = self._call(value)
        if second is None or not isinstance(second.operands[0], relax.Var):
            return None
        between = second.operands[0]
        first = self._call(self._values.get(between))
        if first is None or self._uses[between] != 1:
            return None
        function = self._function(first, second)
        if function is None:
            return None
        operands = [*first.operands, *second.operands[1:]]
        return relax.call_tir(function, relax.Tuple(operands), second.result)

    def _function(self, first: _Call, second: _Call) -> tvm.ir.GlobalVar | None:
        """The function of both calls, made once; None if no family claims it."""
        names = first.function.name_hint, second.function.name_hint
        if names not in self._functions:
            self._functions[names] = self._made(first, second)
        return self._functions[names]

    def _made(self, first: _Call, second: _Call) -> tvm.ir.GlobalVar | None:
        families = (_families(self._module[call.function]) for call in (first, second))
        claims = _JOINS.get(tuple(found[0] if found else None for found in families))
        if claims is None:
            return None
        name = f"{first.function.name_hint}_{second.function.name_hint.removeprefix('fused_')}"
        function = _merged(self._module, first, second, name)
        claimed = claims(_schedule_of(function, self._machine), self._machine)
        return self.builder_.add_func(function, name) if claimed else None

    def _call(self, value: relax.Expr | None) -> _Call | None:
        if not isinstance(value, relax.Call) or not value.op.same_as(_CALL_TIR) or len(value.args) != 2:
            return None
        function, operands = value.args
        if not isinstance(operands, relax.Tuple) or not operands.fields:
            return None
        return _Call(function, tuple(operands.fields), value.ty_args[0])


def _merged(module: tvm.IRModule, first: _Call, second: _Call, name: str) -> tirx.PrimFunc:
    """One function of two calls, of which the second reads the first's result."""
    builder = relax.BlockBuilder()
    functions = [builder.add_func(module[call.function], call.function.name_hint) for call in (first, second)]
    kinds = [each.ty for each in (*first.operands, *second.operands[1:])]
    given = [relax.Var("operand", kind) for kind in kinds]
    own, others = given[: len(first.operands)], given[len(first.operands) :]
    with builder.function(name, given, attrs={PRIMITIVE: True}, private=True):
        with builder.dataflow():
            between = builder.emit(relax.call_tir(functions[0], relax.Tuple(own), first.result))
            result = builder.emit_output(
                relax.call_tir(functions[1], relax.Tuple([between, *others]), second.result)
            )
        joined = builder.emit_func_output(result)
    passed = [relax.Var("operand", kind) for kind in kinds]
    with builder.function("main", passed):  # FuseTIR drops functions that no other one calls
        builder.emit_func_output(builder.emit(joined(*passed)))
    return transform.FuseTIR()(builder.get())[name]


def has_joined_products(module: tvm.IRModule) -> bool:
    """Whether any function of a module has two products."""
    return any(_families(function).count(PACKED) > 1 for _, function in module.functions_items())


def _families(function: Any) -> list[str]:
    """The families that a function's annotated blocks name, and ``PACKED`` for products of packed weights."""
    found: list[str] = []

    def visit(block: Any) -> None:
        if FAMILY in block.annotations:
            found.append(str(block.annotations[FAMILY]))
        elif PACKED in block.annotations:
            found.append(PACKED)

    if isinstance(function, tirx.PrimFunc):
        tvm_ffi.structural_walk(function.body, (s_tir.SBlock, visit))
    return found


def _schedule_of(function: tirx.PrimFunc, machine: Machine) -> s_tir.Schedule:
    """The schedule that families see, of one image if the number of images is dynamic."""
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    schedule = inline_blocks(s_tir.Schedule(module))
    return of_one_image(schedule, machine) or schedule


def _are_windows(schedule: s_tir.Schedule, machine: Machine) -> bool:
    """Whether windows can run together with their convolution without much repeated work."""
    chain = find_chain(schedule)
    return chain is not None and bool(chain_plans(chain, machine))


def _are_products(schedule: s_tir.Schedule, machine: Machine) -> bool:
    """Whether two products are faster as one function."""
    chain = find_product_chain(schedule, machine)
    return chain is not None and bool(product_chain_plans(chain, machine))


_JOINS: Mapping[tuple[str | None, ...], Callable[[s_tir.Schedule, Machine], bool]] = MappingProxyType(
    {
        (CONVOLUTION, POOLING): _are_windows,
        (CONVOLUTION, DEPTHWISE): _are_windows,
        (PACKED, PACKED): _are_products,
    }
)
"""Whether a family claims the function of two calls, by the families of both."""
