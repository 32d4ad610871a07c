"""Bundles run by their own program, without Python and TVM, and called from C."""

import json
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from bundle_samples import NEEDS_COMPILER, execute, unpacked
from capture_samples import capture_file, exported, scripted
from package_samples import benchmark_result
from stage_samples import Function, Perceptron, capture_module, make_context, untuned
from torch import nn

from bessemer.bundle.manifest import ARCHIVE, PROGRAM, Manifest
from worker.candidates.client import CandidateClient
from worker.compiler.codegen.link import run_zig
from worker.compiler.codegen.standalone.plan import Block, place_blocks
from worker.compiler.codegen.standalone.sources import SOURCES
from worker.compiler.pipeline.build import build
from worker.compiler.pipeline.package import package
from worker.compiler.pipeline.verify import verify
from worker.compiler.values import Benchmarked, Captured, StageContext
from worker.package.readme import readme


def bundle(captured: Captured, context: StageContext, folder: Path) -> Path:
    verified = verify(build(untuned(captured, context), context), context)
    result = benchmark_result(verified.built.library)
    package(Benchmarked(verified, result, (result,) * len(captured.others)), context)
    unpacked(context.output / ARCHIVE, folder)
    context.output.rename(context.output.with_name("gone"))
    return folder


def convolution() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5)
    )


MODELS: dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]] = {
    "perceptron": (Perceptron(), (torch.randn(1, 16),)),
    "convolution": (convolution(), (torch.randn(2, 3, 16, 16),)),
    "views": (Function(lambda _, x: (x.reshape(6, 4).relu(), x.sum())), (torch.randn(4, 6),)),
    "integers": (Function(lambda _, x: x * 2 + 1), (torch.arange(12).reshape(3, 4),)),
    "booleans": (Function(lambda _, x: x > 0), (torch.randn(3, 5),)),
    "half": (Function(lambda _, x: x * 3), (torch.randn(3, 5, dtype=torch.float16),)),
    "bfloat16": (Function(lambda _, x: x * 3), (torch.randn(3, 5, dtype=torch.bfloat16),)),
    "doubles": (Function(lambda _, x: x.exp()), (torch.randn(7, dtype=torch.float64),)),
    "two inputs": (Function(lambda _, x, y: x @ y), (torch.randn(5, 7), torch.randn(7, 3))),
    "an input that is an output": (Function(lambda _, x: (x, x + 1)), (torch.randn(3),)),
    "scalars": (Function(lambda _, x: x.mean()), (torch.randn(33),)),
    "parallel": (nn.Linear(256, 512), (torch.randn(64, 256),)),
    "barriers": (
        Function(lambda model, x: model.lstm(x)[0], lstm=nn.LSTM(256, 256)),
        (torch.randn(40, 1, 256),),
    ),
}


