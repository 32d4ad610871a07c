"""Move the definition of a size that depends on data before everything that uses it.

    y = fused(x, n)                      count = compact(mask)
    count = compact(mask)          →     shape = tensor_to_shape(count)
    shape = tensor_to_shape(count)       _ = match_cast(shape, [n])
    _ = match_cast(shape, [n])           y = fused(x, n)

``FuseOps`` orders calls by the tensors that they read, not by the sizes (TVM 0.27).
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx


@tvm.transform.module_pass(opt_level=0, name="OrderSizes")
def order_sizes(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Move definitions of sizes before their uses in ``main``."""
    main = module["main"]
    if not _defines_sizes(main):
        return module
    blocks = [_ordered(block) for block in main.body.blocks]
    body = relax.SeqExpr(blocks, main.body.body)
    ordered = module.clone()
    ordered.update_func(
        module.get_global_var("main"),
        relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs),
    )
    return ordered


def _defines_sizes(main: relax.Function) -> bool:
    return isinstance(main.body, relax.SeqExpr) and any(
        isinstance(binding, relax.MatchCast) for block in main.body.blocks for binding in block.bindings
    )


def _ordered(block: relax.BindingBlock) -> relax.BindingBlock:
    """The bindings in their order, each after what it needs."""
    definers: dict[Any, relax.Binding] = {binding.var: binding for binding in block.bindings}
    for binding in block.bindings:
        if isinstance(binding, relax.MatchCast):
            for size in relax.analysis.definable_tir_vars_in_type(binding.ty):
                definers.setdefault(size, binding)
    done: dict[relax.Var, relax.Binding] = {}
    for first in block.bindings:
        pending = [first]
        while pending:
            binding = pending[-1]
            needed = (definers[one] for one in _needs(binding) if one in definers)
            absent = [one for one in needed if one.var not in done and not one.same_as(binding)]
            if absent:
                pending += absent[:1]
            else:
                done.setdefault(pending.pop().var, binding)
    return type(block)(list(done.values()))


def _needs(binding: relax.Binding) -> list[Any]:
    """The variables and sizes that a binding reads."""
    found: list[Any] = []
    tvm_ffi.structural_walk(binding.value, (relax.Var, found.append), (tirx.Var, found.append))
    if not isinstance(binding, relax.MatchCast):
        found += relax.analysis.tir_vars_in_type(binding.var.ty)
    return found
