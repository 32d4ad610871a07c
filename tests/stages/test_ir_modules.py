"""IRModules: TVMScript and TVM's JSON, compiled and compared with their references."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import tvm
from module_samples import (
    OLD_NETWORK,
    OLD_PRODUCT,
    OLDEST_NETWORK,
    REFERENCE,
    SHAPES,
    archive,
    captured,
    script,
    specs,
    upload,
    verified,
    weights,
)

from bessemer.contract.model import ModelFormat
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import ReferenceSource
from bessemer.contract.stage import Stage
from worker.compiler.frontend.ir_modules.script import run_script
from worker.compiler.frontend.load import inspect_model
from worker.compiler.pipeline.pipeline import run_pipeline
from worker.compiler.values import Captured, RelaxProgram, StageContext, Verified, made_from
from worker.errors import JobError
from worker.report.preflight import make_preflight

ROW = specs(x=(4, 8))


def source_of(found: Verified) -> ReferenceSource:
    assert isinstance(found.captured.program, RelaxProgram)
    return found.captured.program.source


def test_a_function_that_an_old_course_prints_is_compiled(context: StageContext) -> None:
    found = verified(context, OLD_PRODUCT)

    assert [spec.name for spec in found.captured.input_specs] == ["A", "B"]
    assert [str(spec) for spec in found.captured.output_specs] == ["C=32x16:float32"]
    a, b = found.captured.inputs
    np.testing.assert_allclose(found.captured.references[0], np.maximum(a @ b, 0), rtol=1e-4, atol=1e-4)
    assert source_of(found) is ReferenceSource.LOWERING


def test_a_form_feed_ends_no_line(context: StageContext) -> None:
    found = captured(context, f'"""First.\f\u2028"""\n{OLD_PRODUCT}')

    assert [spec.name for spec in found.input_specs] == ["A", "B"]


@pytest.mark.parametrize("text", [OLD_NETWORK, OLDEST_NETWORK], ids=["out_sinfo", "shape and dtype"])
def test_a_network_that_an_old_course_prints_is_compared_with_its_torch_function(
    context: StageContext, text: str
) -> None:
    found = verified(context, f"{text}\nimport torch\n{REFERENCE}", inputs=specs(**SHAPES))

    assert source_of(found) is ReferenceSource.FUNCTION
    assert str(found.captured.output_specs[0]) == "output=1x10:float32"


def test_symbolic_sizes_stay_dynamic_in_the_range_that_a_request_gives(context: StageContext) -> None:
    shapes = {**SHAPES, "w1": ("k", 16), "b1": ("k",)}
    found = verified(
        context, OLD_NETWORK, inputs=specs(**shapes), dimensions={"k": {"minimum": 2, "maximum": 32}}
    )

    dynamic = found.captured.dynamic
    assert [str(dimension) for dimension in dynamic.dimensions] == ["k from 2 to 32"]
    assert [(axis.tensor, axis.axis, str(axis)) for axis in dynamic.outputs] == [("output", 1, "k")]
    assert {comparison.shape for comparison in found.comparisons} == {(1, 4), (1, 2), (1, 3), (1, 11)}


def test_symbolic_sizes_keep_the_authors_names_if_a_request_names_no_inputs(context: StageContext) -> None:
    found = captured(context, OLD_NETWORK)

    assert [dimension.name for dimension in found.dynamic.dimensions] == ["m", "n", "k"]


def test_weights_are_bound_by_name_and_fix_the_sizes_that_their_shapes_decide(context: StageContext) -> None:
    found = verified(context, archive(f"import torch\n{OLD_NETWORK}{REFERENCE}", weights=weights()))

    assert [str(spec) for spec in found.captured.input_specs] == ["x=1x24:float32"]
    assert found.captured.parameters == sum(array.size for array in weights().values())
    assert found.captured.dynamic.dimensions == ()


def test_weights_can_stay_outside_the_library(context: StageContext) -> None:
    found = verified(context, archive(OLD_NETWORK, weights=weights()), parameters="separate")

    assert found.built.parameters is not None
    assert [spec.name for spec in found.built.parameters.tensors] == list(weights())


def test_uploaded_arrays_are_the_reference_and_fix_the_symbolic_sizes(context: StageContext) -> None:
    values = weights()
    x = np.random.default_rng(1).standard_normal((1, 24), np.float32)
    hidden = np.maximum(x @ values["w0"].T + values["b0"], 0)
    arrays = {"x": x, "output": hidden @ values["w1"].T + values["b1"]}

    found = verified(context, archive(OLD_NETWORK, weights=values, reference=arrays))

    assert source_of(found) is ReferenceSource.ARRAYS
    np.testing.assert_array_equal(found.captured.inputs[0], x)


@pytest.mark.parametrize(
    "function",
    [
        "def reference(a, b):\n    return np.maximum(a @ b, 0)",
        "def reference(a, b):\n    return torch.relu(torch.mm(a, b))",
        "def reference(a, b, c):\n    c[:] = np.maximum(a @ b, 0)",
    ],
    ids=["NumPy", "torch", "fills its output"],
)
def test_a_reference_is_a_function_of_numpy_or_torch(context: StageContext, function: str) -> None:
    found = verified(context, f"{OLD_PRODUCT}\nimport torch\n{function}\n")

    assert source_of(found) is ReferenceSource.FUNCTION


def test_a_request_names_the_reference_function(context: StageContext) -> None:
    wrong = "def reference(a, b):\n    return a @ b\n\ndef right(a, b):\n    return np.maximum(a @ b, 0)\n"

    verified(context, OLD_PRODUCT + wrong, verify={"reference": "right"})
    with pytest.raises(JobError, match="output 'C'"):
        verified(context, OLD_PRODUCT + wrong)


def test_the_references_are_known_in_float64(context: StageContext) -> None:
    found = captured(context, OLD_NETWORK, inputs=specs(**SHAPES))

    assert found.exact is not None
    (exact,) = found.exact
    assert exact.dtype == np.float64
    np.testing.assert_allclose(found.references[0], exact, rtol=1e-4, atol=1e-4)
    assert np.abs(found.references[0] - exact).max() > 0


def test_effects_between_dataflow_blocks_happen_in_their_order(context: StageContext) -> None:
    text = script(
        """
        @I.ir_module
        class Module:
            @R.function(pure=False)
            def main(x: R.Tensor((4, 8), "float32")):
                with R.dataflow():
                    lv = R.add(x, x)
                    gv = R.exp(lv)
                    R.output(gv)
                _ = R.assert_op(R.const(True), format="first")
                with R.dataflow():
                    lv1 = R.multiply(gv, gv)
                    gv1 = R.negative(lv1)
                    R.output(gv1)
                _1 = R.assert_op(R.const(True), format="second")
                return gv1
        """
    )
    found = verified(context, text)

    printed = found.built.tuned.module["main"].script()
    assert printed.index('"first"') < printed.index('"second"')
    assert "relax.run.assert_op" in found.built.imports


def test_arguments_and_results_may_be_tuples(context: StageContext) -> None:
    text = script(
        """
        @I.ir_module
        class Module:
            @R.function
            def main(pair: R.Tuple(R.Tensor((4, 8), "float32"), R.Tensor((4, 8), "float32"))):
                a = R.add(pair[0], pair[1])
                b = R.subtract(pair[0], pair[1])
                return (a, (b,))
        """
    )
    found = verified(context, text).captured

    assert [spec.name for spec in found.input_specs] == ["pair.0", "pair.1"]
    assert str(found.call) == "(pair: (pair.0, pair.1)) -> (output_0, (output_1,))"


def test_private_functions_join_the_function_that_calls_them(context: StageContext) -> None:
    text = script(
        """
        @I.ir_module
        class Module:
            @R.function(private=True)
            def twice(x: R.Tensor((4, 8), "float32")):
                return R.add(x, x)
            @R.function
            def main(x: R.Tensor((4, 8), "float32")):
                cls = Module
                y = cls.twice(x)
                z = cls.twice(y)
                return R.nn.relu(z)
        """
    )
    found = verified(context, text)

    x = found.captured.inputs[0]
    np.testing.assert_allclose(found.captured.references[0], np.maximum(4 * x, 0))


def test_public_functions_are_entry_points(context: StageContext) -> None:
    text = script(
        """
        @I.ir_module
        class Module:
            @R.function
            def double(x: R.Tensor((4, 8), "float32")):
                return R.add(x, x)
            @R.function
            def square(x: R.Tensor((4, 8), "float32")):
                return R.multiply(x, x)
        """
    )
    found = verified(context, text, entries={"double": {}, "square": {}})

    assert len(found.all_comparisons) == 2
    with pytest.raises(JobError, match="no 'main'"):
        captured(context, text)


SCHEDULED = script(
    """
    @I.ir_module
    class Module:
        @T.prim_func(s_tir=True)
        def scale(A: T.Buffer((64, 32), "float32"), B: T.Buffer((64, 32), "float32")):
            for i in T.parallel(64):
                for j0 in range(4):
                    for j1 in T.vectorized(8):
                        with T.sblock("B"):
                            vi = T.axis.spatial(64, i)
                            vj = T.axis.spatial(32, j0 * 8 + j1)
                            B[vi, vj] = T.exp(A[vi, vj]) * T.float32(2)
        @R.function
        def main(x: R.Tensor((64, 32), "float32")):
            cls = Module
            with R.dataflow():
                lv = R.call_tir(cls.scale, (x,), out_ty=R.Tensor((64, 32), "float32"))
                gv = R.nn.relu(lv)
                R.output(gv)
            return gv
    """
)


def test_a_function_that_its_author_scheduled_stays_as_it_is(context: StageContext) -> None:
    found = verified(context, SCHEDULED)

    written = run_script(SCHEDULED).module["scale"]
    tvm.ir.assert_structural_equal(found.built.tuned.module["scale"].body, written.body)


def test_a_plain_function_is_fused_and_scheduled(context: StageContext) -> None:
    found = verified(context, OLD_NETWORK, inputs=specs(**SHAPES))

    names = {str(variable.name_hint) for variable in found.built.tuned.module.get_global_vars()}
    assert "fused_linear0_relu0" in names
    assert found.built.tuned.module["fused_linear0_relu0"].attrs["tirx.is_scheduled"]


def test_a_buffer_that_a_function_updates_is_an_input_and_an_output(context: StageContext) -> None:
    text = script(
        """
        @T.prim_func(s_tir=True)
        def accumulate(C: T.Buffer((4, 8), "float32"), A: T.Buffer((4, 8), "float32")):
            for i, j in T.grid(4, 8):
                with T.sblock("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = C[vi, vj] + A[vi, vj]
        """
    )
    found = verified(context, text).captured

    assert [spec.name for spec in found.input_specs] == ["C", "A"]
    assert [spec.name for spec in found.output_specs] == ["C"]
    np.testing.assert_allclose(found.references[0], sum(found.inputs))


def test_an_output_need_not_be_the_last_buffer(context: StageContext) -> None:
    text = script(
        """
        @T.prim_func
        def add(C: T.Buffer((16,), "float32"), A: T.Buffer((16,), "float32")):
            for i in T.parallel(16):
                C[i] = A[i] + T.float32(1)
        """
    )
    found = verified(context, text).captured

    np.testing.assert_allclose(found.references[0], found.inputs[0] + 1)


CALLING = script(
    """
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 8), "float32")):
            with R.dataflow():
                y = R.add(x, x)
                z = R.call_dps_packed("bessemer_relu", (y,), out_ty=R.Tensor((4, 8), "float32"))
                R.output(z)
            return z
    """
)


def test_a_library_function_is_called_in_destination_passing_style(context: StageContext) -> None:
    found = verified(context, CALLING)

    np.testing.assert_allclose(found.captured.references[0], np.maximum(2 * found.captured.inputs[0], 0))
    assert "bessemer_relu" in found.built.imports


def test_a_function_that_nothing_defines_is_refused_by_name(context: StageContext) -> None:
    text = CALLING.replace("bessemer_relu", "env.relu")

    with pytest.raises(JobError, match=r"calls 'env\.relu', which neither .* with --extension") as caught:
        captured(context, text)
    assert caught.value.code is ErrorCode.LIBRARY_FUNCTION_MISSING


BUILT = script(
    """
    from tvm import relax, te, topi

    def build():
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorStructInfo((4, 8), "float32"))
        with builder.function("main", [x]):
            with builder.dataflow():
                y = builder.emit_te(lambda a: te.compute(a.shape, lambda i, j: a[i, j] + 1, "plus"), x)
                z = builder.emit_output(builder.emit_te(topi.nn.relu, y))
            builder.emit_func_output(z)
        return builder.get()

    MyModule = build()
    """
)


def test_a_file_may_build_its_module_with_a_block_builder(context: StageContext) -> None:
    found = verified(context, BUILT).captured

    np.testing.assert_allclose(found.references[0], np.maximum(found.inputs[0] + 1, 0))


def test_json_of_a_module_compiles_as_its_script_does(context: StageContext) -> None:
    module = run_script(SCHEDULED).module
    found = verified(context, tvm.ir.save_json(module))

    assert found.captured.format is ModelFormat.IR_MODULE
    tvm.ir.assert_structural_equal(found.built.tuned.module["scale"].body, module["scale"].body)


def test_an_inspection_shows_the_signature(context: StageContext) -> None:
    found = inspect_model(upload(context.scratch, OLD_NETWORK).path)

    assert (found.format, found.method) == (ModelFormat.IR_MODULE, "main")
    assert found.signature.input_names == tuple(SHAPES)
    assert [str(axis) for axis in found.signature.dynamic.inputs if axis.tensor == "w0"] == ["n", "m"]


BUILT_ODDLY = """
    from tvm import relax, topi

    def f(a):
        return topi.nn.relu(a)

    f.__name__ = {function!r}
    builder = relax.BlockBuilder()
    x = relax.Var({argument!r}, relax.TensorType((4, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(builder.emit_te(f, x))
        builder.emit_func_output(y)
    Module = builder.get()
"""
HEAD = "from tvm.script import ir as I, relax as R, tirx as T\nimport tvm\n"
MAIN_OF_ONE = "@I.ir_module\nclass Module:\n    @R.function\n    def main(x: {type}):\n        {body}\n"


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        (f"{HEAD}def f(:\n", "module.py:3: invalid syntax"),
        (f"{HEAD}x = 1\n", "the file defines no IRModule"),
        (f"{HEAD}\nraise RuntimeError('no weights')\n", "module.py:4: RuntimeError: no weights"),
        (f"{HEAD}import sys\nsys.exit(3)\n", "module.py:4: SystemExit: 3"),
        (f"{HEAD}tvm.nowhere\n", "module.py:3: AttributeError"),
        (f"{HEAD}sch = tvm.tir.Nothing\n", "module.py:3: AttributeError"),
        (
            HEAD + MAIN_OF_ONE.format(type='R.Tensor((4, 8), "float32")', body="return R.matmul(x, x)"),
            "module.py:7: Matmul requires the reduction length",
        ),
        (
            HEAD
            + MAIN_OF_ONE.format(
                type='R.Tensor((4, 8), "float32")', body='_ = R.print(x, format="{}")\n        return x'
            ),
            "annotated as pure but contains an impure call",
        ),
        (
            HEAD + MAIN_OF_ONE.format(type='R.Shape(["n"])', body="return R.zeros(x, 'float32')"),
            "the library takes tensors and tuples of tensors",
        ),
        ('{"root_index":3,"nodes":[]}', "cannot read the JSON"),
        (f"{HEAD}x = 1{' + 1' * 50_000}\n", "RecursionError"),
        (
            script(BUILT_ODDLY.format(argument='x"; int y;', function="f")),
            "the argument 'x\"; int y;' has a name",
        ),
        (
            script(BUILT_ODDLY.format(argument="x", function="f\n#include")),
            "has a name that a library cannot",
        ),
        (b"import tvm\n\xff\n", "the script is not UTF-8"),
        (archive(OLD_NETWORK, weights={"w9": np.zeros(3, np.float32)}), "the weights have 'w9'"),
        (archive(OLD_NETWORK, weights={"b0": np.zeros((3, 3), np.float32)}), r"'b0' is float32\[3, 3\]"),
    ],
)
def test_a_module_that_cannot_be_read_is_refused_with_the_place(
    context: StageContext, content: str | bytes, detail: str
) -> None:
    with pytest.raises(JobError, match=detail):
        captured(context, content)


def test_names_that_tvm_no_longer_has_are_translated_in_errors(context: StageContext) -> None:
    text = OLD_PRODUCT.replace("from tvm.script import tir as T", "from tvm.script import tirx as T").replace(
        "@T.prim_func", "@T.prim_func(s_tir=True)"
    )

    with pytest.raises(JobError, match=r"module\.py:\d+: .*'block'.*T\.sblock"):
        captured(context, text)


NOTEBOOK = script(
    """
    import IPython
    import matplotlib.pyplot as plt
    from torch import fx, nn
    from tvm import meta_schedule as ms, relax, te, topi

    figure, axes = plt.subplots()
    IPython.display.Code("x", language="python")

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(8, 8))

        def forward(self, x):
            return torch.relu(torch.matmul(x, self.weight))

    model = fx.symbolic_trace(Model())
    model.graph.print_tabular()
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((4, 8), "float32"))
    weight = model.weight.detach().numpy()
    with builder.function("main", [x]):
        with builder.dataflow():
            w = relax.const(weight, relax.TensorStructInfo(weight.shape, "float32"))
            y = builder.emit_te(topi.matmul, x, w)
            assert list(y.struct_info.shape) == [4, 8]
            z = builder.emit_output(builder.emit_te(topi.nn.relu, y))
        builder.emit_func_output(z)
    MyModule = builder.get()
    empty = tvm.nd.empty((4, 8), "float32")
    """
)


def test_a_notebook_that_displays_what_it_builds_is_compiled(context: StageContext) -> None:
    found = verified(context, NOTEBOOK).captured

    np.testing.assert_allclose(found.references[0], np.maximum(found.inputs[0] @ np.ones((8, 8)), 0), 1e-4)
    assert not {"IPython", "tabulate"} & sys.modules.keys()
    assert not hasattr(tvm, "nd")
    assert tvm.relax.const.__module__.startswith("tvm.")


@pytest.mark.parametrize(
    ("statement", "detail"),
    [
        ("import no_such_package as p\np.load('x')", "has no package 'no_such_package': leave out what uses"),
        (
            "from tvm import meta_schedule as ms\nms.tune_tir(None, 'llvm')",
            r"ask for a search with `tune\.trials`",
        ),
        ("from tvm.contrib import clang\nclang.create_llvm('')", "a job has no C compiler: .* LLVM IR"),
        ("tvm.relax.DynTensorType(2)", r"TVM .* spells it relax\.TensorType"),
        (
            "sch = tvm.tir.Schedule(MyModule)\nsch.parallel(sch.get_loops(sch.get_block('Y'))[2])",
            r"module\.py:\d+: parallel: ",
        ),
    ],
)
def test_what_a_job_lacks_is_refused_with_the_way_out(
    context: StageContext, statement: str, detail: str
) -> None:
    with pytest.raises(JobError, match=detail) as caught:
        captured(context, f"{OLD_PRODUCT}\n{statement}\n")
    assert caught.value.code is ErrorCode.MODEL_MODULE_INVALID


def test_a_function_that_the_file_itself_registers_must_come_as_an_extension_too(
    context: StageContext,
) -> None:
    registering = "@tvm.register_func('own.relu', override=True)\ndef relu(x, out): ...\n"
    text = f"{CALLING}\n{registering}".replace("bessemer_relu", "own.relu")

    with pytest.raises(JobError, match=r"own file registers 'own\.relu'.* --extension FILE\.py") as caught:
        captured(context, text)
    assert caught.value.code is ErrorCode.LIBRARY_FUNCTION_MISSING


def test_a_reference_that_does_not_exist_is_refused_with_those_that_do(context: StageContext) -> None:
    with pytest.raises(JobError, match="defines no function 'other'; its functions are: reference") as found:
        captured(
            context, f"{OLD_PRODUCT}\ndef reference(a, b):\n    return a\n", verify={"reference": "other"}
        )

    assert found.value.code is ErrorCode.REFERENCE_MISSING


def test_a_python_file_without_tvm_is_no_module(context: StageContext) -> None:
    with pytest.raises(JobError, match=r"bessemer compile net\.py:FUNCTION"):
        captured(context, "import torch\n\ndef export():\n    return torch.nn.ReLU()\n")


@pytest.mark.parametrize("stage", [Stage.CAPTURE, Stage.TRANSLATE])
def test_a_preflight_lists_the_operators_of_a_module(context: StageContext, stage: Stage) -> None:
    reached = run_pipeline(upload(context.scratch, BUILT, stop_after=stage), context)

    assert reached.stage is stage
    found = make_preflight(made_from(reached.value, Captured), None)
    assert found.compiles
    assert [(use.name, use.calls) for use in found.operators] == [("relax.call_tir", 2)]
    assert (found.flops, found.peak_activation_bytes) == (None, None)
