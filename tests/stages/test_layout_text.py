"""Each layout pass: a small graph before and after, and the kernels that it writes.

Vectors have eight lanes. ``[N, C, H, W]`` in blocks is ``[N, C / 8, H, W, 8]``.
"""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes  # noqa: F401 - gives NumPy bfloat16
import numpy as np
import pytest
import tvm
from ir_text import AVX2, Pass, array, body_of, check, check_loops, loops_of, program
from tvm import relax

from worker.compiler.layout.attention.fuse_attention import fuse_attention
from worker.compiler.layout.blocked.block_convolutions import block_convolutions
from worker.compiler.layout.memory.share_memory import share_memory
from worker.compiler.layout.memory.share_storage import share_storage
from worker.compiler.layout.pack_linear import PanelWidths, pack_linear_weights
from worker.compiler.layout.separate_parameters import keep_results
from worker.compiler.rewrites.equal_expressions import merge_equal_expressions

BLOCK_CONVOLUTIONS = block_convolutions(AVX2.machine)
PACK_LINEAR_WEIGHTS = pack_linear_weights(AVX2.machine)
SHARE_MEMORY = share_memory(AVX2.machine)


def test_a_convolution_and_its_consumers_compute_in_blocks() -> None:
    module = check(
        BLOCK_CONVOLUTIONS,
        "x: (1, 16, 6, 6)",
        before="""
            c = R.nn.conv2d(x, W, padding=1)
            out = R.nn.relu(c)
        """,
        after="""
            lv = R.call_tir(to_blocks, (x,), (1, 2, 6, 6, 8))
            lv1 = R.call_tir(conv2d, (lv, const(2, 2, 3, 3, 8, 8)), (1, 2, 6, 6, 8))
            lv2 = R.nn.relu(lv1)
            out = R.call_tir(from_blocks, (lv2,), (1, 16, 6, 6))
        """,
        W=array(16, 16, 3, 3),
    )

    check_loops(
        module,
        "to_blocks",
        """
        for n, block, row, column, lane in T.grid(1, 2, 6, 6, 8):
            to_blocks[n, block, row, column, lane] = x[n, block * 8 + lane, row, column]
        """,
    )


def test_a_convolution_of_half_precision_reads_packed_weights_of_half_precision() -> None:
    module = check(
        BLOCK_CONVOLUTIONS,
        "x: (1, 16, 6, 6) bfloat16",
        before="""
            c = R.nn.conv2d(x, W, padding=1, out_dtype="float32")
            out = R.nn.relu(c)
        """,
        after="""
            lv = R.call_tir(to_blocks, (x,), (1, 2, 6, 6, 8) bfloat16)
            lv1 = R.astype(lv, dtype="float32")
            lv2 = R.call_tir(conv2d, (lv1, const(2, 2, 3, 3, 8, 8)), (1, 2, 6, 6, 8))
            lv3 = R.nn.relu(lv2)
            out = R.call_tir(from_blocks, (lv3,), (1, 16, 6, 6))
        """,
        W=array(16, 16, 3, 3).astype("bfloat16"),
    )

    assert '"bfloat16"' in loops_of(module, "conv2d")


def test_a_join_of_any_channels_stays_in_blocks() -> None:
    check(
        BLOCK_CONVOLUTIONS,
        "x: (1, 3, 4, 4)",
        before="""
            a = R.nn.conv2d(x, A)
            b = R.nn.conv2d(x, B)
            j = R.concat((a, b), axis=1)
            out = R.nn.conv2d(j, W)
        """,
        after="""
            lv = R.call_tir(conv2d, (x, const(1, 3, 1, 1, 8)), (1, 1, 4, 4, 8))
            lv1 = R.call_tir(conv2d1, (x, const(2, 3, 1, 1, 8)), (1, 2, 4, 4, 8))
            lv2 = R.concat((lv, lv1), axis=1)
            lv3 = R.call_tir(conv2d2, (lv2, const(1, 3, 1, 1, 8, 8)), (1, 1, 4, 4, 8))
            out = R.call_tir(from_blocks, (lv3,), (1, 8, 4, 4))
        """,
        A=array(5, 3, 1, 1),
        B=array(11, 3, 1, 1),
        W=array(8, 16, 1, 1),
    )


