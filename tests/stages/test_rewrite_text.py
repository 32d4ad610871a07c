"""Each rewrite of Relax: a small graph before and after."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tvm
from ir_text import Pass, array, body_of, check, program
from tvm import relax
from tvm.relax.dpl import is_const, is_op, is_tuple, wildcard

from worker.compiler.rewrites.engine import Application
from worker.compiler.rewrites.fold import evaluate_constants, fold_batch_norm
from worker.compiler.rewrites.fold_parameters import fold_parameter_batch_norm
from worker.compiler.rewrites.grouping import lift_constants
from worker.compiler.rewrites.registry import rewrite_book
from worker.compiler.rewrites.rewrite import Match, Rewrite


def rewrite(name: str) -> Pass:
    return lambda module: Application(rewrite_book().rewrites[name]).apply(module)[0]


def test_gelu_written_with_erf_becomes_one_operator() -> None:
    check(
        rewrite("gelu_erf"),
        "x: (2, 4)",
        before="""
            error = R.erf(R.multiply(x, R.const(0.70710678, "float32")))
            half = R.multiply(x, R.const(0.5, "float32"))
            out = R.multiply(half, R.add(error, R.const(1.0, "float32")))
        """,
        after="out = R.nn.gelu(x)",
    )


def test_gelu_written_with_tanh_becomes_one_operator() -> None:
    check(
        rewrite("gelu_tanh"),
        "x: (2, 4)",
        before="""
            cube = R.multiply(R.const(0.044715, "float32"), R.power(x, R.const(3.0, "float32")))
            inner = R.multiply(R.const(0.7978845608, "float32"), R.add(x, cube))
            half = R.multiply(x, R.const(0.5, "float32"))
            out = R.multiply(half, R.add(R.tanh(inner), R.const(1.0, "float32")))
        """,
        after="out = R.nn.gelu_tanh(x)",
    )


def test_gelu_of_another_scale_stays() -> None:
    module = """
        lv = R.multiply(x, R.const(0.5, "float32"))
        lv1 = R.erf(lv)
        lv2 = R.add(lv1, R.const(1.0, "float32"))
        lv3 = R.multiply(x, R.const(0.5, "float32"))
        out = R.multiply(lv3, lv2)
    """
    check(rewrite("gelu_erf"), "x: (2, 4)", before=module, after=module)


def test_layer_norm_takes_its_scale_and_shift_along() -> None:
    check(
        rewrite("layer_norm"),
        "x: (2, 8)",
        before="""
            centered = R.subtract(x, R.mean(x, axis=[-1], keepdims=True))
            variance = R.mean(R.multiply(centered, centered), axis=[-1], keepdims=True)
            root = R.sqrt(R.add(variance, R.const(0.5, "float32")))
            out = R.add(R.multiply(R.divide(centered, root), G), B)
        """,
        after="out = R.nn.layer_norm(x, const(8), const(8), axes=[-1], epsilon=0.5)",
        G=array(8),
        B=array(8),
    )


def test_rms_norm_without_scale_gets_ones() -> None:
    check(
        rewrite("rms_norm"),
        "x: (2, 8)",
        before="""
            squares = R.mean(R.multiply(x, x), axis=[-1], keepdims=True)
            out = R.multiply(x, R.rsqrt(R.add(squares, R.const(0.5, "float32"))))
        """,
        after="out = R.nn.rms_norm(x, const(8), axes=[-1], epsilon=0.5)",
    )


def test_a_pool_changes_places_with_a_convolution_of_one_tap() -> None:
    check(
        rewrite("pool_first"),
        "x: (1, 4, 6, 7)",
        before="""
            biased = R.add(R.nn.conv2d(x, W), B)
            out = R.nn.avg_pool2d(biased, pool_size=[2, 2], strides=[2, 2])
        """,
        after="""
            lv = R.nn.avg_pool2d(x, pool_size=[2, 2], ceil_mode=False, count_include_pad=False)
            lv1 = R.nn.conv2d(lv, const(8, 4, 1, 1))
            out = R.add(lv1, const(1, 8, 1, 1))
        """,
        W=array(8, 4, 1, 1),
        B=array(1, 8, 1, 1),
    )


def test_a_pool_stays_behind_a_bias_that_is_not_the_same_for_all_pixels() -> None:
    check(
        rewrite("pool_first"),
        "x: (1, 4, 6, 6)",
        before="""
            biased = R.add(R.nn.conv2d(x, W), B)
            out = R.nn.avg_pool2d(biased, pool_size=[2, 2], strides=[2, 2])
        """,
        after="""
            lv = R.nn.conv2d(x, const(8, 4, 1, 1))
            biased = R.add(lv, const(8, 6, 1))
            out = R.nn.avg_pool2d(biased, pool_size=[2, 2], ceil_mode=False, count_include_pad=False)
        """,
        W=array(8, 4, 1, 1),
        B=array(8, 6, 1),
    )


@pytest.mark.parametrize(
    ("taps", "side", "options"),
    [
        (3, 2, "strides=[2, 2]"),
        (1, 3, "strides=[2, 2], padding=[1, 1, 1, 1]"),
        (1, 2, "strides=[2, 2], ceil_mode=True"),
        (1, 1, "strides=[1, 1]"),
    ],
    ids=["several taps", "a border", "a window over the edge", "as many pixels"],
)
def test_a_pool_stays_behind_a_convolution_of(taps: int, side: int, options: str) -> None:
    pool = f"R.nn.avg_pool2d(lv, pool_size=[{side}, {side}], "
    ceil = "ceil_mode=True" in options
    check(
        rewrite("pool_first"),
        "x: (1, 4, 7, 7)",
        before=f"""
            lv = R.nn.conv2d(x, W)
            out = {pool}{options})
        """,
        after=f"""
            lv = R.nn.conv2d(x, const(8, 4, {taps}, {taps}))
            out = {pool}ceil_mode={ceil}, count_include_pad=False)
        """,
        W=array(8, 4, taps, taps),
    )


def test_a_norm_along_another_axis_stays() -> None:
    module = """
        lv = R.multiply(x, x)
        lv1 = R.mean(lv, axis=[0], keepdims=True)
        lv2 = R.add(lv1, R.const(0.5, "float32"))
        lv3 = R.rsqrt(lv2)
        out = R.multiply(x, lv3)
    """
    check(rewrite("rms_norm"), "x: (2, 8)", before=module, after=module)


PROJECTIONS = {"WQ": array(8, 8), "WK": array(8, 8), "WV": array(8, 4)}
ATTENTION = """
    q = R.matmul(x, WQ)
    k = R.matmul(x, WK)
    v = R.matmul(x, WV)
    scores = R.matmul(q, R.permute_dims(k, [0, 2, 1]))
    attended = R.matmul(R.nn.softmax(scores, axis=-1), v)
