"""A real bundle, run in an environment with only NumPy and apache-tvm-ffi."""

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bessemer.bundle.run import Sessions, save_arrays

ROOT = Path(__file__).parents[3]
CALLS = ROOT / "tests" / "call_from_threads.py"
NEEDED = ("numpy", "numpy.libs", "tvm_ffi", "typing_extensions.py")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runnable") / "bundle"
    maker = Path(__file__).with_name("make_runnable_bundle.py")
    subprocess.run(
        [sys.executable, str(maker), str(folder)],
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return folder


@pytest.fixture(scope="module")
def lean_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with only NumPy and apache-tvm-ffi."""
    folder = tmp_path_factory.mktemp("lean")
    venv.create(folder, with_pip=False, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    installed = Path(np.__file__).parents[1]
    for name in NEEDED:
        (site / name).symlink_to(installed / name)
    return folder / "bin" / "python"


def run_alone(python: Path, bundle: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TVM"))
    }
    command = [str(python), "run.py", *map(str, arguments)]
    return subprocess.run(
        command, cwd=bundle, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def save(folder: Path, **arrays: np.ndarray) -> list[str]:
    """Arguments that name the arrays, once saved."""
    arguments = []
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
        arguments += ["--input", f"{name}={folder / name}.npy"]
    return arguments


def references(bundle: Path, which: str) -> dict[str, np.ndarray]:
    with np.load(bundle / "reference" / f"{which}.npz") as archive:
        return {name: archive[name] for name in archive.files}


def test_the_environment_has_only_numpy_and_the_ffi(lean_python: Path) -> None:
    probe = "from importlib.util import find_spec; print([*filter(find_spec, ('torch', 'tvm', 'bessemer'))])"
    ran = subprocess.run([str(lean_python), "-I", "-c", probe], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize("arguments", [(), ("--repeat", "0")])
def test_without_inputs_it_compares_with_the_reference(
    lean_python: Path, bundle: Path, arguments: tuple[str, ...]
) -> None:
    ran = run_alone(lean_python, bundle, *arguments)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("matches the reference") == 5


def test_given_inputs_make_an_npz_of_every_output(lean_python: Path, bundle: Path, tmp_path: Path) -> None:
    inputs = references(bundle, "inputs")
    inputs["x"] = inputs["x"] * 2
    ran = run_alone(lean_python, bundle, *save(tmp_path, **inputs), "--output", tmp_path / "out.npz")
    assert ran.returncode == 0, ran.stderr
    expected = references(bundle, "outputs")
    with np.load(tmp_path / "out.npz") as outputs:
        assert outputs.files == list(expected)
        np.testing.assert_allclose(outputs["file"], expected["file"] * 2, rtol=1e-5)
        np.testing.assert_array_equal(outputs["same"], expected["same"])


def test_repeated_runs_give_a_distribution_on_the_targets_threads(lean_python: Path, bundle: Path) -> None:
    ran = run_alone(lean_python, bundle, "--repeat", "20", "--json")
    document = json.loads(ran.stdout)
    assert document["runs"] == 20
    assert 0 < document["min_ms"] <= document["p50_ms"] <= document["p90_ms"]
    assert document["p99_ms"] is None
    assert document["threads"] == 2
    assert document["matches_reference"] is True


def test_a_wrong_reference_is_found(lean_python: Path, bundle: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in bundle.iterdir():
        (copy / path.name).symlink_to(path)
    (copy / "run.py").unlink()
    (copy / "run.py").write_bytes((bundle / "run.py").read_bytes())
    (copy / "reference").unlink()
    (copy / "reference").mkdir()
    outputs = references(bundle, "outputs")
    outputs["doubled"] = outputs["doubled"] + 1
    save_arrays(copy / "reference" / "inputs.npz", references(bundle, "inputs"))
    save_arrays(copy / "reference" / "outputs.npz", outputs)
    ran = run_alone(lean_python, copy)
    assert ran.returncode == 1
    assert "doubled: DIFFERS in 2 elements" in ran.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--input", "q={x}"], "unknown input 'q': the model takes x=2x4:float32"),
        (["--input", "x={x}"], "missing input i, b"),
        (["--input", "x={i}", "--input", "i={i}", "--input", "b={b}"], "has the shape (2,), expected (2, 4)"),
        (
            ["--input", "x={b}", "--input", "i={i}", "--input", "b={b}"],
            "has the dtype uint16, expected float32",
        ),
        (["--input", "x"], "is not of the form"),
        (["--input", "x={x}", "--input", "x={x}"], "is given twice"),
        (["--input", "x=absent.npy"], "absent.npy"),
        (["--input", "x={npz}"], "several arrays"),
        (["--repeat", "-1"], "'-1' must be a number from 0"),
        (["--threads", "0"], "'0' must be a number from 1"),
    ],
)
def test_wrong_inputs_are_named_and_end_with_2(
    lean_python: Path, bundle: Path, tmp_path: Path, arguments: list[str], says: str
) -> None:
    save(tmp_path, **references(bundle, "inputs"))
    paths = {name: tmp_path / f"{name}.npy" for name in ("x", "i", "b")}
    npz = bundle / "reference" / "inputs.npz"
    ran = run_alone(lean_python, bundle, *(argument.format(**paths, npz=npz) for argument in arguments))
    assert ran.returncode == 2
    assert says in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_bundle_that_lacks_its_library_says_so(lean_python: Path, bundle: Path, tmp_path: Path) -> None:
    for name in ("run.py", "manifest.json"):
        (tmp_path / name).write_bytes((bundle / name).read_bytes())
    (tmp_path / "reference").symlink_to(bundle / "reference")
    ran = run_alone(lean_python, tmp_path)
    assert ran.returncode == 1
    assert "cannot be loaded" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("model.so", lambda whole: whole[: len(whole) // 2], "is damaged: {half} of {size} bytes"),
        ("model.so", lambda whole: whole[:-1] + b"?", "is damaged: its SHA-256 differs from manifest.json"),
        ("model.so", lambda _: b"", "is damaged: 0 of {size} bytes"),
        ("lib/libtvm_runtime.so", lambda whole: whole[: len(whole) // 2], "is damaged: {half} of {size}"),
        ("model.so", None, "cannot be loaded: No such file or directory"),
        ("manifest.json", lambda whole: whole[: len(whole) // 2], "is not a bundle"),
        ("manifest.json", lambda whole: whole.replace(b'"model.so", "dig', b'"m.so", "dig'), "does not list"),
        ("reference/inputs.npz", lambda whole: whole[: len(whole) // 2], "cannot be read as an .npz file"),
    ],
)
def test_a_damaged_file_is_named_before_it_is_used(
    lean_python: Path,
    bundle: Path,
    tmp_path: Path,
    name: str,
    content: Callable[[bytes], bytes] | None,
    says: str,
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(bundle, copy)
    whole = (bundle / name).read_bytes()
    if content is None:
        (copy / name).unlink()
    else:
        (copy / name).write_bytes(content(whole))
    ran = run_alone(lean_python, copy)
    assert ran.returncode in (1, 2), ran.stderr
    assert str(copy) in ran.stderr
    assert says.format(half=len(whole) // 2, size=len(whole)) in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda manifest: [manifest], "manifest.json is damaged"),
        (lambda manifest: {**manifest, "target": 5}, "manifest.json is damaged"),
        (lambda manifest: {**manifest, "inputs": [{"name": "x"}]}, "manifest.json is damaged"),
        (lambda manifest: {**manifest, "reference": {}}, "manifest.json is damaged"),
        (lambda manifest: {**manifest, "tolerances": [5]}, "manifest.json is damaged"),
        (
            lambda manifest: {**manifest, "library": "../model.so"},
            "'../model.so', which is outside the bundle",
        ),
        (lambda manifest: {**manifest, "runtime_libraries": ["/lib/libm.so"]}, "is outside the bundle"),
        (
            lambda manifest: {**manifest, "reference": {"inputs": "/dev/null"}},
            "'/dev/null', which is outside the bundle",
        ),
    ],
)
def test_a_manifest_that_does_not_describe_the_bundle_is_refused(
    lean_python: Path, bundle: Path, tmp_path: Path, change: Callable[[Any], Any], says: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(bundle, copy)
    manifest = json.loads((bundle / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps(change(manifest)))
    ran = run_alone(lean_python, copy)
    assert ran.returncode == 1, ran.stderr
    assert says in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.sampled
@pytest.mark.parametrize("threads", [1, 2])
def test_concurrent_calls_from_eight_threads_keep_their_outputs_apart(
    lean_python: Path, bundle: Path, threads: int
) -> None:
    environment = {**os.environ, "TVM_NUM_THREADS": str(threads)}
    ran = subprocess.run(
        [str(lean_python), str(CALLS), str(bundle), "8", "1000"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {"calls": 8000, "wrong": 0}


def test_a_pool_has_one_session_per_concurrent_call_and_drops_failed_ones() -> None:
    started = []

    def start() -> Callable[[str], str]:
        def session(text: str) -> str:
            if text == "inner":
                return sessions.call("plain")
            if text == "fail":
                raise ValueError(text)
            return text

        started.append(session)
        return session

    sessions = Sessions(start)
    assert [sessions.call("plain"), sessions.call("plain")] == ["plain", "plain"]
    assert len(started) == 1
    assert sessions.call("inner") == "plain"
    assert len(started) == 2
    with pytest.raises(ValueError, match="fail"):
        sessions.call("fail")
    sessions.call("inner")
    assert len(started) == 3


def test_a_process_holds_one_copy_of_each_runtime_library(lean_python: Path, bundle: Path) -> None:
    probe = (
        "import run; run.load('.').run(run.load('.').reference_inputs());"
        "print(*sorted({l.split()[-1] for l in open('/proc/self/maps') if 'libtvm_' in l}))"
    )
    ran = subprocess.run(
        [str(lean_python), "-c", probe], cwd=bundle, capture_output=True, text=True, check=True
    )
    names = [Path(path).name for path in ran.stdout.split()]
    assert names.count("libtvm_ffi.so") == 1
    assert names.count("libtvm_runtime.so") == 1


def test_an_imported_tvm_provides_the_runtime(bundle: Path) -> None:
    probe = (
        "import tvm; from bessemer.bundle import run; print(run.execute(run.load({!r}), {{}}, 0).exit_status)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", probe.format(str(bundle))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == "0"


def test_the_command_line_runs_a_bundle(bundle: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "bessemer.cli", "run", str(bundle), "--repeat", "5", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(ran.stdout)["p50_ms"] > 0


def test_the_command_line_names_a_wrong_input(bundle: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "bessemer.cli", "run", str(bundle), "--input", "q=absent.npy"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert "absent.npy" in ran.stderr