def test_a_half_of_shuffled_channels_is_collected_once() -> None:
    module = check(
        BLOCK_CONVOLUTIONS,
        "x: (1, 3, 4, 4)",
        before="""
            a = R.nn.conv2d(x, A)
            g = R.reshape(a, (1, 2, 8, 4, 4))
            p = R.permute_dims(g, (0, 2, 1, 3, 4))
            s = R.reshape(p, (1, 16, 4, 4))
            h = R.strided_slice(s, axes=[1], begin=[8], end=[16])
            out = R.nn.conv2d(h, W)
        """,
        after="""
            lv = R.call_tir(conv2d, (x, const(2, 3, 1, 1, 8)), (1, 2, 4, 4, 8))
            lv1 = R.call_tir(gather, (lv,), (1, 1, 4, 4, 8))
            lv2 = R.call_tir(conv2d1, (lv1, const(5, 1, 1, 1, 8, 8)), (1, 5, 4, 4, 8))
            out = R.call_tir(from_blocks, (lv2,), (1, 40, 4, 4))
        """,
        A=array(16, 3, 1, 1),
        W=array(40, 8, 1, 1),
    )

    first, second = (f"image[0, {block}, i, i_1, T.Ramp(0, 1, 8)]" for block in range(2))
    halves = f"T.Shuffle([{first}, {first}], [4, 1, 5, 3, 6, 5, 7, 7])"
    check_loops(
        module,
        "gather",
        f"""
        for i, i_1 in T.grid(4, 4):
            gathered[0, 0, i, i_1, 0:8] = T.Shuffle([{halves}, {second}], [0, 12, 2, 13, 4, 14, 6, 15])
        """,
    )


def test_a_plain_image_of_few_channels_needs_no_conversion() -> None:
    module = check(
        BLOCK_CONVOLUTIONS,
        "x: (1, 3, 8, 8)",
        before="out = R.nn.conv2d(x, W)",
        after="""
            lv = R.call_tir(conv2d, (x, const(2, 3, 3, 3, 8)), (1, 2, 6, 6, 8))
            out = R.call_tir(from_blocks, (lv,), (1, 16, 6, 6))
        """,
        W=array(16, 3, 3, 3),
    )

    assert "x[n, channel, row + tap, column + tap_1] * B[k, channel, tap, tap_1, lane]" in loops_of(
        module, "conv2d"
    )


def test_variable_weights_are_packed_by_a_kernel() -> None:
    check(
        BLOCK_CONVOLUTIONS,
        "x: (1, 16, 4, 4), W: (16, 16, 1, 1)",
        before="out = R.nn.conv2d(x, W)",
        after="""
            lv = R.call_tir(to_blocks, (x,), (1, 2, 4, 4, 8))
            lv1 = R.call_tir(pack_weights, (W,), (2, 2, 1, 1, 8, 8))
            lv2 = R.call_tir(conv2d, (lv, lv1), (1, 2, 4, 4, 8))
            out = R.call_tir(from_blocks, (lv2,), (1, 16, 4, 4))
        """,
    )


def test_a_depthwise_convolution_and_a_pool_slide_over_blocks() -> None:
    module = check(
        BLOCK_CONVOLUTIONS,
        "x: (1, 16, 8, 8)",
        before="""
            slid = R.nn.conv2d(x, W, groups=16)
            out = R.nn.max_pool2d(slid, pool_size=[2, 2], strides=[2, 2])
        """,
        after="""
            lv = R.call_tir(to_blocks, (x,), (1, 2, 8, 8, 8))
            lv1 = R.call_tir(depthwise_conv2d, (lv, const(2, 3, 3, 8)), (1, 2, 6, 6, 8))
            lv2 = R.call_tir(max_pool, (lv1,), (1, 2, 3, 3, 8))
            out = R.call_tir(from_blocks, (lv2,), (1, 16, 3, 3))
        """,
        W=array(16, 1, 3, 3),
    )

    check_loops(
        module,
        "max_pool",
        """
        for n, c, row, column, lane, tap, tap_1 in T.grid(1, 2, 3, 3, 8, 2, 2):
            T.sblock_attr({"bessemer.dilation": [1, 1], "bessemer.dimensions": 2, "bessemer.family": "pooling", "bessemer.padding": [0, 0], "bessemer.strides": [2, 2]})
            with T.init():
                max_pool[n, c, row, column, lane] = -inf
            max_pool[n, c, row, column, lane] = T.max(max_pool[n, c, row, column, lane], slid[n, c, row * 2 + tap, column * 2 + tap_1, lane])
        """,  # noqa: E501
    )