@pytest.mark.sampled
@pytest.mark.filterwarnings("ignore:.*assigned during export:UserWarning")
@pytest.mark.parametrize("name", MODELS)
def test_the_program_of_a_bundle_computes_what_the_model_does(
    name: str, context: StageContext, tmp_path: Path
) -> None:
    model, inputs = MODELS[name]
    folder = bundle(capture_module(model, *inputs), context, tmp_path / "bundle")

    compared = execute(["./run"], folder)
    written = execute(["./run", "--inputs", "reference/inputs.npz", "--outputs", "outputs.npz"], folder)

    assert (compared.returncode, compared.stderr) == (0, "")
    assert ": matches the reference (" in compared.stdout
    assert written.returncode == 0, written.stderr
    with np.load(folder / "outputs.npz") as found, np.load(folder / "reference/outputs.npz") as expected:
        assert found.files == expected.files
        for output in found.files:
            assert found[output].dtype == expected[output].dtype
            assert found[output].shape == expected[output].shape


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["--help"], 0, "usage: ./run"),
        (["--list"], 0, "input  input_0 float32[1, 16]"),
        (["--repeat", "5"], 0, "latency over 5 runs"),
        (["--threads", "1"], 0, "output_0: matches the reference (largest absolute error "),
        (
            ["--repeat", "many"],
            2,
            "run: --repeat 'many' must be a number from 0 to 1000000000\ntry ./run --help",
        ),
        (["--seconds", "-1"], 2, "run: --seconds '-1' must be 0 or more\ntry ./run --help"),
        (["--threads", ""], 2, "run: --threads '' must be a number from 0 to 1000000000\ntry ./run --help"),
        (["--entry", "other"], 2, "run: unknown entry point 'other': the model has main"),
        (["--call", "other", "in.npz", "out.npz"], 2, "run: unknown entry point 'other': the model has main"),
        (["--call", "main", "in.npz"], 2, "run: '--call' takes an entry point, inputs and outputs"),
        (["--call", "main", "in.npz", "out.npz", "--entry", "main"], 2, "so only --threads goes with it"),
        (["--call", "main", "in.npz", "out.npz", "--repeat", "5"], 2, "so only --threads goes with it"),
        (["--input", "other=short.npy"], 2, "run: unknown input 'other': the model takes input_0"),
        (["--input", "input=short.npy"], 2, "run: unknown input 'input': the model takes input_0"),
        (["--input", "short.npy"], 2, "run: --input takes NAME=FILE.npy or FILE.npz, not 'short.npy'"),
        (["--input", "reference/inputs.npz"], 0, "output_0: "),
        (["--input", "input_0=a", "--input", "input_0=b"], 2, "run: an input is given twice: 'input_0=b'"),
        (["--input", "input_0=missing.npy"], 2, "run: cannot read 'missing.npy': No such file or directory"),
        (["--input", "input_0=README.md"], 2, "run: input 'input_0' (README.md) is not an .npy file"),
        (["--input", "input_0=reference"], 2, "run: cannot read 'reference': Is a directory"),
        (
            ["--inputs", "reference/inputs.npz", "--output", "missing/out.npz"],
            1,
            "run: cannot write 'missing/out.npz': No such file or directory",
        ),
        (
            ["--input", "input_0=short.npy"],
            2,
            "run: input 'input_0' (short.npy) has the shape 1x15, expected 1x16",
        ),
        (
            ["--input", "input_0=square.npy"],
            2,
            "run: input 'input_0' (square.npy) has the shape 4x4, expected 1x16",
        ),
        (
            ["--input", "input_0=scalar.npy"],
            2,
            "run: input 'input_0' (scalar.npy) has the shape (), expected 1x16",
        ),
        (
            ["--input", "input_0=integers.npy"],
            2,
            "run: input 'input_0' (integers.npy) has the dtype int32, expected float32",
        ),
        (
            ["--input", "input_0=codes.npy"],
            2,
            "run: input 'input_0' (codes.npy) has the dtype uint16, expected float32",
        ),
        (
            ["--input", "input_0=big.npy"],
            2,
            "run: input 'input_0' (big.npy) has the dtype >f4, expected float32",
        ),
        (
            ["--input", "input_0=later.npy"],
            2,
            "run: input 'input_0' (later.npy) has version 4 of the .npy format, expected 1, 2 or 3",
        ),
        (["--input", "input_0=cut.npy"], 2, "run: input 'input_0' (cut.npy) is not an .npy file"),
        (["--input", "input_0=headless.npy"], 2, "run: input 'input_0' (headless.npy) is not an .npy file"),
        (["--inputs", "missing.npz"], 2, "run: cannot read 'missing.npz': No such file or directory"),
        (["--inputs", "reference/outputs.npz"], 2, "run: unknown input 'output_0': the model takes input_0"),
        (["--inputs", "extra.npz"], 2, "run: unknown input 'z': the model takes input_0"),
        (["--inputs", "empty.npz"], 2, "run: missing input 'input_0': the .npz file lacks it"),
        (["--call", "main", "extra.npz", "out.npz"], 2, "run: unknown input 'z': the model takes input_0"),
        (["--unknown"], 2, "run: unknown option '--unknown'\ntry ./run --help"),
        (["--output"], 2, "run: '--output' takes a value\ntry ./run --help"),
    ],
)
def test_the_program_says_what_is_wrong_with_its_arguments(
    arguments: list[str], status: int, text: str, perceptron_bundle: Path
) -> None:
    np.save(perceptron_bundle / "short.npy", np.zeros((1, 15), np.float32))
    np.save(perceptron_bundle / "square.npy", np.zeros((4, 4), np.float32))
    np.save(perceptron_bundle / "scalar.npy", np.float32(1))
    np.save(perceptron_bundle / "integers.npy", np.zeros((1, 16), np.int32))
    np.save(perceptron_bundle / "codes.npy", np.zeros((1, 16), np.uint16))
    np.save(perceptron_bundle / "big.npy", np.zeros((1, 16), ">f4"))
    (perceptron_bundle / "later.npy").write_bytes(b"\x93NUMPY\4\0" + b"\0" * 99)
    (perceptron_bundle / "cut.npy").write_bytes(b"\x93NUMPY\1\0\0")
    (perceptron_bundle / "headless.npy").write_bytes(b"\x93NUMPY\3\0" + b"\xff" * 99)
    np.savez(perceptron_bundle / "extra.npz", input_0=np.zeros((1, 16), np.float32), z=np.float32(1))
    np.savez(perceptron_bundle / "empty.npz")

    done = execute(["./run", *arguments], perceptron_bundle)

    assert done.returncode == status
    assert text in done.stdout + done.stderr


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_the_program_reads_every_version_of_numpys_files(
    version: tuple[int, int], perceptron_bundle: Path
) -> None:
    array = np.arange(16, dtype=np.float32).reshape(1, 16)
    np.save(perceptron_bundle / "first.npy", array)
    with (perceptron_bundle / "x.npy").open("wb") as file:
        np.lib.format.write_array(file, array, version)
    outputs = [
        execute(["./run", "--input", f"input_0={name}"], perceptron_bundle).stdout
        for name in ("first.npy", "x.npy")
    ]
    assert outputs[0] == outputs[1] != ""


