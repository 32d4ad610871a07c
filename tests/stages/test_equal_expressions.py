"""Equal expressions are merged, also where their constants are large."""

import numpy as np
import pytest
import tvm
from tvm import relax

from worker.compiler.rewrites.equal_expressions import LARGE_BYTES, merge_equal_expressions

SMALL, LARGE = 4, LARGE_BYTES // 4


def sums(*constants: np.ndarray) -> tvm.IRModule:
    """The sums of one input and each of several constants."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(constants[0].shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            found = [builder.emit(relax.op.add(x, relax.const(value))) for value in constants]
            output = builder.emit_output(relax.Tuple(found))
        builder.emit_func_output(output)
    return builder.get()


def ramp(size: int, last: float = 0.0) -> np.ndarray:
    values = np.arange(size, dtype=np.float32)
    values[-1] = last
    return values


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize(("last", "additions"), [(0.0, 1), (1.0, 2)])
def test_only_equal_constants_make_equal_expressions(size: int, last: float, additions: int) -> None:
    main = merge_equal_expressions(sums(ramp(size), ramp(size, last)))["main"]

    assert len(main.params) == 1
    text = main.script(show_meta=False)
    assert text.count("R.add(") == additions


def test_bits_decide_whether_constants_are_equal() -> None:
    zeros = np.zeros(LARGE, np.float32)
    main = merge_equal_expressions(sums(zeros, -zeros))["main"]

    assert main.script(show_meta=False).count("R.add(") == 2


def test_the_result_is_that_of_tvms_pass() -> None:
    module = sums(ramp(LARGE), ramp(LARGE), ramp(LARGE, 1.0))
    expected = relax.transform.EliminateCommonSubexpr()(module)

    tvm.ir.assert_structural_equal(merge_equal_expressions(module), expected)
