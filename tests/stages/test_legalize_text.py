"""The graph and the loops that our legalizations emit for an operator."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from ir_text import AVX2, array, check, check_loops, loops_of, program
from tvm import relax

from worker.compiler.legalize.registry import legalization_map


def legalize(module: tvm.IRModule) -> tvm.IRModule:
    return relax.transform.LegalizeOps(legalization_map())(module)


def loops(parameters: str, call: str, function: str, **constants: np.ndarray) -> str:
    """The loops of a function that legalizing one call makes."""
    with AVX2.llvm:
        return loops_of(legalize(program(parameters, f"out = {call}", **constants)), function)


@pytest.mark.parametrize(
    ("call", "function", "element"),
    [
        ("R.nn.relu(x)", "relu", "T.max(0.0, x[i0, i1])"),
        ("R.clip(x, R.prim_value(-1.0), R.prim_value(1.0))", "clip", "T.min(1.0, T.max(-1.0, x[i0, i1]))"),
    ],
    ids=["relu", "clip"],
)
def test_a_bound_comes_first_so_that_nan_stays(call: str, function: str, element: str) -> None:
    assert loops("x: (2, 4)", call, function).endswith(f"bounded[i0, i1] = {element}")


def test_the_larger_of_two_tensors_is_nan_where_one_is() -> None:
    text = loops("x: (4,), y: (4,)", "R.maximum(x, y)", "maximum")

    left, right = "T_broadcast_to[i0]", "T_broadcast_to_1[i0]"
    assert text.endswith(f"chosen[i0] = T.Select(T.isnan({left}), {left}, T.max({left}, {right}))")


def test_a_maximum_starts_from_infinity() -> None:
    assert loops("x: (3, 5)", "R.max(x, axis=[1])", "max") == (
        "for i0, k1 in T.grid(3, 5):\n"
        "    with T.init():\n"
        "        extremes[i0] = -inf\n"
        "    extremes[i0] = T.max(extremes[i0], x[i0, k1])"
    )


def test_a_pool_of_a_plain_image_reads_a_border_of_infinities() -> None:
    module = check(
        legalize,
        "x: (1, 1, 4, 4)",
        before="out = R.nn.max_pool2d(x, pool_size=[3, 3], strides=[2, 2], padding=[1, 1, 1, 1])",
        after="out = R.call_tir(max_pool2d, (x,), (1, 1, 2, 2))",
    )

    border, pool = "border[n, c, i0 * 2 + tap, i1 * 2 + tap_1]", "max_pool[n, c, i0, i1]"
    text = loops_of(module, "max_pool2d")
    assert ", x[n, c, i0 - 1, i1 - 1], -inf)" in text
    assert text.endswith(f"{pool} = T.max({pool}, {border})")


@pytest.mark.parametrize(
    ("parameters", "call", "function", "element"),
    [
        ("x: (4,), y: (4,)", "R.subtract(x, y)", "subtract", "x + y * -1.0"),
        ("x: (4,), y: (4,)", "R.not_equal(x, y)", "not_equal", "x != y or T.isnan(x) or T.isnan(y)"),
        ("x: (4,), y: (4,)", "R.equal(x, y)", "equal", "x == y and not T.isnan(x)"),
        ("x: (4,) bool", "R.logical_not(x)", "logical_not", 'T.Cast("bool", T.Cast("int8", x) ^ T.int8(1))'),
    ],
    ids=["subtract", "not_equal", "equal", "logical_not"],
)
def test_tvm_cannot_simplify_differences_and_comparisons_of_floats(
    parameters: str, call: str, function: str, element: str
) -> None:
    text = loops(parameters, call, function).rpartition(" = ")[2]

    plain = text.replace("T_broadcast_to_1[i0]", "y").replace("T_broadcast_to[i0]", "x").replace("x[i0]", "x")
    assert plain == element


def test_a_group_norm_subtracts_the_mean_before_squaring() -> None:
    module = check(
        legalize,
        "x: (2, 4, 3, 3)",
        before="out = R.nn.group_norm(x, G, B, num_groups=2, channel_axis=1, axes=[2, 3], epsilon=0.5)",
        after="""
            lv = R.call_tir(reshape, (x,), (4, 2, 9))
            lv1 = R.call_tir(group_norm, (lv, const(4), const(4)), (4, 2, 9))
            out = R.call_tir(reshape1, (lv1,), (2, 4, 3, 3))
        """,
        G=array(4),
        B=array(4),
    )

    check_loops(
        module,
        "group_norm",
        """
        for r, c, s in T.grid(4, 2, 9):
            with T.init():
                sums[r] = 0.0
            sums[r] = sums[r] + lv[r, c, s]
        for r in range(4):
            means[r] = sums[r] / 18.0
        for r, c, s in T.grid(4, 2, 9):
            with T.init():
                squares[r] = 0.0
            squares[r] = squares[r] + (lv[r, c, s] - means[r]) * (lv[r, c, s] - means[r])
        for r in range(4):
            scales[r] = T.rsqrt(squares[r] / 18.0 + 0.5)
        for r, c, s in T.grid(4, 2, 9):
            normal[r, c, s] = (lv[r, c, s] - means[r]) * scales[r] * B[r % 2 * 2 + c] + C[r % 2 * 2 + c]
        """,
    )


def test_a_norm_over_the_batch_takes_three_passes() -> None:
    check(
        legalize,
        "x: (2, 4, 3, 3)",
        before="out = R.nn.instance_norm(x, G, B, channel_axis=1, axes=[0, 2, 3], epsilon=0.5)",
        after="""
            lv = R.call_tir(reshape, (x,), (2, 4, 9))
            lv1 = R.call_tir(means, (lv,), (4,))
            lv2 = R.call_tir(scales, (lv, lv1), (4,))
            lv3 = R.call_tir(batch_norm, (lv, lv1, lv2, const(4), const(4)), (2, 4, 9))
            out = R.call_tir(reshape1, (lv3,), (2, 4, 3, 3))
        """,
        G=array(4),
        B=array(4),
    )


def test_a_sort_along_the_first_axis_sorts_rows_and_turns_them_back() -> None:
    check(
        legalize,
        "x: (3, 5) int32",
        before="out = R.argsort(x, axis=0)",
        after="""
            lv = R.call_tir(transpose, (x,), (5, 3) int32)
            lv1 = R.call_tir(reshape, (lv,), (5, 3) int32)
            lv2 = R.call_tir(argsort, (lv1,), (5, 3) int32)
            lv3 = R.call_tir(reshape, (lv2,), (5, 3) int32)
            lv4 = R.call_tir(transpose1, (lv3,), (3, 5) int32)
            out = lv4
        """,
    )


def test_floats_are_sorted_by_integer_keys() -> None:
    check(
        legalize,
        "x: (3, 5)",
        before="out = R.argsort(x)",
        after="""
            lv = R.call_tir(sort_keys, (x,), (3, 5) int32)
            lv1 = R.call_tir(reshape, (lv,), (3, 5) int32)
            lv2 = R.call_tir(argsort, (lv1,), (3, 5) int32)
            lv3 = R.call_tir(reshape, (lv2,), (3, 5) int32)
            out = lv3
        """,
    )


def test_threads_share_the_rows_of_a_large_sort() -> None:
    text = loops("x: (64, 1000) int32", "R.argsort(x)", "argsort")

    assert text.startswith("for i in T.parallel(8):\n    T.call_packed(")
    assert "T.tvm_stack_make_shape(T.min(8, 64 - i * 8), 1000)" in text


def test_a_scan_keeps_its_running_value_in_registers() -> None:
    module = check(
        legalize,
        "x: (3, 16)",
        before="out = R.cumsum(x, axis=0)",
        after="""
            lv = R.call_tir(reshape, (x,), (1, 3, 16))
            lv1 = R.call_tir(cumsum, (lv,), (1, 3, 16))
            out = R.call_tir(reshape1, (lv1,), (3, 16))
        """,
    )

    check_loops(
        module,
        "cumsum",
        """
        running = T.alloc_local((2, 8))
        for i in T.unroll(2):
            for i_1 in T.vectorized(8):
                running[i, i_1] = 0.0
        for i in range(3):
            for i_1 in T.unroll(2):
                for i_2 in T.vectorized(8):
                    running[i_1, i_2] = running[i_1, i_2] + source[0, i, T.min(0, 0) + (i_1 * 8 + i_2)]
                    scanned[0, i, T.min(0, 0) + (i_1 * 8 + i_2)] = running[i_1, i_2]
        """,
    )


def test_a_scan_along_the_last_axis_is_one_chain_per_row() -> None:
    assert loops("x: (3, 5)", "R.cumprod(x, axis=1)", "cumprod") == (
        "for i in range(3):\n"
        "    running = T.alloc_local((1, 1))\n"
        "    running[0, 0] = 1.0\n"
        "    for i_1 in range(5):\n"
        "        running[0, 0] = running[0, 0] * source[i, i_1, T.min(0, 0)]\n"
        "        scanned[i, i_1, T.min(0, 0)] = running[0, 0]"
    )


def test_a_scatter_copies_the_tensor_and_writes_in_order() -> None:
    module = check(
        legalize,
        "x: (3, 8), i: (2, 8) int64, v: (2, 8)",
        before="out = R.scatter_elements(x, i, v, axis=0, reduction='add')",
        after="""
            lv = R.call_tir(reshape, (x,), (1, 3, 8))
            lv1 = R.call_tir(reshape1, (i,), (1, 2, 8) int64)
            lv2 = R.call_tir(reshape2, (v,), (1, 2, 8))
            lv3 = R.call_tir(scatter, (lv, lv1, lv2), (1, 3, 8))
            out = R.call_tir(reshape3, (lv3,), (3, 8))
        """,
    )

    check_loops(
        module,
        "scatter",
        """
        for i, i_1 in T.grid(3, 8):
            scattered[0, i, i_1] = data[0, i, i_1]
        for i, i_1 in T.grid(2, 8):
            at: T.int64 = T.Select(indices[0, i, i_1] < 0, indices[0, i, i_1] + 3, indices[0, i, i_1])
            if at >= 0 and at < 3:
                scattered[0, at, i_1] = scattered[0, at, i_1] + values[0, i, i_1]
        """,
    )


def test_a_resize_reads_places_and_weights_from_tables() -> None:
    module = check(
        legalize,
        "x: (1, 2, 3, 4)",
        before="""
            out = R.image.resize2d(x, R.shape([6, 8]), layout="NCHW", method="linear")
        """,
        after="""
            lv = R.call_tir(reshape, (x,), (2, 3, 4))
            lv1 = R.call_tir(resize2d, (lv, const(2, 8), const(2, 8), const(2, 6), const(2, 6)), (2, 6, 8))
            out = R.call_tir(reshape1, (lv1,), (1, 2, 6, 8))
        """,
    )

    text = loops_of(module, "resize2d").split("\n")
    assert [line.partition(" = ")[0] for line in text] == [
        "for i in range(2):",
        "    strip",
        "    for i_1 in range(3):",
        "        for i_2 in T.vectorized(8):",
        "            strip[i_1, i_2]",
        "    for i_1 in range(6):",
        "        for i_2 in T.vectorized(8):",
        "            resized[i, i_1, i_2]",
    ]


def test_argmax_finds_the_extreme_and_then_its_first_place() -> None:
    module = check(
        legalize,
        "x: (3, 5)",
        before="out = R.argmax(x, axis=1)",
        after="""
            lv = R.call_tir(reshape, (x,), (3, 5, 1))
            lv1 = R.call_tir(argmax, (lv,), (3, 1) int64)
            out = R.call_tir(reshape1, (lv1,), (3,) int64)
        """,
    )

    assert 'T.min(places[b, a], T.Select(lv[b, k, a] == extremes[b, a], T.Cast("int32", k), 4))' in loops_of(
        module, "argmax"
    )


def test_constant_indices_within_the_table_are_not_checked() -> None:
    assert loops("x: (3, 5)", "R.take(x, PLACES, axis=0)", "take", PLACES=np.array([2, 0])) == (
        "for ax0, ax1 in T.grid(2, 5):\n    T_take[ax0, ax1] = x[B[ax0], ax1]"
    )
