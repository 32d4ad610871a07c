"""Packed functions in Python that a model calls: verified, packaged, and registered by a library's users."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
import torch
from bundle_samples import NEEDS_COMPILER, execute, paste_program, printed, unpacked
from extension_samples import uploaded
from module_samples import script
from module_samples import verified as verified_module
from stage_samples import Function, capture_module, compile_and_verify, compile_to_library, make_context

from bessemer.bundle.manifest import ARCHIVE
from bessemer.contract.problem import ErrorCode
from worker.candidates.server import fork_server
from worker.compiler.pipeline.benchmark import benchmark
from worker.compiler.pipeline.package import package
from worker.compiler.values import Built, Verified
from worker.errors import JobError

FUNCTIONS = """
    import numpy as np


    def swish(x, out):
        x = np.from_dlpack(x)
        np.from_dlpack(out)[:] = x / (1 + np.exp(-x))


    def tanh(x, out):
        np.tanh(np.from_dlpack(x), out=np.from_dlpack(out))


    FUNCTIONS = {"mine.swish": swish, "mine.tanh": tanh}
"""
RULE = """
    from tvm import relax
    from worker.compiler.translation.rule import Rule


    def silu(emit, x):
        return relax.call_dps_packed("mine.swish", [x], out_ty=x.ty)


    RULES = (Rule("aten.silu.default", silu),)
"""
KERNEL = """
    from worker.compiler.kernels.kernel import Kernel

    KERNELS = (Kernel("tanh", "mine", ("tanh",), "mine.tanh"),)
"""
SWISH = Function(lambda _, x: torch.nn.functional.silu(x * 2) + 1)
TANH = Function(lambda _, x: torch.tanh(x * 2) + 1)


def verified_in(folder: Path, model: Function = SWISH, **request: object) -> Verified:
    with fork_server(folder) as candidates:
        context = make_context(folder, candidates)
        captured = capture_module(model, torch.randn(2, 8), benchmark={"baselines": []}, **request)
        found = compile_and_verify(captured, context)
        package(benchmark(found, context), context)
        return found


def built_in(folder: Path, **request: object) -> Built:
    context = make_context(folder)
    with fork_server(folder) as candidates:
        context = make_context(folder, candidates)
        captured = capture_module(SWISH, torch.randn(2, 8), **request)
        return compile_to_library(captured, context)


def run_bundle(bundle: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(bundle / "run.py"), "--json", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("model", "caller", "kernels", "name"),
    [(SWISH, RULE, {}, "mine.swish"), (TANH, KERNEL, {"tanh": "mine"}, "mine.tanh")],
    ids=["rule", "kernel"],
)
def test_a_library_calls_a_function_that_its_users_register(
    tmp_path: Path, model: Function, caller: str, kernels: dict[str, str], name: str
) -> None:
    with uploaded(tmp_path, functions=FUNCTIONS, caller=caller):
        found = verified_in(tmp_path, model, kernels=kernels)
    assert found.built.functions == (name,)
    assert all(comparison.mismatches == 0 for comparison in found.comparisons)
    bundle = tmp_path / "output"
    for document in ("manifest.json", "report.json"):
        assert json.loads((bundle / document).read_text())["functions"] == [name]
    assert "python run.py --functions FILE.py" in (bundle / "README.md").read_text()

    refused = run_bundle(bundle)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"the library calls '{name}'" in refused.stderr
    assert "--functions FILE.py" in refused.stderr

    (tmp_path / "mine.py").write_text(dedent(FUNCTIONS))
    ran = run_bundle(bundle, "--functions", str(tmp_path / "mine.py"))
    assert json.loads(ran.stdout)["matches_reference"] is True, ran.stderr


REGISTERING = """
import numpy as np
import tvm


@tvm.register_func("mine.swish", override=True)
def swish(x: tvm.nd.NDArray, out: tvm.nd.NDArray):
    x = np.from_dlpack(x)
    np.from_dlpack(out)[:] = x / (1 + np.exp(-x))