@pytest.mark.parametrize(
    "arguments",
    [["--list"], ["--inputs", "missing.npz", "--threads", "1"], ["--inputs", "reference/inputs.npz"]],
)
def test_both_programs_of_a_bundle_take_the_same_options(
    arguments: list[str], perceptron_bundle: Path
) -> None:
    by_c = execute(["./run", *arguments], perceptron_bundle)
    by_python = execute([sys.executable, "run.py", *arguments], perceptron_bundle)

    assert by_python.returncode == by_c.returncode
    if "--list" in arguments:
        assert by_python.stdout == by_c.stdout


_TOO_LARGE = """
#include "arrays.h"
#include <errno.h>

int main(void) {
  int64_t shape[] = {(int64_t)1 << 32};
  npz_writer writer;
  if (npz_begin(&writer, "large.npz")) return 1;
  return !npz_add(&writer, "x", "uint8", shape, 1, NULL, (size_t)1 << 32) || errno != EFBIG;
}
"""


@NEEDS_COMPILER
def test_arrays_that_an_archive_cannot_hold_are_refused(tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text(_TOO_LARGE)
    compiled = execute(["gcc", "-I", SOURCES, "main.c", SOURCES / "arrays.c", "-o", "main"], tmp_path)
    assert (compiled.returncode, compiled.stderr) == (0, "")
    assert execute(["./main"], tmp_path).returncode == 0


@pytest.fixture(scope="module")
def product_bundle(tmp_path_factory: pytest.TempPathFactory, server: CandidateClient) -> Path:
    folder = tmp_path_factory.mktemp("product")
    captured = capture_module(Function(lambda _, x, y: x @ y), torch.randn(5, 7), torch.randn(7, 3))
    return bundle(captured, make_context(folder, server), folder / "bundle")


@pytest.mark.parametrize("option", ["--output", "--outputs"])
@pytest.mark.parametrize("from_archive", [True, False])
def test_the_program_runs_the_inputs_that_it_is_given(
    option: str, from_archive: bool, product_bundle: Path, tmp_path: Path
) -> None:
    left, right = np.ones((5, 7), np.float32), np.full((7, 3), 2, np.float32)
    np.save(tmp_path / "x.npy", left)
    np.save(tmp_path / "y.npy", right)
    np.savez(tmp_path / "both.npz", input_0=left * 5, input_1=right)
    others = ["--inputs", tmp_path / "both.npz"] if from_archive else ["--input", f"input_1={tmp_path}/y.npy"]

    done = execute(
        ["./run", "--input", f"input_0={tmp_path}/x.npy", *others, option, tmp_path / "out.npz"],
        product_bundle,
    )

    assert (done.returncode, done.stderr) == (0, "")
    with np.load(tmp_path / "out.npz") as found:
        assert (found["output_0"] == 14).all()


@pytest.mark.parametrize("given", ["input_0", "input_1"])
def test_a_missing_input_is_not_taken_from_the_reference(
    given: str, product_bundle: Path, tmp_path: Path
) -> None:
    with np.load(product_bundle / "reference/inputs.npz") as arrays:
        np.save(tmp_path / "given.npy", arrays[given])
    (missing,) = {"input_0", "input_1"} - {given}

    done = execute(["./run", "--input", f"{given}={tmp_path}/given.npy"], product_bundle)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"run: missing input '{missing}'\n"


def test_the_program_reports_comparisons_and_times_for_programs(perceptron_bundle: Path) -> None:
    done = execute(["./run", "--repeat", "7", "--report", "report.json"], perceptron_bundle)

    report = json.loads((perceptron_bundle / "report.json").read_text())
    assert (done.returncode, done.stderr) == (0, "")
    assert report["peak_memory_bytes"] > 0
    (entry,) = report["entries"]
    (output,) = entry["outputs"]
    assert (entry["name"], output["name"], output["elements"], output["mismatches"]) == (
        *("main", "output_0", 4),
        0,
    )
    assert 0 <= output["max_absolute_error"] < 1e-5
    assert len(entry["times_ms"]) == 7
    assert all(time > 0 for time in (entry["open_ms"], entry["first_ms"], *entry["times_ms"]))


def test_the_program_starts_no_run_after_its_seconds(perceptron_bundle: Path) -> None:
    execute(
        ["./run", "--repeat", "100000000", "--seconds", "0.05", "--report", "report.json"], perceptron_bundle
    )

    (entry,) = json.loads((perceptron_bundle / "report.json").read_text())["entries"]
    assert 50 <= sum(entry["times_ms"]) < 5000 or len(entry["times_ms"]) < 100_000_000


@pytest.fixture(scope="module")
def perceptron_bundle(tmp_path_factory: pytest.TempPathFactory, server: CandidateClient) -> Path:
    folder = tmp_path_factory.mktemp("perceptron")
    context = make_context(folder, server)
    captured = capture_module(Perceptron(), torch.randn(1, 16), static_library=True)
    return bundle(captured, context, folder / "bundle")


class Sums(nn.Module):
    """Adds up what ``add`` gets; ``scale`` multiplies the sum."""

    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    @torch.jit.export
    def add(self, x: torch.Tensor) -> torch.Tensor:
        self.total += x
        return self.total.clone()

    @torch.jit.export
    def scale(self, x: torch.Tensor) -> torch.Tensor:
        return self.total * x


@pytest.fixture(scope="module")
def stateful_bundle(tmp_path_factory: pytest.TempPathFactory, server: CandidateClient) -> Path:
    folder = tmp_path_factory.mktemp("stateful")
    path = scripted(Sums(), folder / "model")
    inputs = [{"name": "x", "shape": [4], "dtype": "float32"}]
    entries = {name: {"inputs": inputs} for name in ("add", "scale")}
    captured = capture_file(path, entries=entries)
    return bundle(captured, make_context(folder, server), folder / "bundle")


def test_a_changed_output_fails_the_comparison(perceptron_bundle: Path, tmp_path: Path) -> None:
    with np.load(perceptron_bundle / "reference/outputs.npz") as arrays:
        changed = {name: array + 1 for name, array in arrays.items()}
    copied = tmp_path / "copied"
    subprocess.run(["cp", "-r", str(perceptron_bundle), str(copied)], check=True)
    np.savez(copied / "reference/outputs.npz", **changed)

    done = execute(["./run"], copied)

    assert done.returncode == 1
    assert "DIFFERS in 4 elements" in done.stdout


def test_large_integers_are_compared_exactly(server: CandidateClient, tmp_path: Path) -> None:
    captured = capture_module(Function(lambda _, x: x + 1), torch.full((3,), 2**53))
    folder = bundle(captured, make_context(tmp_path, server), tmp_path / "bundle")
    np.savez(folder / "reference/outputs.npz", output_0=np.full(3, 2**53, np.int64))

    done = execute(["./run"], folder)

    assert (done.returncode, "DIFFERS in 3 elements (largest absolute error 1)\n" in done.stdout) == (1, True)


def test_each_entry_point_has_its_own_tolerances(stateful_bundle: Path, tmp_path: Path) -> None:
    copied = tmp_path / "copied"
    subprocess.run(["cp", "-r", str(stateful_bundle), str(copied)], check=True)
    manifest = json.loads((copied / "manifest.json").read_text())
    manifest["tolerances"] = [{"name": "output", "relative": 0.0, "absolute": 10.0}]
    manifest["entries"][0]["tolerances"] = [{"name": "output", "relative": 0.0, "absolute": 0.0}]
    (copied / "manifest.json").write_text(json.dumps(manifest, indent=2))
    for path in (copied / "reference").rglob("outputs.npz"):
        with np.load(path) as arrays:
            changed = {name: array + 1 for name, array in arrays.items()}
        np.savez(path, **changed)

    first, second = (execute(["./run", "--entry", name], copied) for name in ("add", "scale"))

    assert (first.returncode, second.returncode) == (0, 1)
    assert "matches the reference" in first.stdout
    assert "DIFFERS in 4 elements" in second.stdout


def test_a_mismatch_is_reported_and_so_are_all_entry_points(
    perceptron_bundle: Path, stateful_bundle: Path, tmp_path: Path
) -> None:
    copied = tmp_path / "copied"
    subprocess.run(["cp", "-r", str(perceptron_bundle), str(copied)], check=True)
    with np.load(copied / "reference/outputs.npz") as arrays:
        changed = {name: np.where(array > 0, np.inf, array) for name, array in arrays.items()}
    np.savez(copied / "reference/outputs.npz", **changed)

    done = execute(["./run", "--report", "report.json"], copied)
    both = execute(["./run", "--report", "report.json"], stateful_bundle)

    (entry,) = json.loads((copied / "report.json").read_text())["entries"]
    assert done.returncode == 1
    assert entry["outputs"][0]["mismatches"] == sum(int((array > 0).sum()) for array in changed.values())
    assert entry["outputs"][0]["max_absolute_error"] is None
    entries = json.loads((stateful_bundle / "report.json").read_text())["entries"]
    assert (both.returncode, [one["name"] for one in entries]) == (0, ["add", "scale"])


def test_one_file_of_outputs_is_one_entry_points(stateful_bundle: Path) -> None:
    every = execute(["./run", "--output", "every.npz"], stateful_bundle)
    one = execute(["./run", "--entry", "scale", "--output", "one.npz"], stateful_bundle)

    assert (every.returncode, one.returncode) == (2, 0)
    assert "'--output' needs --entry: the model has several entry points" in every.stderr
    assert [(stateful_bundle / name).exists() for name in ("every.npz", "one.npz")] == [False, True]


def test_calls_in_a_row_share_the_state_of_all_entry_points(stateful_bundle: Path) -> None:
    calls = [("add", 1.0), ("add", 2.0), ("scale", 3.0), ("add", 4.0)]
    arguments = []
    for number, (entry, value) in enumerate(calls):
        np.savez(stateful_bundle / f"in{number}.npz", x=np.full(4, value, np.float32))
        arguments += ["--call", entry, f"in{number}.npz", f"out{number}.npz"]

    done = execute(["./run", *arguments], stateful_bundle)

    assert done.returncode == 0, done.stderr
    found = [np.load(stateful_bundle / f"out{number}.npz")["output"][0] for number in range(len(calls))]
    assert found == [1.0, 3.0, 9.0, 7.0]


@pytest.mark.parametrize("from_archive", [True, False])
def test_a_run_begins_with_the_state_that_it_is_given(
    from_archive: bool, stateful_bundle: Path, tmp_path: Path
) -> None:
    x, total = np.ones(4, np.float32), np.full(4, 5, np.float32)
    (state,) = (spec["name"] for spec in json.loads((stateful_bundle / "manifest.json").read_text())["state"])
    np.savez(tmp_path / "both.npz", **{"x": x, state: total})
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "total.npy", total)
    files = ("--input", f"x={tmp_path}/x.npy", "--input", f"{state}={tmp_path}/total.npy")
    given = ("--inputs", tmp_path / "both.npz") if from_archive else files

    done = execute(["./run", *given, "--output", tmp_path / "out.npz"], stateful_bundle)

    assert (done.returncode, done.stderr) == (0, "")
    with np.load(tmp_path / "out.npz") as found:
        assert found["output"][0] == found[state][0] == 6