"""


def test_projections_of_one_tensor_become_one_product() -> None:
    check(
        rewrite("projections"),
        "x: (2, 4, 8)",
        before=ATTENTION,
        after="""
            lv = R.matmul(x, const(8, 20))
            lv1 = R.split(lv, indices_or_sections=[8, 16], axis=-1)
            q = lv1[0]
            k = lv1[1]
            v = lv1[2]
            lv2 = R.permute_dims(k, axes=[0, 2, 1])
            scores = R.matmul(q, lv2)
            lv3 = R.nn.softmax(scores, axis=-1)
            attended = R.matmul(lv3, v)
        """,
        **PROJECTIONS,
    )


def test_projections_with_another_reader_stay_apart() -> None:
    check(
        rewrite("projections"),
        "x: (2, 4, 8)",
        before=ATTENTION + "    out = (attended, k)",
        after="""
            q = R.matmul(x, const(8, 8))
            k = R.matmul(x, const(8, 8))
            v = R.matmul(x, const(8, 4))
            lv = R.permute_dims(k, axes=[0, 2, 1])
            scores = R.matmul(q, lv)
            lv1 = R.nn.softmax(scores, axis=-1)
            attended = R.matmul(lv1, v)
            out = attended, k
        """,
        **PROJECTIONS,
    )


@pytest.mark.parametrize(
    ("mask", "added"),
    [((6, 1, 4, 4), (6, 1, 4, 4)), ((1, 6, 1, 4, 4), (6, 1, 4, 4)), ((2, 4, 4), (1, 2, 4, 4))],
)
def test_the_mask_of_windows_is_added_in_place(mask: tuple[int, ...], added: tuple[int, ...]) -> None:
    check(
        rewrite("window_masks"),
        "scores: (6, 2, 4, 4)",
        before="""
            windows = R.reshape(scores, [1, 6, 2, 4, 4])
            out = R.reshape(R.add(windows, M), [6, 2, 4, 4])
        """,
        after=f"""
            lv = R.reshape(const{mask}, R.shape({list(added)}))
            out = R.add(scores, lv)
        """,
        M=array(*mask),
    )


def test_the_mask_of_windows_is_repeated_for_each_image() -> None:
    check(
        rewrite("window_masks"),
        "scores: (12, 2, 4, 4)",
        before="""
            windows = R.reshape(scores, [2, 6, 2, 4, 4])
            out = R.reshape(R.add(windows, M), [12, 2, 4, 4])
        """,
        after="out = R.add(scores, const(12, 1, 4, 4))",
        M=array(1, 6, 1, 4, 4),
    )


def test_a_mask_across_windows_stays() -> None:
    module = """
        lv = R.reshape(scores, R.shape([6, 8, 4]))
        lv1 = R.add(lv, m)
        out = R.reshape(lv1, R.shape([6, 2, 4, 4]))
    """
    check(rewrite("window_masks"), "scores: (6, 2, 4, 4), m: (8, 1)", before=module, after=module)


def test_attention_becomes_one_function() -> None:
    check(
        rewrite("attention"),
        "q: (2, 4, 8), k: (2, 6, 8), v: (2, 6, 8)",
        before="""
            scores = R.matmul(q, R.permute_dims(k, [0, 2, 1]))
            scaled = R.multiply(scores, R.const(0.5, "float32"))
            out = R.matmul(R.nn.softmax(scaled, axis=-1), v)
        """,
        after="out = R.call_tir(attention, (q, k, v), (2, 4, 8))",
    )


def test_a_linear_layer_with_its_activation_becomes_one_group() -> None:
    module = check(
        rewrite("linear"),
        "x: (2, 8)",
        before="out = R.nn.relu(R.add(R.matmul(x, W), B))",
        after="out = fused_linear_add_relu(x)",
        W=array(8, 4),
        B=array(4),
    )

    assert body_of(module, "fused_linear_add_relu").split("\n") == [
        "lv = R.matmul(x, const(8, 4))",
        "lv1 = R.add(lv, const(4))",
        "gv = R.nn.relu(lv1)",
    ]


def test_a_product_with_another_reader_is_not_computed_twice() -> None:
    module = """
        lv = R.matmul(x, const(8, 4))
        lv1 = R.add(lv, const(4))
        out = lv1, lv
    """
    before = module.replace("const(8, 4)", "W").replace("const(4)", "B").replace("lv1, lv", "(lv1, lv)")
    check(rewrite("linear"), "x: (2, 8)", before, module, W=array(8, 4), B=array(4))


def test_equal_groups_share_a_function_that_takes_the_weights() -> None:
    def group_and_lift(module: tvm.IRModule) -> tvm.IRModule:
        return lift_constants(rewrite("linear")(module))

    module = check(
        group_and_lift,
        "x: (2, 8)",
        before="""
            hidden = R.add(R.matmul(x, W), B)
            out = R.add(R.matmul(hidden, V), B)
        """,
        after="""
            hidden = fused_linear_add(x, const(8, 8), const(8))
            out = fused_linear_add(hidden, const(8, 8), const(8))
        """,
        W=array(8, 8),
        V=-array(8, 8),
        B=array(8),
    )

    assert body_of(module, "fused_linear_add").split("\n") == [
        "lv = R.matmul(hidden, param_0)",
        "gv = R.add(lv, param_1)",
    ]


@pytest.mark.parametrize(
    ("added", "after"),
    [
        ("(2, 8)", "out = R.ewise_fma(x, y, z)"),
        ("(8,)", "out = fused_multiply_add(x, y, z)"),
        ("(2, 8) int32", None),
    ],
    ids=["same shapes", "broadcast", "integers"],
)
def test_a_product_and_a_sum_become_one_operator(added: str, after: str | None) -> None:
    dtype = " int32" if "int32" in added else ""
    before = "lv = R.multiply(x, y)\nout = R.add(lv, z)"
    check(
        rewrite("ewise_fma"), f"x: (2, 8){dtype}, y: (2, 8){dtype}, z: {added}", before, after=after or before
    )


def test_a_cheap_product_is_computed_twice() -> None:
    check(
        rewrite("ewise_fma"),
        "x: (2, 8), y: (2, 8)",
        before="""
            product = R.multiply(x, y)
            out = R.divide(R.add(product, x), R.add(product, y))
        """,
        after="""
            lv = R.ewise_fma(x, y, x)
            lv1 = R.ewise_fma(x, y, y)
            out = R.divide(lv, lv1)
        """,
    )


def test_constants_are_computed_at_compile_time() -> None:
    check(
        evaluate_constants,
        "x: (2, 8)",
        before="out = R.matmul(x, R.add(R.permute_dims(W), S))",
        after="""
            lv = const(8, 4)
            lv1 = const(8, 4)
            out = R.matmul(x, lv1)
        """,
        W=array(4, 8),
        S=array(8, 1),
    )


STATISTICS = {"G": 2 * array(2), "B": 0 * array(2), "M": array(2), "V": 0 * array(2) + 4}
"""A scale of ``[1, 2]`` and a shift of ``[-1, -4]``."""
BATCH_NORM = """
    norm = R.nn.batch_norm(y, G, B, M, V, axis=1, epsilon=0.0, training=False)
    out = norm[0]
