"""Checks the tensors passed to a library once, instead of in every kernel that reads them.

TVM emits, for every kernel::

    assert shape, strides, alignment and device of each argument
    loops

The assertions are most of a small kernel's code, and LLVM takes longer to compile them than the loops. They
cannot fail on a tensor that another kernel of the library wrote into memory planned by the virtual machine.
The arguments of ``main`` come from outside, so ``main`` first passes each to a function that has the
assertions and no loops::

    main(x):
        check_input_float32_4x16(x)
        y = kernel(x)

Then every kernel whose arguments are all of these two kinds becomes ``loops`` alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import tvm
from tvm import relax, tirx
from tvm.ir import GenericConst

from worker.candidates.library import INPUT_CHECK

_MAIN = "main"
_TRUSTS = "bessemer.trusts_arguments"
_CALL = tvm.ir.Op.get("relax.call_tir")
_CALL_KERNEL = tvm.ir.Op.get("relax.call_dps_packed")
_VIEWS = frozenset({"relax.reshape", "relax.memory.view"})


def check_inputs_once(module: tvm.IRModule) -> tvm.IRModule:
    """Check the arguments of ``main`` at its start, and mark the TensorIR functions that need no checks.

    A function needs none if all its calls pass only checked tensors or the library's own.

    Args:
        module: legalized and fused, before memory is planned.
    """
    trusting = _trusting_functions(module)
    marked = module.clone() if _MAIN not in _names(module) else _with_checks(module)
    for variable, function in module.functions_items():
        if isinstance(function, tirx.PrimFunc) and variable.name_hint in trusting:
            marked.update_func(variable, function.with_attr(_TRUSTS, True))
    return marked


@tvm.transform.module_pass(opt_level=0, name="SkipNeedlessChecks")
def skip_needless_checks(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Remove the assertions from marked functions."""
    trusting = {
        variable: function
        for variable, function in module.functions_items()
        if function.attrs and function.attrs.get(_TRUSTS, False)
    }
    changed = module.clone()
    changed.update(tirx.transform.SkipAssert()(tvm.IRModule(trusting)))
    return changed


def bindings_of(module: tvm.IRModule) -> Iterator[relax.Binding]:
    """The bindings of a module's Relax functions, including those of branches."""
    for function in module.functions.values():
        if isinstance(function, relax.Function):
            yield from _bindings(function.body)


def _names(module: tvm.IRModule) -> set[str]:
    return {str(variable.name_hint) for variable in module.get_global_vars()}


def _with_checks(module: tvm.IRModule) -> tvm.IRModule:
    """The module whose ``main`` first checks its tensors, with one function for each type of tensor."""
    main = module[_MAIN]
    builder = relax.BlockBuilder(module)
    checks: dict[str, tvm.ir.GlobalVar] = {}
    bindings = []
    for argument in _tensors_of(main):
        check = _check_of(argument.ty)
        name = str(check.attrs["global_symbol"])
        if name not in checks:
            checks[name] = builder.add_func(check.without_attr("global_symbol"), name)
        call = builder.normalize(relax.Call(checks[name], [argument]))
        bindings.append(relax.VarBinding(relax.Var("_", call.ty), call))
    changed = builder.get()
    if bindings:
        body = relax.SeqExpr([relax.BindingBlock(bindings), *main.body.blocks], main.body.body)
        checked = relax.Function(main.params, body, main.ret_ty, is_pure=False, attrs=main.attrs)
        changed.update_func(changed.get_global_var(_MAIN), checked)
    return changed


def _tensors_of(function: relax.Function) -> list[relax.Var]:
    return [
        one for one in function.params if isinstance(one.ty, relax.TensorType) and one.ty.shape is not None
    ]


def _check_of(tensor: relax.TensorType) -> tirx.PrimFunc:
    """A function that only checks its tensor. The virtual machine checks how dynamic sizes are related."""
    sizes = [size if isinstance(size, tirx.IntImm) else tirx.Var("n", "int64") for size in tensor.shape]
    shown = "x".join(str(int(size)) if isinstance(size, tirx.IntImm) else "n" for size in sizes) or "scalar"
    argument = tirx.decl_buffer(sizes, str(tensor.dtype), "argument")
    check = tirx.PrimFunc([argument], tirx.Evaluate(0))
    return check.with_attr("global_symbol", f"{INPUT_CHECK}{tensor.dtype}_{shown}")


def _trusting_functions(module: tvm.IRModule) -> set[str]:
    trusting: set[str] = set()
    doubting: set[str] = set()
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            own = set(_tensors_of(function)) if variable.name_hint == _MAIN else set()
            for binding in _bindings(function.body):
                _read_binding(binding, own, trusting, doubting)
    return trusting - doubting


def _read_binding(
    binding: relax.Binding, own: set[relax.Var], trusting: set[str], doubting: set[str]
) -> None:
    call = getattr(binding, "value", None)
    if isinstance(call, relax.TupleGetItem):
        call = call.tuple_value
    if isinstance(call, relax.Var) and call in own:
        own.add(binding.var)
    if not isinstance(call, relax.Call):
        return
    if call.op == _CALL_KERNEL:
        own.add(binding.var)
        return
    if call.op == _CALL:
        trusts = all(_is_own(argument, own) for argument in _fields(call.args[1]))
        (trusting if trusts else doubting).add(str(call.args[0].name_hint))
        own.add(binding.var)
        return
    if isinstance(call.op, tvm.ir.Op) and call.op.name in _VIEWS and _is_own(call.args[0], own):
        own.add(binding.var)
    used = (part for part in (call.op, *call.args) if isinstance(part, tvm.ir.GlobalVar))
    doubting.update(str(variable.name_hint) for variable in used)


def _is_own(argument: relax.Expr, own: set[relax.Var]) -> bool:
    return isinstance(argument, GenericConst) or (isinstance(argument, relax.Var) and argument in own)


def _fields(arguments: relax.Expr) -> Iterable[relax.Expr]:
    return arguments.fields if isinstance(arguments, relax.Tuple) else (arguments,)


def _bindings(body: relax.Expr) -> Iterator[relax.Binding]:
    """The bindings in order, including those of branches."""
    if not isinstance(body, relax.SeqExpr):
        return
    for block in body.blocks:
        for binding in block.bindings:
            value = getattr(binding, "value", None)
            if isinstance(value, relax.If):
                yield from _bindings(value.true_branch)
                yield from _bindings(value.false_branch)
            yield binding
