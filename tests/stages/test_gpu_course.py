"""The course's programs for GPUs compute what they should, by the reference executor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import s_tir

from examples.course.schedule_for_gpu import STEPS
from examples.extensions import gpu_product_steps as course
from examples.extensions.gpu_tiles import gpu_tiles
from tests.gpu.run import GPU, assert_close, execute_function, random_arrays
from worker.compiler.codegen.cuda.kernels import lower_for_gpu
from worker.compiler.codegen.cuda.machine_code import compile_cuda
from worker.compiler.frontend.ir_modules.module_file import read_module_file

PROGRAMS = Path(course.__file__).parents[1] / "course" / "programs"


@pytest.mark.parametrize("step", STEPS)
def test_each_step_of_the_product_is_right(step: str) -> None:
    dtype = "float16" if step == "tensor_cores" else "float32"
    a, b = random_arrays([(256, 64), (64, 128)], [dtype, dtype])
    found = np.zeros((256, 128), np.float32)
    function = course.scheduled(getattr(course, step), 256, 128, 64)["product"]
    execute_function(function, [a, b, found], 2)
    assert_close(found, course.reference(a, b), 1e-5)


@pytest.mark.sampled
@pytest.mark.parametrize("step", STEPS)
def test_no_step_of_the_product_spills(step: str, tmp_path: Path) -> None:
    function = course.scheduled(getattr(course, step), 1024, 1024, 1024)["product"]
    code = lower_for_gpu({"product": function}, GPU)
    (kernel,) = compile_cuda(code.source, (GPU.arch,), tmp_path).usage
    assert kernel.spilled_bytes == 0


@pytest.mark.parametrize("seed", [1, 2, 3, 5])
def test_points_of_the_space_by_hand_are_right(seed: int) -> None:
    a, b = random_arrays([(256, 64), (64, 128)], ["float32", "float32"])
    module = tvm.IRModule({"main": course.product(256, 128, 64, "float32")})
    schedule = s_tir.Schedule(module, seed=seed)
    gpu_tiles(schedule)
    found = np.zeros((256, 128), np.float32)
    execute_function(schedule.mod["main"], [a, b, found], 2)
    assert_close(found, course.reference(a, b), 1e-5)


@pytest.mark.parametrize("name", ["vector_add", "window_sum"])
def test_each_program_is_right(name: str) -> None:
    file = read_module_file(PROGRAMS / f"gpu_{name}.py")
    function = file.module[name]
    shapes = [tuple(map(int, parameter.shape)) for parameter in function.params]
    inputs, found = (
        random_arrays(shapes[:-1], ["float32"] * (len(shapes) - 1)),
        np.zeros(shapes[-1], np.float32),
    )
    execute_function(function, [*inputs, found], len(inputs))
    assert_close(found, file.functions["reference"](*inputs), 1e-6)
