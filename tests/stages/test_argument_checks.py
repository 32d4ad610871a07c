"""Which kernels check their arguments."""

import numpy as np
import tvm
from family_samples import main_of, scheduled, target_of
from tvm import relax, tirx

from worker.compiler.codegen.argument_checks import trust_own_tensors
from worker.compiler.codegen.executable import compile_module

TARGET = target_of("x86-64-v3")


def two_products() -> tvm.IRModule:
    weights = relax.const(np.ones((64, 64), "float32"))

    def build(x: relax.Expr) -> relax.Expr:
        return relax.op.matmul(relax.op.nn.softmax(relax.op.matmul(x, weights)), weights)

    return scheduled(main_of(build, np.zeros((3, 64), "float32")), TARGET)


def test_only_kernels_that_read_an_input_check_their_arguments() -> None:
    module = trust_own_tensors(two_products())
    called = [
        str(binding.value.args[0].name_hint)
        for block in module["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call) and binding.value.op == tvm.ir.Op.get("relax.call_tir")
    ]
    trusting = [
        str(variable.name_hint)
        for variable, function in module.functions_items()
        if isinstance(function, tirx.PrimFunc) and function.attrs.get("bessemer.trusts_arguments", False)
    ]

    assert len(called) == 3
    assert called[0] not in trusting
    assert called[1] in trusting


def test_kernels_without_checks_are_smaller() -> None:
    module = two_products()
    lean = compile_module(module, TARGET)
    full = relax.build(module, TARGET)

    assert code_length(lean) < code_length(full)


def code_length(executable: relax.VMExecutable) -> int:
    """The length of the LLVM code in characters."""
    return len(executable.mod.imports[0].inspect_source("ll"))