"""


@pytest.mark.parametrize(
    ("shape", "layer", "after"),
    [
        ("(1, 3, 4, 4)", "y = R.nn.conv2d(x, W)", "lv = R.nn.conv2d(x, const(2, 3, 1, 1))"),
        ("(1, 2, 4, 4)", "y = R.nn.conv2d(x, D, groups=2)", "lv = R.nn.conv2d(x, const(2, 1, 1, 1))"),
        ("(1, 3, 4, 4)", "y = R.add(R.nn.conv2d(x, W), S)", "lv = R.nn.conv2d(x, const(2, 3, 1, 1))"),
        ("(1, 3, 4, 4, 4)", "y = R.nn.conv3d(x, V3)", "lv = R.nn.conv3d(x, const(2, 3, 1, 1, 1))"),
        ("(4, 3)", "y = R.matmul(x, L)", "lv = R.matmul(x, const(3, 2))"),
        ("(1, 2, 4, 4)", "y = R.nn.relu(x)", "y = R.nn.relu(x)\nlv = R.multiply(y, const(2, 1, 1))"),
        (
            "(1, 3, 4, 4)",
            "y = R.nn.conv2d(x, W)\nz = R.nn.relu(y)",
            "y = R.nn.conv2d(x, const(2, 3, 1, 1))\nz = R.nn.relu(y)\nlv = R.multiply(y, const(2, 1, 1))",
        ),
    ],
    ids=["convolution", "depthwise", "bias", "volume", "linear", "alone", "shared"],
)
def test_a_batch_norm_goes_into_the_weights_of_the_layer_before(shape: str, layer: str, after: str) -> None:
    shared = "\nboth = (out, z)" if "z = " in layer else ""
    weights = {
        "W": array(2, 3, 1, 1),
        "D": array(2, 1, 1, 1),
        "S": array(2, 1, 1),
        "V3": array(2, 3, 1, 1, 1),
    }
    shift = (
        "const(2)" if "matmul" in layer else "const(2, 1, 1, 1)" if "conv3d" in layer else "const(2, 1, 1)"
    )
    check(
        fold_batch_norm,
        f"x: {shape}",
        before=layer + BATCH_NORM.replace("\n    ", "\n").rstrip() + shared,
        after=f"{after}\nout = R.add(lv, {shift})" + ("\nboth = out, z" if shared else ""),
        L=array(3, 2),
        **weights,
        **STATISTICS,
    )


@pytest.mark.parametrize(
    ("shape", "layer"),
    [("(3, 2, 2)", "y = R.matmul(x, T)"), ("(2, 2)", "p = R.matmul(x, L)\ny = R.add(p, A)")],
    ids=["matrices", "another axis"],
)
def test_a_batch_norm_whose_channels_are_no_columns_of_a_matrix_stays(shape: str, layer: str) -> None:
    body = layer + BATCH_NORM.replace("\n    ", "\n")
    given = {"T": array(3, 2, 2), "L": array(2, 2), "A": array(1, 2, 1), **STATISTICS}

    module = fold_batch_norm(program(f"x: {shape}", body, **given))

    assert body_of(module).splitlines()[-2].endswith("= R.multiply(y, const(2, 1))")


def test_a_folded_batch_norm_scales_weights_and_bias() -> None:
    module = check(
        fold_batch_norm,
        "x: (4, 3)",
        before="y = R.add(R.matmul(x, L), S)" + BATCH_NORM.replace("\n    ", "\n"),
        after="""
            lv = R.matmul(x, const(3, 2))
            out = R.add(lv, const(2))
        """,
        L=array(3, 2),
        S=array(2),
        **STATISTICS,
    )

    weights, bias = (one.value.numpy() for one in constants_of(module))
    np.testing.assert_allclose(weights, array(3, 2) * [1, 2])
    np.testing.assert_allclose(bias, array(2) * [1, 2] - [1, 4])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("layer", "after"),
    [
        (
            'c = R.nn.conv2d(x, W, out_dtype="float32")\ny = R.astype(c, "{0}")',
            'c = R.nn.conv2d(x, const(2, 2, 1, 1), out_dtype="float32")\nlv = R.multiply(c, const(2, 1, 1))\n'
            'lv1 = R.add(lv, const(2, 1, 1))\nout = R.astype(lv1, dtype="{0}")',
        ),
        (
            "y = R.nn.relu(x)",
            'y = R.nn.relu(x)\nlv = R.astype(y, dtype="float32")\nlv1 = R.multiply(lv, const(2, 1, 1))\n'
            'lv2 = R.add(lv1, const(2, 1, 1))\nout = R.astype(lv2, dtype="{0}")',
        ),
    ],
    ids=["convolution", "other"],
)
def test_a_batch_norm_of_half_precision_is_computed_in_float32(dtype: str, layer: str, after: str) -> None:
    narrow = np.dtype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
    check(
        fold_batch_norm,
        f"x: (1, 2, 4, 4) {dtype}",
        before=layer.format(dtype) + BATCH_NORM.replace("\n    ", "\n"),
        after=after.format(dtype),
        W=array(2, 2, 1, 1).astype(narrow),
        **{name: values.astype(narrow) for name, values in STATISTICS.items()},
    )


def constants_of(module: tvm.IRModule) -> list[relax.Expr]:
    found: list[relax.Expr] = []
    relax.analysis.post_order_visit(
        module["main"],
        lambda one: found.append(one) if isinstance(one, tvm.ir.GenericConst) and one.value.shape else None,
    )
    return found


def test_a_batch_norm_of_separate_parameters_is_folded_by_operators_on_them() -> None:
    check(
        fold_parameter_batch_norm,
        "x: (1, 3, 4, 4), W: (2, 3, 1, 1), G: (2,), B: (2,), M: (2,), V: (2,)",
        before="y = R.nn.conv2d(x, W)" + BATCH_NORM.replace("\n    ", "\n"),
        after="""
            lv = R.add(V, R.const(0.0, "float32"))
            lv1 = R.sqrt(lv)
            lv2 = R.divide(G, lv1)
            lv3 = R.multiply(M, lv2)
            lv4 = R.subtract(B, lv3)
            lv5 = R.reshape(lv2, R.shape([2, 1, 1, 1]))
            lv6 = R.multiply(W, lv5)
            lv7 = R.nn.conv2d(x, lv6)
            lv8 = R.reshape(lv4, R.shape([1, 2, 1, 1]))
            out = R.add(lv7, lv8)
        """,
        inputs=1,
    )


def test_a_new_rewrite_replaces_its_pattern_and_reports_the_place() -> None:
    x, two = wildcard(), is_const()

    def doubled(match: Match) -> relax.Expr | None:
        return relax.op.add(match[x], match[x]) if match.is_close(two, 2) else None

    application = Application(
        Rewrite("doubled", "adds where it multiplied", is_op("relax.multiply")(x, two), doubled)
    )
    check(
        application.as_pass(),
        "x: (4,)",
        before="""
            first = R.multiply(x, R.const(2.0, "float32"))
            out = R.multiply(first, R.const(3.0, "float32"))
        """,
        after="""
            first = R.add(x, x)
            out = R.multiply(first, R.const(3.0, "float32"))
        """,
    )

    assert [str(variable.name) for variable in application.fired] == ["first"]


def test_a_group_holds_the_parts_of_a_tuple() -> None:
    pattern = is_op("relax.concat")(is_tuple([is_op("relax.exp")(wildcard()), wildcard()]))
    grouped = Rewrite("joined", "", pattern, lambda match: match.group("fused_exp_concat"))

    check(
        Application(grouped).as_pass(),
        "x: (4,)",
        before="out = R.concat((R.exp(x), x), axis=0)",
        after="out = fused_exp_concat(x)",
    )