"""


@pytest.mark.sampled
@pytest.mark.parametrize("has_tvm", [True, False])
def test_a_file_may_register_functions_as_earlier_versions_of_tvm_spell_it(
    tmp_path: Path, has_tvm: bool
) -> None:
    (tmp_path / "mine.py").write_text(REGISTERING)
    program = f"""
        import sys
        if not {has_tvm}:
            class Without:
                def find_spec(self, name, path=None, target=None):
                    if name.partition(".")[0] == "tvm":
                        raise ModuleNotFoundError("No module named 'tvm'", name="tvm")
            sys.meta_path.insert(0, Without())
        import numpy as np, tvm_ffi
        from bessemer.bundle.run import register_functions
        register_functions({str(tmp_path / "mine.py")!r})
        out = np.zeros(2, "float32")
        tvm_ffi.get_global_func("mine.swish")(np.ones(2, "float32"), out)
        assert abs(out[0] - 0.731) < 1e-3, out
        assert {has_tvm} or "tvm" not in sys.modules
        assert not {has_tvm} or not hasattr(sys.modules["tvm"], "nd")
    """
    ran = subprocess.run(
        [sys.executable, "-c", dedent(program)], capture_output=True, text=True, check=False, cwd=Path.cwd()
    )
    assert ran.returncode == 0, ran.stderr


MODULE = script(
    """
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 8), "float32")):
            with R.dataflow():
                y = R.call_dps_packed("mine.swish", (x,), out_ty=R.Tensor((4, 8), "float32"))
                R.output(y)
            return y
    """
)


def test_a_module_calls_a_function_of_an_extension(tmp_path: Path) -> None:
    with uploaded(tmp_path, functions=FUNCTIONS), fork_server(tmp_path) as candidates:
        found = verified_module(make_context(tmp_path, candidates), MODULE)
    assert found.built.functions == ("mine.swish",)
    x = found.captured.inputs[0]
    np.testing.assert_allclose(found.captured.references[0], x / (1 + np.exp(-x)), rtol=1e-5)


WRITTEN = """
  auto x = static_cast<float*>(in->data), y = static_cast<float*>(out->data);
  for (int i = 0; i < 16; ++i) y[i] = x[i] / (1 + std::exp(-x[i]));
  return 0;
"""


@pytest.mark.slow
@NEEDS_COMPILER
def test_the_program_of_a_bundle_registers_functions_that_its_user_writes(tmp_path: Path) -> None:
    with uploaded(tmp_path, functions=FUNCTIONS, caller=RULE):
        verified_in(tmp_path)
    bundle = unpacked(tmp_path / "output" / ARCHIVE, tmp_path / "bundle")
    commands = ["bash", "-e", "-c", paste_program(bundle)]
    unwritten = execute(commands, bundle)
    assert unwritten.returncode != 0
    assert "mine.swish is not written yet" in unwritten.stderr

    text = (bundle / "main.cc").read_text()
    start = text.index("  (void)in, (void)out;")
    (bundle / "main.cc").write_text(
        f"#include <cmath>\n{text[:start]}{WRITTEN}{text[text.index('}', start) :]}"
    )
    ran = execute(commands, bundle)
    (outputs,) = printed(ran.stdout).values()
    with np.load(bundle / "reference" / "outputs.npz") as references:
        (reference,) = references.values()
    assert np.allclose(outputs, reference.ravel(), atol=1e-4), ran.stderr


def test_a_file_of_functions_may_register_them_itself(tmp_path: Path) -> None:
    registered = dedent(FUNCTIONS).replace(
        'FUNCTIONS = {"mine.swish": swish, "mine.tanh": tanh}',
        'import tvm_ffi\n\ntvm_ffi.register_global_func("mine.swish", swish, override=True)',
    )
    with uploaded(tmp_path, functions=registered, caller=RULE) as (loaded, _):
        assert loaded.defines == {"FUNCTIONS": ("mine.swish",)}
        assert built_in(tmp_path).functions == ("mine.swish",)


def test_a_function_that_no_extension_defines_is_named(tmp_path: Path) -> None:
    with uploaded(tmp_path, caller=RULE), pytest.raises(JobError) as caught:
        built_in(tmp_path)
    assert caught.value.code is ErrorCode.LIBRARY_FUNCTION_MISSING
    assert caught.value.detail == "no extension defines the function 'mine.swish'"


def test_a_function_that_raises_fails_the_verification(tmp_path: Path) -> None:
    raising = dedent(FUNCTIONS).replace("x = np.from_dlpack(x)", "raise ValueError('no swish today')")
    with uploaded(tmp_path, functions=raising, caller=RULE), pytest.raises(JobError) as caught:
        verified_in(tmp_path)
    assert caught.value.code is ErrorCode.VERIFY_CRASHED
    assert "no swish today" in caught.value.detail


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("FUNCTIONS = [1]", "FUNCTIONS is not a dictionary of functions by name"),
        ("import numpy\n\n1 / 0", "line 3: ZeroDivisionError"),
        ("def f(:", "SyntaxError"),
    ],
)
def test_run_py_says_what_is_wrong_with_a_file_of_functions(tmp_path: Path, text: str, problem: str) -> None:
    from bessemer.bundle import run

    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(run.BundleError, match=problem):
        run.register_functions(tmp_path / "mine.py")
