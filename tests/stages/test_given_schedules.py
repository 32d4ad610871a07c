"""Schedules that a request gives: files of primitives, applied to functions by name and timed."""

from __future__ import annotations

import importlib.util
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from module_samples import script
from test_tune_search import HOST, check_outputs, computing, run_tune, scheduled_functions, two_layers
from tvm import tirx

from bessemer.contract.options import TuneOptions
from bessemer.contract.problem import ErrorCode
from worker.candidates.client import CandidateClient
from worker.compiler.extensions import UploadedModule, use_uploads
from worker.compiler.frontend.ir_modules.buffers import KERNEL_OF_MAIN, with_relax_function
from worker.compiler.frontend.ir_modules.script import run_script
from worker.compiler.schedules.default import follow_plans
from worker.compiler.target import compile_target
from worker.compiler.tuning.given_schedules import check_schedules
from worker.compiler.tuning.session import open_database
from worker.compiler.tuning.trace_scripts import MAX_STEM, file_stem
from worker.errors import JobError

pytestmark = pytest.mark.usefixtures("warm")

DIGEST = "a" * 64

TILES = """
def schedule(sch):
    i, j, k = sch.get_loops(sch.get_sblock("matmul"))
    outer, inner = sch.split(i, sch.sample_perfect_tile(i, n=2, max_innermost_factor=8))
    sch.reorder(outer, j, k, inner)
    sch.parallel(outer)
    sch.decompose_reduction(sch.get_sblock("matmul"), k)
"""

COURSE = """
from tvm import s_tir
from tvm.script import tirx as T
from tvm.s_tir import TensorIntrin


@T.prim_func(s_tir=True)
def description(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, (16, 16), "float32", offset_factor=1)
    B = T.match_buffer(b, (16, 16), "float32", offset_factor=1)
    C = T.match_buffer(c, (16, 16), "float32", offset_factor=1)
    with T.sblock("root"):
        T.reads(C[0:16, 0:16], A[0:16, 0:16], B[0:16, 0:16])
        T.writes(C[0:16, 0:16])
        for i, j, k in T.grid(16, 16, 16):
            with T.sblock("update"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@T.prim_func(s_tir=True)
def implementation(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, (16, 16), "float32", offset_factor=1, strides=[T.int32(), 1])
    B = T.match_buffer(b, (16, 16), "float32", offset_factor=1, strides=[T.int32(), 1])
    C = T.match_buffer(c, (16, 16), "float32", offset_factor=1, strides=[T.int32(), 1])
    with T.sblock("root"):
        T.reads(C[0:16, 0:16], A[0:16, 0:16], B[0:16, 0:16])
        T.writes(C[0:16, 0:16])
        for i, k in T.grid(16, 16):
            for j in T.vectorized(16):
                C[i, j] = C[i, j] + A[i, k] * B[k, j]


TensorIntrin.register("test_update_16x16", description, implementation, override=True)


def fused_matmul1_relu(sch: s_tir.Schedule):
    matmul = sch.get_sblock("matmul")
    i, j, k = sch.get_loops(matmul)
    sch.reverse_compute_at(sch.get_sblock("compute"), i)
    sch.decompose_reduction(matmul, k)


def matmul(sch: s_tir.Schedule):
    block = sch.get_sblock("matmul")
    (i0, i1), (j0, j1), (k0, k1) = (sch.split(loop, [None, 16]) for loop in sch.get_loops(block))
    sch.reorder(i0, j0, k0, i1, j1, k1)
    tile = sch.blockize(i1)
    sch.decompose_reduction(tile, k0)
    sch.tensorize(tile, "test_update_16x16")
    return sch
"""