EXAMPLES = {
    "C": ("gcc", "main.c"),
    "C++": ("g++", "main.cc"),
    "Rust": ("rustc", "main.rs"),
    "CMake": ("cmake", "CMakeLists.txt"),
}


def written_command(source: Path, bundle: Path) -> str:
    """The command in the first lines of an example."""
    lines = (line.lstrip("*/# ") for line in source.read_text().splitlines()[:6])
    written = [line for line in lines if line.startswith(("BUNDLE=", "cc ", "c++ ", "rustc ", "cmake "))]
    return "\n".join(written).replace("/path/to/the/bundle", str(bundle))


@pytest.mark.parametrize("language", EXAMPLES)
def test_the_commands_in_the_examples_build_programs_that_run_anywhere(
    language: str, perceptron_bundle: Path, tmp_path: Path
) -> None:
    tool, name = EXAMPLES[language]
    if shutil.which(tool) is None:
        pytest.skip(f"there is no {tool} on this machine")
    bundle, folder = tmp_path / "bundle", tmp_path / "work"
    shutil.copytree(perceptron_bundle, bundle)
    files = sorted(bundle.rglob("*"))
    folder.mkdir()

    built = execute(["sh", "-ec", written_command(bundle / "examples" / name, bundle)], folder)
    program = folder / ("build/main_cc" if language == "CMake" else "main")
    elsewhere = execute([program], Path("/"))

    for done in (built, elsewhere):
        assert done.returncode == 0, done.stderr
        assert "output_0: float32, 16 bytes" in done.stdout
    assert sorted(bundle.rglob("*")) == files


