"""Finds the uses of kernels in a function, and writes the calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from worker.compiler.kernels.kernel import Kernel, Operand
from worker.compiler.layout.relax_graph import count_reads, operator_of


@dataclass(frozen=True)
class Use:
    """A chain of calls that a kernel can compute, and the variables that they are bound to."""

    kernel: Kernel
    variables: tuple[relax.Var, ...]
    calls: tuple[relax.Call, ...]
    operands: tuple[relax.Expr, ...]

    @property
    def result(self) -> relax.Var:
        """The variable that holds the kernel's result."""
        return self.variables[-1]

    @property
    def workload(self) -> str:
        """The operator and its operands' shapes, as a request and the report name them."""
        return f"{self.kernel.operator}[{','.join(map(str, map(operand_of, self.operands)))}]"

    @property
    def has_dynamic_sizes(self) -> bool:
        """Whether a size is dynamic, so that the use cannot be measured."""
        return any(None in operand_of(operand).shape for operand in self.operands)


def operand_of(expression: relax.Expr) -> Operand:
    """The shape and dtype of an expression; both empty if it is not a tensor of known rank."""
    kind = expression.ty
    if not isinstance(kind, relax.TensorType) or not isinstance(kind.shape, relax.ShapeExpr):
        return Operand((), "")
    sizes = (int(size) if isinstance(size, tirx.IntImm) else None for size in kind.shape)
    return Operand(tuple(sizes), str(kind.dtype))


def find_uses(function: relax.Function, kernels: Iterable[Kernel]) -> Iterator[Use]:
    """Non-overlapping chains that kernels can compute, each with the first kernel that fits.

    Values inside a chain must not have other readers, for which they would be computed twice.
    """
    values = dict(relax.analysis.get_var2val(function))
    reads = count_reads(function)
    claimed: set[relax.Var] = set()
    known = tuple(kernels)
    for variable in reversed(list(_bound(function))):
        for kernel in known:
            use = _match(variable, kernel, values, reads)
            if use is not None and claimed.isdisjoint(use.variables):
                claimed.update(use.variables)
                yield use
                break


def call_kernels(module: tvm.IRModule, uses: Iterable[Use]) -> tvm.IRModule:
    """The module with ``main`` calling the kernels."""
    caller = _Caller(module, {use.result: use for use in uses})
    variable = module.get_global_var("main")
    function = relax.analysis.remove_all_unused(caller.visit_expr(module[variable]))
    changed = caller.builder_.get()
    changed.update_func(variable, function)
    return changed


@mutator
class _Caller(PyExprMutator):
    def __init__(self, module: tvm.IRModule, uses: dict[relax.Var, Use]) -> None:
        super().__init__(module)
        self._uses = uses

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        use = self._uses.get(binding.var)
        if use is not None:
            call = relax.call_dps_packed(use.kernel.symbol, list(use.operands), out_ty=binding.var.ty)
            binding = relax.VarBinding(binding.var, call)
        super().visit_var_binding_(binding)


def _match(
    last: relax.Var, kernel: Kernel, values: Mapping[relax.Var, relax.Expr], reads: Counter[relax.Var]
) -> Use | None:
    variables, operands = [last], list[relax.Expr]()
    for name in reversed(kernel.chain[1:]):
        before = kernel.chain[len(kernel.chain) - len(variables) - 1]
        step = _step(values.get(variables[0]), name, before, values)
        if step is None or reads[step[0]] != 1:
            return None
        variables.insert(0, step[0])
        operands[:0] = step[1]
    first: Any = values.get(variables[0])
    if operator_of(first) != kernel.chain[0]:
        return None
    operands[:0] = [argument for argument in first.args if isinstance(argument.ty, relax.TensorType)]
    fits = kernel.fits(tuple(map(operand_of, operands))) and _is_dense(operands)
    calls = tuple(values[variable] for variable in variables)
    return Use(kernel, tuple(variables), calls, tuple(operands)) if fits else None


def _step(
    call: Any, name: str, before: str, values: Mapping[relax.Var, relax.Expr]
) -> tuple[relax.Var, list[relax.Expr]] | None:
    """The variable that a call of ``name`` continues from, and its other operands."""
    if operator_of(call) != name:
        return None
    for index, argument in enumerate(call.args):
        if isinstance(argument, relax.Var) and operator_of(values.get(argument)) == before:
            return argument, [other for place, other in enumerate(call.args) if place != index]
    return None


def _is_dense(operands: Iterable[relax.Expr]) -> bool:
    return all(operand_of(operand).dtype for operand in operands)


def _bound(function: relax.Function) -> Iterator[relax.Var]:
    if isinstance(function.body, relax.SeqExpr):
        for block in function.body.blocks:
            yield from (binding.var for binding in block.bindings)