@pytest.fixture
def upload(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Makes a text the uploaded extension ``my_schedule.py``."""

    def make(text: str) -> Path:
        path = tmp_path / "my_schedule.py"
        path.write_text(text)
        specification = importlib.util.spec_from_file_location("my_schedule", path)
        assert specification is not None and specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        use_uploads([UploadedModule("my_schedule.py", module, DIGEST)])
        return path

    yield make
    use_uploads([])


def giving(*, trials: int = 0, **schedules: str) -> TuneOptions:
    return TuneOptions(trials=trials, seed=3, schedules=schedules)


@pytest.mark.parametrize("source", ["my_schedule.py", DIGEST, f"{DIGEST}:schedule"])
def test_a_schedule_is_applied_timed_recorded_and_replayed_without_a_search(
    source: str, upload: Callable[[str], Path], server: CandidateClient, tmp_path: Path
) -> None:
    upload(TILES)
    tuned, _ = run_tune(server, tmp_path, giving(matmul=source))

    (given,) = tuned.result.schedules
    assert (given.function, given.file, given.skipped) == ("matmul", "my_schedule.py:schedule", None)
    assert given.schedule_ms is not None
    assert given.default_ms is not None
    assert "sch.sample_perfect_tile(loop=" in given.trace
    assert "decision=" in given.trace
    assert "T.parallel(" in given.script
    assert (tuned.result.trials, tuned.result.kept) == (0, None)
    assert scheduled_functions(tuned.module) == [True, True]
    check_outputs(server, tuned.module, tmp_path)

    records = tmp_path / "records"
    assert len(open_database(records).get_all_tuning_records()) == 1
    for file in ("matmul.py", "matmul.tvmscript.py"):
        namespace = runpy.run_path(str(records / file))
        module = namespace["scheduled"]() if "scheduled" in namespace else namespace["Module"]
        body = follow_plans(module, compile_target(HOST).llvm)["main"].body
        assert computing(tuned.module, body) == 1


MAIN_ALONE = """
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        for i, j in T.grid(8, 8):
            with T.sblock("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] + T.float32(1)
"""


def test_a_function_that_its_author_calls_main_is_scheduled_by_this_name(
    upload: Callable[[str], Path], server: CandidateClient, tmp_path: Path
) -> None:
    upload("def main(sch):\n    sch.parallel(sch.get_loops(sch.get_sblock('C'))[0])\n")
    module = with_relax_function(run_script(script(MAIN_ALONE)).module, "main")
    tuned, _ = run_tune(server, tmp_path, giving(main="my_schedule.py"), module)
    (given,) = tuned.result.schedules
    assert (given.function, given.file) == (KERNEL_OF_MAIN, "my_schedule.py:main")


def test_samples_follow_from_the_seed(
    upload: Callable[[str], Path], server: CandidateClient, tmp_path: Path
) -> None:
    upload(TILES)
    traces = [
        run_tune(server, tmp_path, giving(matmul="my_schedule.py"))[0].result.schedules[0].trace
        for _ in range(2)
    ]
    assert traces[0] == traces[1]


def test_functions_of_a_file_schedule_their_namesakes(
    upload: Callable[[str], Path], server: CandidateClient, tmp_path: Path
) -> None:
    upload(COURSE)
    tuned, _ = run_tune(server, tmp_path, TuneOptions(schedules={"*": "my_schedule.py"}))

    given = {each.function: each for each in tuned.result.schedules}
    assert {name: each.file for name, each in given.items()} == {
        "matmul": "my_schedule.py:matmul",
        "fused_matmul1_relu": "my_schedule.py:fused_matmul1_relu",
    }
    assert 'tensor_intrin="test_update_16x16"' in given["matmul"].trace
    assert "sch.reverse_compute_at(" in given["fused_matmul1_relu"].trace
    check_outputs(server, tuned.module, tmp_path)


def test_the_search_covers_the_other_functions(
    upload: Callable[[str], Path], server: CandidateClient, tmp_path: Path
) -> None:
    upload(TILES)
    tuned, _ = run_tune(server, tmp_path, giving(trials=4, matmul="my_schedule.py"))

    assert [task.name for task in tuned.result.tasks] == ["fused_matmul1_relu"]
    assert tuned.result.trials == 4
    assert [given.function for given in tuned.result.schedules] == ["matmul"]
    check_outputs(server, tuned.module, tmp_path)


def test_a_pattern_skips_functions_that_the_file_does_not_fit(
    upload: Callable[[str], Path], server: CandidateClient, tmp_path: Path
) -> None:
    upload("def schedule(sch):\n    sch.parallel(sch.get_loops(sch.get_sblock('compute'))[0])\n")
    tuned, _ = run_tune(server, tmp_path, TuneOptions(schedules={"*": "my_schedule.py"}))

    skipped = {given.function: given.skipped for given in tuned.result.schedules}
    assert skipped["fused_matmul1_relu"] is None
    assert "my_schedule.py, line 2, on function 'matmul'" in str(skipped["matmul"])
    assert scheduled_functions(tuned.module) == [True, True]


def test_a_function_of_dynamic_sizes_is_scheduled_but_not_timed(
    upload: Callable[[str], Path], server: CandidateClient, tmp_path: Path
) -> None:
    upload("def schedule(sch):\n    sch.parallel(sch.get_loops(sch.get_sblock('matmul'))[0])\n")
    module = two_layers(rows=tirx.Var("rows", "int64"))
    tuned, _ = run_tune(server, tmp_path, giving(matmul="my_schedule.py"), module)

    (given,) = tuned.result.schedules
    assert (given.schedule_ms, given.default_ms) == (None, None)
    assert "T.parallel(" in given.script
    check_outputs(server, tuned.module, tmp_path)


@pytest.mark.parametrize(
    ("text", "schedules", "code", "message"),
    [
        (
            "def schedule(sch):\n    block = sch.get_sblock('matmul')\n    raise KeyError('no')\n",
            {"matmul": "my_schedule.py"},
            ErrorCode.SCHEDULE_FAILED,
            "my_schedule.py, line 3, on function 'matmul': KeyError: 'no'; "
            "its blocks and loops: matmul (i0 32, i1 48, k 48)",
        ),
        (
            "def schedule(sch):\n    sch.compute_inline(sch.get_sblock('matmul'))\n",
            {"matmul": "my_schedule.py"},
            ErrorCode.SCHEDULE_FAILED,
            "my_schedule.py, line 2, on function 'matmul': compute-inline: ",
        ),
        (
            "def schedule(sch):\n    return 7\n",
            {"matmul": "my_schedule.py"},
            ErrorCode.SCHEDULE_FAILED,
            "my_schedule.py:schedule on function 'matmul' returned int, not one schedule or None",
        ),
        (
            "from tvm import s_tir, te\n"
            "def schedule(sch):\n"
            "    x = te.placeholder((4, 4), name='x')\n"
            "    y = te.compute((4, 4), lambda i, j: x[i, j] + 1, name='y')\n"
            "    return s_tir.Schedule(te.create_prim_func([x, y]))\n",
            {"matmul": "my_schedule.py"},
            ErrorCode.SCHEDULE_FAILED,
            "my_schedule.py:schedule on function 'matmul' made a function of other parameters",
        ),
        (
            "def schedule(sch):\n"
            "    sch.transform_layout(sch.get_sblock('matmul'), ('read', 0), lambda i, j: (j, i))\n",
            {"matmul": "my_schedule.py"},
            ErrorCode.SCHEDULE_FAILED,
            "my_schedule.py:schedule on function 'matmul' made a function of other parameters",
        ),
        (
            "def tile(sch): pass\n",
            {"matmul": "my_schedule.py"},
            ErrorCode.SCHEDULE_FAILED,
            "my_schedule.py defines neither `schedule` nor a function `matmul`",
        ),
        (
            "def schedule(sch): pass\n",
            {"matmol": "my_schedule.py"},
            ErrorCode.FUNCTION_UNKNOWN,
            "no function matches 'matmol'; did you mean 'matmul'? These can be scheduled: "
            "fused_matmul1_relu, matmul",
        ),
        (
            "def schedule(sch): sch.get_sblock('nope')\n",
            {"*": "my_schedule.py"},
            ErrorCode.SCHEDULE_FAILED,
            "on function 'fused_matmul1_relu'",
        ),
    ],
)
def test_a_file_that_does_not_fit_is_refused_with_its_line_and_the_blocks(
    text: str,
    schedules: dict[str, str],
    code: ErrorCode,
    message: str,
    upload: Callable[[str], Path],
    server: CandidateClient,
    tmp_path: Path,
) -> None:
    upload(text)
    with pytest.raises(JobError) as caught:
        run_tune(server, tmp_path, TuneOptions(schedules=schedules))
    assert caught.value.code is code
    assert message in caught.value.detail


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("my_schedul.py", "no extension is named 'my_schedul.py'; did you mean 'my_schedule.py'?"),
        ("my_schedule.py:tile", "my_schedule.py defines no function 'tile'"),
    ],
)
def test_a_file_or_function_that_does_not_exist_is_refused_before_the_model_is_opened(
    source: str, message: str, upload: Callable[[str], Path]
) -> None:
    upload(TILES)
    with pytest.raises(JobError) as caught:
        check_schedules({"matmul": source})
    assert caught.value.code is ErrorCode.SCHEDULE_FAILED
    assert message in caught.value.detail


@pytest.mark.parametrize(
    ("function", "stem"),
    [("fused_matmul_1", "fused_matmul_1"), ("größe", "gr__e_d353a267"), ("../up", "___up_8c722b8a")],
)
def test_files_are_named_after_functions_in_letters_that_a_bundle_allows(function: str, stem: str) -> None:
    assert file_stem(function) == stem
    assert len(file_stem("f" * 300)) == MAX_STEM + 9