@pytest.mark.parametrize(
    ("tool", "command"),
    [
        ("sh", f"{sys.executable} ../examples/main.py"),
        ("gcc", "gcc ../examples/main.c -I.. ../libmodel.a -lm -lpthread -o main"
         " && rm ../model.so && ./main"),
        ("cmake", "cmake -S ../examples -B . && cmake --build . && rm ../model.so && ./main_static"),
        ("gcc", "gcc -Wall -Wextra -Werror ../examples/main.c -I.. -L.. -l:model.so -o main"
         " && LD_LIBRARY_PATH=.. ./main"),
        ("g++", "g++ -std=c++17 -Wall -Werror ../examples/main.cc -I.. ../model.so -Wl,-rpath,'$ORIGIN/..'"
         " -o main && cd / && $OLDPWD/main"),
    ],
)  # fmt: skip
def test_the_examples_of_a_bundle_build_and_run(
    tool: str, command: str, perceptron_bundle: Path, tmp_path: Path
) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"there is no {tool} on this machine")
    folder = tmp_path / "bundle"
    shutil.copytree(perceptron_bundle, folder)
    (folder / "work").mkdir()

    done = execute(["sh", "-ec", command], folder / "work")

    assert done.returncode == 0, done.stderr
    assert "output_0: float32, 16 bytes" in done.stdout


