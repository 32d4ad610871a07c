"""Extensions that a request uploads: what they define, what they replace, and how they fail."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from extension_samples import uploaded
from stage_samples import TARGET, Perceptron, capture_module, make_context, optimized

from bessemer.contract.problem import ErrorCode
from bessemer.contract.request import CompilationRequest
from worker.candidates.server import fork_server
from worker.compiler.extensions import uploaded_modules
from worker.compiler.kernels.functions import function_book
from worker.compiler.kernels.registry import kernel_book
from worker.compiler.legalize.registry import legalization_map
from worker.compiler.pipeline.pipeline import run_pipeline
from worker.compiler.pipeline.translate import translate
from worker.compiler.rewrites.registry import rewrite_book
from worker.compiler.spaces.registry import space_book
from worker.compiler.target import compile_target
from worker.compiler.translation.registry import rule_book
from worker.compiler.tuning.strategies import strategy_book
from worker.compiler.values import Upload
from worker.errors import JobError

REWRITE = """
    from tvm import relax
    from tvm.relax.dpl import is_op, wildcard
    from worker.compiler.rewrites.rewrite import Rewrite

    x = wildcard()
    REWRITES = (
        Rewrite("{name}", "a ReLU becomes a sigmoid", is_op("relax.nn.relu")(x),
                lambda match: relax.op.sigmoid(match[x]), is_default=True),
    )
"""
EVERYTHING = """
    from torch import nn
    from tvm import relax, s_tir, topi
    from tvm.s_tir.meta_schedule.search_strategy import ReplayTrace
    from worker.compiler.kernels.kernel import Kernel
    from worker.compiler.legalize.registry import Legalization
    from worker.compiler.rewrites.rewrite import GraphRewrite
    from worker.compiler.spaces.space import Space
    from worker.compiler.translation.rule import Decomposition, ModuleRule, Rule
    from worker.compiler.tuning.strategies import Strategy
    import tvm_ffi


    @tvm_ffi.register_global_func("mine.registered")
    def registered(x, out):
        pass


    def tanh(builder, call):
        return builder.call_te(topi.tanh, call.args[0], primfunc_name_hint="my_tanh")


    RULES = (
        Rule("mine.op.default", lambda emit, x: x),
        Decomposition("mine.other.default", lambda x: x),
        ModuleRule(nn.Linear, lambda emit, x, *, weight: x),
    )
    REWRITES = (GraphRewrite("mine", "nothing", lambda module: (module, ())),)
    LEGALIZATIONS = (Legalization("relax.tanh", tanh),)
    SPACES = (Space("mine", lambda schedule: None, "any function"),)
    KERNELS = (Kernel("tanh", "mine", ("tanh",), "mine.tanh"),)
    FUNCTIONS = {"mine.tanh": lambda x, out: None}
    STRATEGIES = (Strategy("mine", ReplayTrace, "replays traces"),)
