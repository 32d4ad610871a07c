"""Translates an IRModule: it is in Relax already, and is normalized and checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import tvm
from tvm import relax, s_tir, tirx

from bessemer.contract.problem import ErrorCode
from bessemer.contract.request import Parameters
from worker.candidates.library import MAIN
from worker.compiler.layout.separate_parameters import INPUTS
from worker.compiler.schedules.annotations import AUTHORED, OPAQUE, PATTERN, SCHEDULED
from worker.compiler.schedules.authored import is_authored
from worker.errors import failure_of
from worker.tensors import as_tensor

if TYPE_CHECKING:
    from worker.compiler.values import RelaxProgram

NORMALIZATION: tuple[tvm.transform.Pass, ...] = (
    relax.transform.InlinePrivateFunctions(),
    relax.transform.DeadCodeElimination([MAIN]),
    relax.transform.Normalize(),
    relax.transform.ConvertToDataflow(1),
)
"""Puts a program into the form that translation gives to others: one function, its pure parts in dataflow."""


def normalized(program: RelaxProgram, parameters: Parameters) -> tuple[tvm.IRModule, dict[str, torch.Tensor]]:
    """The module in the form that ``optimize`` expects, and the parameters that stay arguments.

    Functions that their author scheduled are marked: they stay as they are.

    Raises:
        JobError: ``translate-failed``: the module is not well formed.
    """
    separate: dict[str, torch.Tensor] = {}
    module = program.module
    try:
        if parameters is Parameters.SEPARATE:
            separate = {name: as_tensor(array) for name, array in program.weights.items()}
            module = _with_main(
                module, module[MAIN].with_attr(INPUTS, len(module[MAIN].params) - len(separate))
            )
        elif program.weights:
            values = {name: tvm.runtime.tensor(array) for name, array in program.weights.items()}
            module = relax.transform.BindParams(MAIN, values)(module)
        module = tvm.transform.Sequential(NORMALIZATION)(module)
        relax.analysis.well_formed(module)
    except Exception as error:
        raise failure_of(ErrorCode.TRANSLATE_FAILED, error) from error
    return _marked(module), separate


def _marked(module: tvm.IRModule) -> tvm.IRModule:
    """Mark the functions that must stay as they are, and those that nothing may join."""
    updating = _updating(module)
    changed = module.clone()
    for variable, function in module.functions_items():
        if not isinstance(function, tirx.PrimFunc):
            continue
        if is_authored(function):
            attributes: dict[str, Any] = {SCHEDULED: True, AUTHORED: True, PATTERN: OPAQUE}
            changed.update_func(variable, _with_block(function).with_attr(attributes))
        elif variable.name_hint in updating:
            changed.update_func(variable, function.with_attr(PATTERN, OPAQUE))
    return changed


def _updating(module: tvm.IRModule) -> frozenset[str]:
    """The names of the functions that write into their inputs."""
    names: set[str] = set()

    def visit(call: relax.Expr) -> None:
        if isinstance(call, relax.Call) and call.op == tvm.ir.Op.get("relax.call_tir_inplace"):
            names.add(str(call.args[0].name_hint))

    relax.analysis.post_order_visit(module[MAIN], visit)
    return frozenset(names)


def _with_block(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with a block around its statements, without which passes of Relax refuse it."""
    if isinstance(function.body, s_tir.SBlockRealize):
        return function
    block = s_tir.SBlock([], [], [], "root", function.body)
    return function.with_body(s_tir.SBlockRealize([], True, block)).with_attr("s_tir", True)


def _with_main(module: tvm.IRModule, main: relax.Function) -> tvm.IRModule:
    changed = module.clone()
    changed.update_func(changed.get_global_var(MAIN), main)
    return changed