@NEEDS_COMPILER
def test_the_typed_header_has_c_names_for_all_tensors(context: StageContext, tmp_path: Path) -> None:
    class Awkward(nn.Module):
        def forward(self, x: dict[str, torch.Tensor], int: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"a-b": x["a b"] + int, "a b": x["a b"] > int, "class": x["a-b"] * 2}

    inputs = ({"a b": torch.randn(2), "a-b": torch.randn(2, dtype=torch.float16)}, torch.randn(2))
    path = exported(Awkward(), tmp_path / "model.pt2", *inputs)
    folder = bundle(capture_file(path), context, tmp_path / "bundle")
    (folder / "main.c").write_text(
        '#include "model.h"\nint main(void) {\n'
        "  model_main_inputs inputs = {0};\n  model_main_outputs outputs = {0};\n"
        "  return model_main(0, &inputs, &outputs) != -1;\n}\n"
    )

    for compiler in ("gcc -std=c99 -Wpedantic", "g++ -x c++"):
        done = execute(["sh", "-c", f"{compiler} -Wall -Werror -fsyntax-only main.c"], folder)
        assert done.returncode == 0, done.stderr
    header = (folder / "model.h").read_text()
    assert "const float *x_a_b;" in header and "uint16_t *class_;" in header, header


@pytest.mark.parametrize(
    ("model", "axes", "reason"),
    [
        (Function(lambda _, x: torch.topk(x, 2)[0]), None, "its kernels call tvm.contrib.sort.topk"),
        (
            Function(lambda _, x: x * 2),
            ({0: torch.export.Dim("n", min=1, max=8)},),
            "its sizes depend on its inputs",
        ),
    ],
)
def test_a_bundle_without_a_program_says_why(
    model: nn.Module,
    axes: tuple[dict[int, object]] | None,
    reason: str,
    context: StageContext,
    tmp_path: Path,
) -> None:
    path = exported(model, tmp_path / "model.pt2", torch.randn(3, 5), dynamic_shapes=axes)

    folder = bundle(capture_file(path), context, tmp_path / "bundle")

    text = (folder / "README.md").read_text()
    assert not (folder / PROGRAM).exists()
    assert "Run it without Python" not in text
    assert f"This bundle has neither: {reason}." in " ".join(text.split())