"""


def names_in_force() -> tuple[set[str], ...]:
    """The names of all extensions."""
    return (
        {*rule_book().rules, *rule_book().decompositions, *rule_book().modules},
        set(rewrite_book().rewrites),
        set(legalization_map()),
        set(space_book().spaces),
        set(kernel_book().kernels),
        set(function_book()),
        set(strategy_book()),
    )


def test_a_file_defines_what_a_package_defines_and_nothing_of_it_stays(tmp_path: Path) -> None:
    before = names_in_force()
    with uploaded(tmp_path, my_all=EVERYTHING) as (loaded,):
        assert (loaded.name, loaded.defines) == (
            "my_all.py",
            {
                "RULES": ("mine.op.default", "mine.other.default", "torch.nn.modules.linear.Linear"),
                "REWRITES": ("mine",),
                "LEGALIZATIONS": ("relax.tanh",),
                "SPACES": ("mine",),
                "KERNELS": ("mine.tanh",),
                "FUNCTIONS": ("mine.registered", "mine.tanh"),
                "STRATEGIES": ("mine",),
            },
        )
        added = [after - own for after, own in zip(names_in_force(), before, strict=True)]
        assert [len(names) for names in added] == [3, 1, 1, 1, 1, 2, 1]
    assert names_in_force() == before


def test_an_upload_replaces_a_built_in_extension_and_is_named_as_its_source(tmp_path: Path) -> None:
    with uploaded(tmp_path, mine=REWRITE.format(name="layer_norm")):
        book = rewrite_book()
        assert (next(iter(book.rewrites)), book.sources["layer_norm"]) == ("layer_norm", "mine.py")
        module = optimized(capture_module(Perceptron(), torch.randn(1, 16)), make_context(tmp_path))
        (found,) = (one for one in module.rewrites if one.name == "layer_norm")
        assert (found.count, found.source) == (1, "mine.py")


def test_a_file_imports_another_one_in_any_order(tmp_path: Path) -> None:
    files = {"first": "from second import REWRITES", "second": REWRITE.format(name="shared")}
    with (
        pytest.raises(JobError, match=r"'shared' is in first\.py and in second\.py"),
        uploaded(tmp_path, **files),
    ):
        pass
    aside = tmp_path / "aside"
    aside.mkdir()
    with uploaded(aside, first="import second", second=REWRITE.format(name="shared")) as (first, second):
        assert (first.defines, second.defines) == ({}, {"REWRITES": ("shared",)})


def test_two_files_of_the_same_module_name_are_both_loaded(tmp_path: Path) -> None:
    files = {"my-own": REWRITE.format(name="first"), "my_own": REWRITE.format(name="second")}
    with uploaded(tmp_path, **files) as loaded:
        assert [file.defines for file in loaded] == [{"REWRITES": ("first",)}, {"REWRITES": ("second",)}]


def test_a_file_that_is_named_like_a_module_hides_nothing(tmp_path: Path) -> None:
    with uploaded(tmp_path, torch=REWRITE.format(name="mine"), json="REWRITES = ()") as (loaded, _):
        assert (loaded.name, loaded.defines) == ("torch.py", {"REWRITES": ("mine",)})
        assert torch.relu is not None


@pytest.mark.parametrize(
    ("files", "detail"),
    [
        ({"a": "def f(:\n    pass"}, "a.py, line 1: SyntaxError: invalid syntax"),
        ({"a": "\n\nimport no_such_module"}, "a.py, line 3: ModuleNotFoundError: No module named"),
        ({"a": "import no_such_module"}, "send its file as another extension, or ask the operator"),
        ({"a": "x = 1\n\ndef f():\n    return x / 0\n\nf()"}, "a.py, line 4: ZeroDivisionError"),
        ({"a": "raise SystemExit(3)"}, "a.py, line 1: SystemExit: 3"),
        (
            {"a": "REWRITES = 7"},
            "a.py: REWRITES is not a tuple of worker.compiler.rewrites.rewrite.Rewrite or ",
        ),
        ({"a": "RULES = ('x',)"}, "a.py: RULES is not a tuple of worker.compiler.translation.rule.Rule or "),
        ({"a": "FUNCTIONS = {'x': 3}"}, "a.py: FUNCTIONS is not a dictionary of functions by name"),
        (
            {"a": REWRITE.format(name="same"), "b": REWRITE.format(name="same").replace("sigmoid", "tanh")},
            "bessemer.rewrites: 'same' is in a.py and in b.py",
        ),
        (
            {
                "a": "from worker.compiler.spaces.space import Space\n"
                "SPACES = (Space('plans', lambda schedule: None, ''),)"
            },
            "plans is a reserved name",
        ),
        (
            {
                "a": "from worker.compiler.legalize.registry import Legalization\n"
                "LEGALIZATIONS = (Legalization('relax.no_such', lambda builder, call: None),)"
            },
            "a.py legalizes 'relax.no_such', which Relax does not have",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_line(
    tmp_path: Path, files: dict[str, str], detail: str
) -> None:
    with pytest.raises(JobError) as caught, uploaded(tmp_path, **files):
        pass
    assert caught.value.code is ErrorCode.EXTENSION_INVALID
    assert detail in caught.value.detail
    assert str(tmp_path) not in caught.value.detail


OLD_COURSE = """
    import numpy as np
    import tvm
    from tvm.script import tir as T


    @tvm.register_func("env.relu", override=True)
    def relu(x: tvm.nd.NDArray, out: tvm.nd.NDArray):
        np.maximum(np.from_dlpack(x), 0, out=np.from_dlpack(out))


    @T.prim_func
    def plus(A: T.Buffer[(8, 8), "float32"], B: T.Buffer[(8, 8), "float32"]):
        for i, j in T.grid(8, 8):
            with T.block("plus"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + T.float32(1)


    def schedule(sch):
        row, _ = sch.get_loops(sch.get_block("plus", func_name="plus"))
        sch.parallel(row)
        return sch


    COUNT = len(schedule(tvm.tir.Schedule(tvm.IRModule({"main": plus}))).trace.insts)
"""


IN_COMPILER = """
    from torch import nn
    from tvm.relax.dpl import is_op, wildcard
    from worker.compiler.legalize.registry import Legalization
    from worker.compiler.rewrites.rewrite import GraphRewrite, Rewrite
    from worker.compiler.translation.errors import UntranslatableError
    from worker.compiler.translation.rule import ModuleRule, Rule


    def boom(*arguments):
        return 1 // 0


    {definition}
"""


@pytest.mark.parametrize(
    ("definition", "code", "detail"),
    [
        (
            "RULES = (Rule('aten.relu.default', boom),)",
            ErrorCode.EXTENSION_INVALID,
            "mine.py, line 11: aten.relu.default",
        ),
        (
            "REWRITES = (Rewrite('one', '', is_op('relax.nn.relu')(wildcard()), boom, is_default=True),)",
            ErrorCode.EXTENSION_INVALID,
            "mine.py, line 11: pass one of phase",
        ),
        (
            "LEGALIZATIONS = (Legalization('relax.nn.relu', boom),)",
            ErrorCode.EXTENSION_INVALID,
            "mine.py, line 11: pass LegalizeOps",
        ),
        (
            "REWRITES = (GraphRewrite('one', '', lambda module: module, is_default=True),)",
            ErrorCode.OPTIMIZE_FAILED,
            "it returned IRModule, not the module and the variables",
        ),
        (
            "RULES = (Rule('aten.relu.default', lambda emit, x: 7),)",
            ErrorCode.TRANSLATE_FAILED,
            "aten.relu.default was translated to int, not an expression",
        ),
        (
            "def refuse(emit, x): raise UntranslatableError('not this one')\n"
            "    RULES = (Rule('aten.relu.default', refuse),)",
            ErrorCode.TRANSLATE_FAILED,
            "not this one",
        ),
    ],
)
def test_what_a_file_defines_is_named_with_its_line_if_it_raises(
    tmp_path: Path, definition: str, code: ErrorCode, detail: str
) -> None:
    torch.export.save(torch.export.export(Perceptron().eval(), (torch.randn(2, 16),)), tmp_path / "model.pt2")
    request = CompilationRequest.model_validate(
        {"model": "a" * 64, "target": "host", "stop_after": "optimize"}
    )
    with (
        fork_server(tmp_path) as candidates,
        uploaded(tmp_path, mine=IN_COMPILER.format(definition=definition)),
    ):
        upload = Upload(path=tmp_path / "model.pt2", request=request, target=compile_target(TARGET))
        with pytest.raises(JobError) as caught:
            run_pipeline(upload, make_context(tmp_path, candidates))
    assert (caught.value.code, detail in caught.value.detail) == (code, True), caught.value.detail


def test_a_file_is_spelled_as_in_earlier_versions_of_tvm(tmp_path: Path) -> None:
    with uploaded(tmp_path, course=OLD_COURSE) as (loaded,):
        assert loaded.defines == {"FUNCTIONS": ("env.relu",)}
        assert uploaded_modules()[0].module.COUNT == 3


def test_an_operator_and_its_rule_come_in_one_file(tmp_path: Path) -> None:
    file = """
        import torch
        from tvm import relax
        from worker.compiler.translation.rule import Rule


        @torch.library.custom_op("uploaded::triple", mutates_args=())
        def triple(x: torch.Tensor) -> torch.Tensor:
            return x * 3


        @triple.register_fake
        def _(x):
            return torch.empty_like(x)


        RULES = (
            Rule("uploaded.triple.default",
                 lambda emit, x: relax.op.multiply(x, relax.const(3, emit.dtype))),
        )
    """
    with uploaded(tmp_path, triple=file):

        class Triple(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return torch.ops.uploaded.triple(x)

        captured = capture_module(Triple(), torch.randn(2, 3))
        assert translate(captured, make_context(tmp_path)).operators == {"multiply": 1}