@pytest.mark.parametrize(
    ("groups", "shape", "after"),
    [
        (
            4,
            (16, 4, 1, 1),
            "lv1 = R.call_tir(transposed_conv2d, (lv, const(2, 1, 1, 1, 8, 8)), (1, 2, 4, 4, 8))",
        ),
        (
            8,
            (16, 3, 1, 1),
            """
            lv1 = R.call_tir(regroup, (lv,), (1, 8, 4, 4, 8))
            lv2 = R.call_tir(transposed_conv2d, (lv1, const(8, 1, 1, 1, 8, 8)), (1, 8, 4, 4, 8))
            lv3 = R.call_tir(regroup1, (lv2,), (1, 3, 4, 4, 8))
            """,
        ),
    ],
    ids=["merged in pairs", "filled up"],
)
def test_groups_begin_at_the_first_lane_of_a_block(groups: int, shape: tuple[int, ...], after: str) -> None:
    blocked = "\n".join(line.strip() for line in after.strip().split("\n"))
    last = blocked.rpartition("\n")[2].partition(" = ")[0]
    check(
        BLOCK_CONVOLUTIONS,
        "x: (1, 16, 4, 4)",
        before=f"out = R.nn.conv2d_transpose(x, W, groups={groups})",
        after="lv = R.call_tir(to_blocks, (x,), (1, 2, 4, 4, 8))\n"
        + blocked
        + f"\nout = R.call_tir(from_blocks, ({last},), (1, {groups * shape[1]}, 4, 4))",
        W=array(*shape),
    )


def test_groups_of_few_channels_share_vectors() -> None:
    module = check(
        BLOCK_CONVOLUTIONS,
        "x: (1, 16, 4, 4)",
        before="out = R.nn.conv2d(x, W, groups=4)",
        after="""
            lv = R.call_tir(to_blocks, (x,), (1, 2, 4, 4, 8))
            lv1 = R.call_tir(grouped_conv2d, (lv, const(2, 1, 1, 4, 1, 8)), (1, 2, 4, 4, 8))
            out = R.call_tir(from_blocks, (lv1,), (1, 16, 4, 4))
        """,
        W=array(16, 4, 1, 1),
    )

    check_loops(
        module,
        "grouped_conv2d",
        """
        for n, number, row, column, element in T.grid(1, 2, 4, 4, 8):
            bundled[n, number, row, column, element] = T.if_then_else(0 <= row and row < 4 and 0 <= column and column < 4 and number * 8 + element % 2 * 4 + element // 2 < 16, lv[n, (element % 2 * 4 + element // 2) // 8 + number, row, column, (element % 2 * 4 + element // 2) % 8], 0.0)
        for n, k, row, column, lane, channel, tap, tap_1 in T.grid(1, 2, 4, 4, 8, 4, 1, 1):
            T.sblock_attr({"bessemer.bundle": [2, 4, 4], "bessemer.dilation": [1, 1], "bessemer.family": "grouped_convolution", "bessemer.padding": [0, 0], "bessemer.steps": [1, 1]})
            with T.init():
                grouped[n, k, row, column, lane] = 0.0
            grouped[n, k, row, column, lane] = grouped[n, k, row, column, lane] + bundled[n, k, row + tap, column + tap_1, channel * 2 + lane // 4] * B[k, (lane % 4 * 2 + lane // 4) // 8, tap, channel, tap_1, (lane % 4 * 2 + lane // 4) % 8]
        """,  # noqa: E501
    )


def test_a_transposed_convolution_sums_the_taps_that_meet_a_pixel() -> None:
    module = check(
        BLOCK_CONVOLUTIONS,
        "x: (1, 16, 4, 4)",
        before="out = R.nn.conv2d_transpose(x, W, strides=[2, 2])",
        after="""
            lv = R.call_tir(to_blocks, (x,), (1, 2, 4, 4, 8))
            lv1 = R.call_tir(transposed_conv2d, (lv, const(1, 2, 3, 3, 8, 8)), (1, 1, 9, 9, 8))
            out = R.call_tir(from_blocks, (lv1,), (1, 8, 9, 9))
        """,
        W=array(16, 8, 3, 3),
    )

    assert "T.if_then_else((row - tap) % 2 == 0 and (column - tap_1) % 2 == 0" in loops_of(
        module, "transposed_conv2d"
    )