@pytest.mark.parametrize(
    ("program", "libraries", "check"),
    [
        ("run.exe", (), ": `./run.exe` compares"),
        (None, ("lib/libtvm_runtime.so",), ": `run.py` compares"),
        (None, (), " on `reference/inputs.npz` and compare with `reference/outputs.npz`."),
    ],
)
def test_a_library_that_nothing_ran_is_checked_by_what_its_bundle_has(
    program: str | None, libraries: tuple[str, ...], check: str, perceptron_bundle: Path
) -> None:
    manifest = Manifest.model_validate_json((perceptron_bundle / "manifest.json").read_bytes())
    other = {"program": program, "runtime_libraries": libraries, "verified": False}

    text = " ".join(readme(manifest.model_copy(update=other)).split())

    assert f"run it on its own hardware{check}" in text
    assert ("There is no `run.py`" in text) == (not libraries)


def test_the_paragraphs_of_a_readme_are_filled(perceptron_bundle: Path) -> None:
    prose = "".join((perceptron_bundle / "README.md").read_text().split("```")[::2])
    paragraphs = [text.splitlines() for text in prose.split("\n\n") if not text.startswith(("#", "    "))]

    assert max(len(line) for lines in paragraphs for line in lines) <= 110
    for lines in paragraphs:
        for line, following in pairwise(filter(None, lines)):
            assert len(line) + 1 + len(following.split()[0]) > 110, line


@pytest.mark.parametrize(
    ("blocks", "arena"),
    [
        ((), 0),
        ((Block(100, 0, 1),), 128),
        ((Block(64, 0, 0), Block(64, 1, 1)), 64),
        ((Block(64, 0, 1), Block(64, 1, 2)), 128),
        ((Block(64, 0, 1), Block(128, 1, 2), Block(64, 2, 3)), 192),
        ((Block(0, 0, 5), Block(64, 0, 5)), 64),
    ],
)
def test_blocks_share_memory_unless_they_are_in_use_together(blocks: tuple[Block, ...], arena: int) -> None:
    starts, size = place_blocks(blocks)

    assert size == arena
    for one in range(len(blocks)):
        for other in range(one):
            together = blocks[one].first <= blocks[other].last and blocks[other].first <= blocks[one].last
            apart = (
                starts[one] + blocks[one].size <= starts[other]
                or starts[other] + blocks[other].size <= starts[one]
            )
            assert apart or not together


@pytest.mark.parametrize("name", ["parallel_loops.c", "parallel_barriers.c"])
def test_each_task_of_a_parallel_loop_runs_once_and_meets_the_others(tmp_path: Path, name: str) -> None:
    program, source = tmp_path / "loops", Path(__file__).with_name(name)
    run_zig("cc", "-O1", "-I", str(SOURCES), str(source), str(SOURCES / "threads.c"), "-o", str(program))

    subprocess.run([str(program)], check=True)
