"""Which kernels check their arguments."""

import numpy as np
import tvm
from family_samples import main_of, scheduled, target_of
from tvm import relax, tirx

from worker.candidates.library import INPUT_CHECK
from worker.compiler.codegen.argument_checks import check_inputs_once
from worker.compiler.codegen.executable import compile_module

TARGET = target_of("x86-64-v3")
CALL_TIR = tvm.ir.Op.get("relax.call_tir")


def two_products() -> tvm.IRModule:
    weights = relax.const(np.ones((64, 64), "float32"))

    def build(x: relax.Expr) -> relax.Expr:
        return relax.op.matmul(relax.op.nn.softmax(relax.op.matmul(x, weights)), weights)

    return scheduled(main_of(build, np.zeros((3, 64), "float32")), TARGET)


def test_an_input_is_checked_once_and_its_kernels_trust_it() -> None:
    module = check_inputs_once(two_products())
    kernels = [name for name in called_in(module) if not name.startswith(INPUT_CHECK)]
    checks = [name for name in called_in(module) if name.startswith(INPUT_CHECK)]

    assert checks == ["check_input_float32_3x64"]
    assert len(kernels) == 3
    assert set(kernels) <= trusting(module)
    assert not set(checks) & trusting(module)


def test_inputs_of_one_type_share_their_check() -> None:
    module = tvm.IRModule({"main": sum_of(3)})

    checked = check_inputs_once(module)

    assert called_in(checked) == ["check_input_float32_4"] * 3
    assert len(checked.functions) == 2


def sum_of(count: int) -> relax.Function:
    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"x{index}", relax.TensorType((4,), "float32")) for index in range(count)]
    with builder.function("main", inputs):
        total = inputs[0]
        for one in inputs[1:]:
            total = builder.emit(relax.op.add(total, one))
        builder.emit_func_output(total)
    return builder.get()["main"]


def called_in(module: tvm.IRModule) -> list[str]:
    """The functions that ``main`` calls, in order."""
    calls = [binding.value for block in module["main"].body.blocks for binding in block.bindings]
    functions = [call.args[0] if call.op == CALL_TIR else call.op for call in calls]
    return [str(one.name_hint) for one in functions if isinstance(one, tvm.ir.GlobalVar)]


def trusting(module: tvm.IRModule) -> set[str]:
    """The functions that check no arguments."""
    return {
        str(variable.name_hint)
        for variable, function in module.functions_items()
        if isinstance(function, tirx.PrimFunc) and function.attrs.get("bessemer.trusts_arguments", False)
    }


def test_kernels_without_checks_are_smaller() -> None:
    module = two_products()
    lean = compile_module(module, TARGET)
    full = relax.build(module, TARGET)

    assert code_length(lean) < code_length(full)


def code_length(executable: relax.VMExecutable) -> int:
    """The length of the LLVM code in characters."""
    return len(executable.mod.imports[0].inspect_source("ll"))