def test_joins_slices_and_means_stay_in_blocks() -> None:
    check(
        BLOCK_CONVOLUTIONS,
        "x: (1, 16, 4, 4)",
        before="""
            a = R.nn.conv2d(x, W)
            b = R.add(a, B)
            both = R.concat((a, b), axis=1)
            middle = R.strided_slice(both, axes=[1], begin=[8], end=[24])
            out = R.mean(middle, axis=[2, 3], keepdims=True)
        """,
        after="""
            lv = R.call_tir(to_blocks, (x,), (1, 2, 4, 4, 8))
            lv1 = R.call_tir(conv2d, (lv, const(2, 2, 1, 1, 8, 8)), (1, 2, 4, 4, 8))
            lv2 = R.add(lv1, const(1, 2, 1, 1, 8))
            lv3 = R.concat((lv1, lv2), axis=1)
            lv4 = R.strided_slice(lv3, (1,), (1,), (3,), assume_inbound=False)
            lv5 = R.call_tir(avg_pool, (lv4,), (1, 2, 1, 1, 8))
            out = R.reshape(lv5, R.shape([1, 16, 1, 1]))
        """,
        W=array(16, 16, 1, 1),
        B=array(16, 1, 1),
    )


def test_a_flattened_image_is_multiplied_in_the_order_of_its_blocks() -> None:
    check(
        BLOCK_CONVOLUTIONS,
        "x: (2, 16, 4, 4)",
        before="""
            c = R.nn.conv2d(x, W)
            f = R.reshape(c, R.shape([2, 208]))
            out = R.matmul(f, M)
        """,
        after="""
            lv = R.call_tir(to_blocks, (x,), (2, 2, 4, 4, 8))
            lv1 = R.call_tir(conv2d, (lv, const(2, 2, 1, 1, 8, 8)), (2, 2, 4, 4, 8))
            lv2 = R.reshape(lv1, R.shape([2, 256]))
            out = R.matmul(lv2, const(256, 5))
        """,
        W=array(13, 16, 1, 1),
        M=array(208, 5),
    )


def test_an_operator_without_a_rule_reads_the_plain_tensor() -> None:
    check(
        BLOCK_CONVOLUTIONS,
        "x: (1, 16, 4, 4)",
        before="out = R.nn.softmax(R.nn.conv2d(x, W), axis=1)",
        after="""
            lv = R.call_tir(to_blocks, (x,), (1, 2, 4, 4, 8))
            lv1 = R.call_tir(conv2d, (lv, const(2, 2, 1, 1, 8, 8)), (1, 2, 4, 4, 8))
            lv2 = R.call_tir(from_blocks, (lv1,), (1, 12, 4, 4))
            out = R.nn.softmax(lv2, axis=1)
        """,
        W=array(12, 16, 1, 1),
    )


def test_a_linear_layer_reads_panels() -> None:
    module = check(
        PACK_LINEAR_WEIGHTS,
        "x: (64, 64)",
        before="out = R.matmul(x, W)",
        after="out = R.call_tir(linear, (x, const(7, 64, 16)), (64, 100))",
        W=array(64, 100),
    )

    check_loops(
        module,
        "linear",
        """
        for i0, i1, k in T.grid(64, 100, 64):
            T.sblock_attr({"bessemer.packed": 16})
            with T.init():
                linear[i0, i1] = 0.0
            linear[i0, i1] = linear[i0, i1] + x[i0, k] * B[i1 // 16, k, i1 - T.min(i1 // 16 * 16, 84)]
        """,
    )


def test_a_matrix_narrower_than_a_panel_is_filled_up() -> None:
    check(
        PACK_LINEAR_WEIGHTS,
        "x: (2, 3)",
        before="out = R.matmul(x, W)",
        after="out = R.call_tir(linear, (x, const(1, 3, 8)), (2, 5))",
        W=array(3, 5),
    )


@pytest.mark.parametrize(
    ("widths", "columns"), [(None, 56), (PanelWidths(), 64)], ids=["one entry point", "several"]
)
def test_panels_of_half_vectors_are_not_shared(widths: PanelWidths | None, columns: int) -> None:
    machine = replace(AVX2.machine, vector_bits=512, registers=32, threads=2, has_halves=True)

    check(
        pack_linear_weights(machine, widths),
        "x: (1, 5408)",
        before="out = R.matmul(x, W)",
        after=f"out = R.call_tir(linear, (x, const(2, 5408, {columns})), (1, 100))",
        W=array(5408, 100),
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_vectors_widen_numbers_of_half_precision_once_for_all_layers(dtype: str) -> None:
    check(
        tvm.transform.Sequential(
            [PACK_LINEAR_WEIGHTS, merge_equal_expressions, relax.transform.CanonicalizeBindings()]
        ),
        f"x: (64, 32) {dtype}",
        before="""
            a = R.matmul(x, A, out_dtype="float32")
            b = R.matmul(x, B, out_dtype="float32")
            out = R.add(a, b)
        """,
        after="""
            lv = R.astype(x, dtype="float32")
            a = R.call_tir(linear, (lv, const(1, 32, 40)), (64, 40))
            b = R.call_tir(linear, (lv, const(1, 32, 40)), (64, 40))
            out = R.add(a, b)
        """,
        A=array(32, 40).astype(dtype),
        B=-array(32, 40).astype(dtype),
    )


def test_separate_weights_of_a_linear_layer_are_packed_by_a_kernel() -> None:
    module = check(
        PACK_LINEAR_WEIGHTS,
        "x: (64, 64), W: (64, 100)",
        before="out = R.matmul(x, W)",
        after="""
            lv = R.call_tir(pack_weights, (W,), (7, 64, 16))
            out = R.call_tir(linear, (x, lv), (64, 100))
        """,
        inputs=1,
    )

    check_loops(
        module,
        "pack_weights",
        """
        for panel, step, column in T.grid(7, 64, 16):
            pack_weights[panel, step, column] = W[step, T.min(panel * 16, 84) + column]
        """,
    )


def test_a_product_of_two_inputs_stays() -> None:
    check(PACK_LINEAR_WEIGHTS, "x: (2, 3), y: (3, 40)", *["out = R.matmul(x, y)"] * 2)


def test_attention_reads_through_splits_reshapes_and_transpositions() -> None:
    check(
        fuse_attention,
        "x: (1, 4, 16)",
        before="""
            halves = R.split(x, 2, axis=-1)
            q = R.permute_dims(R.reshape(halves[0], (1, 4, 2, 4)), [0, 2, 1, 3])
            k = R.permute_dims(R.reshape(halves[1], (1, 4, 2, 4)), [0, 2, 3, 1])
            attended = R.matmul(R.nn.softmax(R.matmul(q, k), axis=-1), q)
            out = R.permute_dims(attended, [0, 2, 1, 3])
        """,
        after="out = R.call_tir(attention, (x,), (1, 4, 2, 4))",
    )


@pytest.mark.parametrize(
    ("mask", "operands", "causal"),
    [
        (np.where(np.tri(4), 0, -np.inf), "(q, k, v)", True),
        (np.where(np.tri(4).T, 0, -np.inf), "(const(4, 4), q, k, v)", False),
    ],
    ids=["causal", "another"],
)
def test_a_causal_mask_becomes_a_comparison(mask: np.ndarray, operands: str, causal: bool) -> None:
    module = check(
        fuse_attention,
        "q: (2, 4, 8), k: (2, 4, 8), v: (2, 4, 8)",
        before="""
            scores = R.add(R.matmul(q, R.permute_dims(k, [0, 2, 1])), MASK)
            out = R.matmul(R.nn.softmax(scores, axis=-1), v)
        """,
        after=f"out = R.call_tir(attention, {operands}, (2, 4, 8))",
        MASK=mask.astype("float32"),
    )

    assert ("T.Select(i2 <= i1, scores[i0, i1, i2], -inf)" in loops_of(module, "attention")) is causal


def test_attention_whose_weights_have_another_reader_stays() -> None:
    module = """
        lv = R.permute_dims(k, axes=[0, 2, 1])
        lv1 = R.matmul(q, lv)
        lv2 = R.nn.softmax(lv1, axis=-1)
        lv3 = R.matmul(lv2, v)
        out = lv3, lv2
    """
    before = module.replace("lv3, lv2\n", "(lv3, lv2)\n")
    check(fuse_attention, "q: (2, 4, 8), k: (2, 6, 8), v: (2, 6, 8)", before, module)


def in_turn(*passes: tvm.transform.Pass) -> Pass:
    return lambda module: tvm.transform.Sequential(passes)(module)


blocked_and_shared = in_turn(BLOCK_CONVOLUTIONS, SHARE_MEMORY)
TWO_CONVOLUTIONS = """
    a = R.nn.conv2d(x, W)
    b = R.nn.conv2d(a, W)
"""


def test_a_join_of_kernel_outputs_is_marked_as_a_copy_to_drop() -> None:
    module = check(
        blocked_and_shared,
        "x: (1, 16, 4, 4)",
        before=TWO_CONVOLUTIONS + "    out = R.concat((a, b), axis=1)",
        after="""
            lv = R.call_tir(to_blocks, (x,), (1, 2, 4, 4, 8))
            lv1 = R.call_tir(conv2d, (lv, const(2, 2, 1, 1, 8, 8)), (1, 2, 4, 4, 8))
            lv2 = R.call_tir(conv2d, (lv1, const(2, 2, 1, 1, 8, 8)), (1, 2, 4, 4, 8))
            lv3 = R.call_tir(join, (lv1, lv2), (1, 4, 4, 4, 8))
            out = R.call_tir(from_blocks, (lv3,), (1, 32, 4, 4))
        """,
        W=array(16, 16, 1, 1),
    )

    assert module["join"].attrs["bessemer.shares"] == "join"
    check_loops(
        module,
        "join",
        """
        for i, i_1, i_2, i_3 in T.grid(2, 4, 4, 8):
            whole[0, i, i_1, i_2, i_3] = part0[0, i, i_1, i_2, i_3]
        for i, i_1, i_2, i_3 in T.grid(2, 4, 4, 8):
            whole[0, i + 2, i_1, i_2, i_3] = part1[0, i, i_1, i_2, i_3]
        """,
    )


def test_a_slice_says_at_which_byte_it_begins() -> None:
    module = check(
        blocked_and_shared,
        "x: (1, 16, 4, 4)",
        before="out = R.strided_slice(R.nn.conv2d(x, W), axes=[1], begin=[8], end=[16])",
        after="""
            lv = R.call_tir(to_blocks, (x,), (1, 2, 4, 4, 8))
            lv1 = R.call_tir(conv2d, (lv, const(2, 2, 1, 1, 8, 8)), (1, 2, 4, 4, 8))
            lv2 = R.call_tir(cut, (lv1,), (1, 1, 4, 4, 8))
            out = R.call_tir(from_blocks, (lv2,), (1, 8, 4, 4))
        """,
        W=array(16, 16, 1, 1),
    )

    assert module["cut"].attrs["bessemer.first_byte"] == 4 * 4 * 8 * 4


@pytest.mark.parametrize(
    ("shape", "joined"),
    [("(2, 16, 4, 4)", "(a, b)"), ("(1, 16, 4, 4)", "(a, x)"), ("(1, 16, 4, 4)", "(a, a)")],
    ids=["parts that lie apart", "an input", "a part twice"],
)
def test_a_join_that_needs_a_copy_stays(shape: str, joined: str) -> None:
    module = program(
        f"x: {shape}", TWO_CONVOLUTIONS + f"    out = R.concat({joined}, axis=1)", W=array(16, 16, 1, 1)
    )
    with AVX2.llvm:
        assert "R.concat" in body_of(blocked_and_shared(module))


def test_joined_tensors_lie_in_one_storage() -> None:
    lowered = in_turn(
        BLOCK_CONVOLUTIONS,
        SHARE_MEMORY,
        relax.transform.ToNonDataflow(),
        relax.transform.RemovePurityChecking(),
        relax.transform.CallTIRRewrite(),
        share_storage,
    )
    module = program(
        "x: (1, 16, 4, 4)", TWO_CONVOLUTIONS + "    out = R.concat((a, b), axis=1)", W=array(16, 16, 1, 1)
    )
    with AVX2.llvm:
        bindings = body_of(lowered(module))

    assert [line for line in bindings.split("\n") if "storage" in line or "offset" in line] == [
        'storage = R.memory.alloc_storage(R.shape([2048]), 0, R.str("global"), R.dtype("uint8"))',
        'alloc1 = R.memory.alloc_tensor(storage, 0, R.shape([1, 2, 4, 4, 8]), R.dtype("float32"), 0)',
        'gv = R.memory.alloc_tensor(storage, 1024, R.shape([1, 2, 4, 4, 8]), R.dtype("float32"), 0)',
        'alloc2 = R.call_packed("vm.builtin.ensure_zero_offset", gv)',
        'alloc3 = R.memory.alloc_tensor(storage, 0, R.shape([1, 4, 4, 4, 8]), R.dtype("float32"), 0)',
    ]
    assert "join" not in bindings


def test_a_result_that_depends_on_parameters_alone_is_not_lifted() -> None:
    check(
        keep_results,
        "x: (2,), w: (2,)",
        before="""
            a = R.exp(w)
            out = (a, a)
        """,
        after="""
            a = R.exp(w)
            lv = R.builtin.stop_lift_params(a)
            out = lv, a
        """,
        inputs=1,
    )
