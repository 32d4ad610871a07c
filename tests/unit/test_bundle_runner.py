"""The runner's pure parts."""

import ast
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bessemer.bundle import run

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "bessemer" / "bundle" / "run.py"
STANDARD = {
    "contextlib",
    "functools",
    "argparse",
    "ctypes",
    "hashlib",
    "mmap",
    "json",
    "math",
    "os",
    "re",
    "runpy",
    "sys",
    "threading",
    "time",
    "traceback",
    "weakref",
    "zipfile",
    "types",
    "collections",
    "concurrent",
    "importlib",
    "dataclasses",
    "pathlib",
}


def test_the_runner_is_one_file_for_python_3_9() -> None:
    tree = ast.parse(SOURCE.read_text(), feature_version=(3, 9))
    nodes = list(ast.walk(tree))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    named = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    roots = {name.partition(".")[0] for name in plain | named}
    assert roots - STANDARD == {"__future__", "typing", "numpy", "tvm_ffi"}


def test_the_runner_names_the_pins_of_the_project() -> None:
    pins = re.findall(r'"(apache-tvm-ffi==[^"]+)"', (ROOT / "pyproject.toml").read_text())
    assert {f"numpy {pin}" for pin in pins} == {run.REQUIREMENTS}


def test_percentiles_agree_with_numpys() -> None:
    times = [float(value) for value in range(1, 101)]
    latency = run.Latency.of(times)
    assert (latency.runs, latency.min_ms, latency.mean_ms) == (100, 1.0, 50.5)
    assert latency.p90_ms == pytest.approx(np.percentile(times, 90))


@pytest.mark.parametrize(
    ("runs", "known"), [(19, (False, False)), (20, (True, False)), (199, (True, False)), (200, (True, True))]
)
def test_percentiles_need_enough_runs(runs: int, known: tuple[bool, bool]) -> None:
    latency = run.Latency.of([1.0] * runs)
    assert (latency.p90_ms is not None, latency.p99_ms is not None) == known


def test_an_unknown_percentile_is_not_printed() -> None:
    few = run.Outcome(specs=(), outputs={}, threads=1, comparisons=None, latency=run.Latency.of([1.0] * 3))
    assert [line.split()[0] for line in few.lines()] == ["runs", "min_ms", "p50_ms", "mean_ms", "stddev_ms"]
    assert few.document()["p99_ms"] is None


@pytest.mark.parametrize(
    ("dtype", "output", "reference", "mismatches"),
    [
        ("float32", [1.0, 2.0], [1.0, 2.00001], 0),
        ("float32", [1.0, 2.0], [1.0, 2.1], 1),
        ("float32", [np.nan, np.inf], [np.nan, np.inf], 0),
        ("float32", [np.nan, 1.0], [1.0, np.nan], 2),
        ("float32", [np.inf, -np.inf], [-np.inf, 1.0], 2),
        ("float32", [1.0, 1.0], [np.inf, -np.inf], 2),
        ("int64", [2**62], [2**62 + 1], 1),
        ("int64", [-(2**63), 2**63 - 1], [0, -1], 2),
        ("bool", [True, False], [True, True], 1),
        ("bfloat16", [0x3F80], [0x3F80], 0),
        ("bfloat16", [0x3F80], [0x4000], 1),
    ],
)
def test_outputs_are_compared_element_by_element(
    dtype: str, output: list[float], reference: list[float], mismatches: int
) -> None:
    spec = run.Spec("y", (len(output),), dtype)
    tolerance = (
        {"relative": 1e-4, "absolute": 0.0} if "float" in dtype else {"relative": 0.0, "absolute": 0.0}
    )
    arrays = (np.array(values, spec.numpy_dtype) for values in (output, reference))
    assert run._compare(spec, *arrays, tolerance).mismatches == mismatches


def columns(scores: list[float], boxes: list[float], labels: list[int]) -> list[run.Column]:
    """Three results beside references with scores 0.9, 0.5, 0.5 and labels 1, 2, 3."""
    return [
        run.Column(np.array(boxes), np.array([1.0, 2.0, 3.0]), 1e-4, 0.0),
        run.Column(np.array(scores), np.array([0.9, 0.5, 0.50001]), 1e-4, 0.0),
        run.Column(np.array(labels), np.array([1, 2, 3]), 0.0, 0.0),
    ]


@pytest.mark.parametrize(
    ("scores", "boxes", "labels", "order"),
    [
        pytest.param([0.9, 0.5, 0.5], [1.0, 2.0, 3.0], [1, 2, 3], [0, 1, 2], id="equal"),
        pytest.param([0.9, 0.5, 0.5], [1.0, 3.0, 2.0], [1, 3, 2], [0, 2, 1], id="a tie"),
        pytest.param([0.5, 0.9, 0.5], [2.0, 1.0, 3.0], [2, 1, 3], [0, 1, 2], id="scores in a wrong order"),
        pytest.param([0.9, 0.5, 0.5], [1.0, 3.0, 2.0], [1, 2, 3], [0, 1, 2], id="labels of other boxes"),
        pytest.param([0.9, 0.5, 0.5], [1.0, 3.0, 4.0], [1, 3, 4], [0, 1, 2], id="a box of its own"),
        pytest.param([0.9, 0.5, 0.5], [1.0, 3.0, 3.0], [1, 3, 3], [0, 1, 2], id="a box twice"),
    ],
)
def test_only_results_that_tie_may_come_in_another_order(
    scores: list[float], boxes: list[float], labels: list[int], order: list[int]
) -> None:
    assert run.order_ties(columns(scores, boxes, labels)).tolist() == order


def test_without_scores_no_result_may_come_in_another_order() -> None:
    boxes = run.Column(np.array([[2.0, 2.0], [1.0, 1.0]]), np.array([[1.0, 1.0], [2.0, 2.0]]), 1e-4, 0.0)
    assert run.order_ties([boxes]).tolist() == [0, 1]


@pytest.mark.parametrize("name", ["file", "args", "a.b", "x"])
def test_arrays_of_any_name_are_kept(tmp_path: Path, name: str) -> None:
    array = np.arange(6, dtype=np.int8).reshape(2, 3)
    run.save_arrays(tmp_path / "arrays.npz", {name: array})
    np.testing.assert_array_equal(run.load_arrays(tmp_path / "arrays.npz")[name], array)


def test_damaged_arrays_are_refused(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "x.npz", x=np.arange(10_000))
    content = (tmp_path / "x.npz").read_bytes()
    middle = len(content) // 2
    (tmp_path / "bits.npz").write_bytes(content[:middle] + bytes(16) + content[middle + 16 :])
    (tmp_path / "end.npy").write_bytes(content[:middle])
    for arguments in ([str(tmp_path / "bits.npz")], [f"x={tmp_path / 'end.npy'}"]):
        with pytest.raises(run.InputError, match="read"):
            run.read_inputs(arguments)


def test_a_difference_that_is_no_number_is_null_in_json() -> None:
    compared = run.Comparison("y", False, 1, float("nan"))
    outcome = run.Outcome((), {}, 1, (compared,), None)
    assert json.loads(json.dumps(outcome.document(), allow_nan=False))["comparisons"][0] == {
        "name": "y",
        "matches": False,
        "mismatches": 1,
        "max_absolute_error": None,
        "shape": None,
        "reference_shape": None,
    }


def test_inputs_are_named_files_or_one_file(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.int8)
    run.save_arrays(tmp_path / "all.npz", {"x": array})
    np.save(tmp_path / "x.npy", array)
    named = ([f"x={tmp_path / name}"] for name in ("x.npy", "all.npz"))
    for arguments in ([str(tmp_path / "all.npz")], *named):
        np.testing.assert_array_equal(run.read_inputs(arguments)["x"], array)
    with pytest.raises(run.InputError, match=r"is not of the form NAME=FILE\.npy"):
        run.read_inputs([str(tmp_path / "x.npy")])


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_pickled_objects_and_junk_are_never_loaded(tmp_path: Path, suffix: str) -> None:
    objects, junk = tmp_path / f"objects{suffix}", tmp_path / f"junk{suffix}"
    (np.savez if suffix == ".npz" else np.save)(objects, np.array([{}]), allow_pickle=True)
    junk.write_text("junk")
    for path in (objects, junk):
        with pytest.raises(run.InputError) as raised:
            run.read_inputs([str(path) if suffix == ".npz" else f"x={path}"])
        assert str(raised.value) == f"{path} is not an {suffix} file of numbers"


def test_an_archive_without_one_array_is_no_input(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    for arrays, says in (({}, "contains no array"), ({"a": np.ones(1), "b": np.ones(1)}, "several arrays")):
        run.save_arrays(path, arrays)
        with pytest.raises(run.InputError, match=says):
            run.read_inputs([f"x={path}"])


def test_inputs_without_names_are_refused(tmp_path: Path) -> None:
    entry = run.Entry(tmp_path, {"inputs": [], "outputs": []}, lambda: ())
    model = run.Model(tmp_path, {}, [entry], 1)
    for call in (model.run, model.bind):
        with pytest.raises(run.InputError, match="the inputs are a list; pass arrays by name"):
            call([np.ones(1)])


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (0.1, "float32", np.float32(0.1)),
        (0.1, "float16", np.float16(0.1)),
        (0.1, "complex64", np.complex64(0.1)),
        (float("inf"), "float32", np.float32("inf")),
        (3, "float32", np.float32(3)),
        (255, "uint8", np.uint8(255)),
        (-7, "int64", np.int64(-7)),
        (True, "bool", np.bool_(True)),
        (True, "int32", np.int32(1)),
    ],
)
def test_a_python_number_becomes_a_scalar_of_the_inputs_dtype(
    value: float, dtype: str, expected: np.generic
) -> None:
    array = run.as_input(run.Spec("scale", (), dtype), value)
    assert (array.dtype, array.shape, array.item()) == (expected.dtype, (), expected.item())


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(1e39, "float32"), (256, "uint8"), (-1, "uint8"), (1 << 63, "int64"), (1e6, "float16")],
)
def test_a_python_number_that_the_dtype_cannot_hold_is_refused(value: float, dtype: str) -> None:
    with pytest.raises(run.InputError, match=f"'scale' is .*, which is out of range for {dtype}"):
        run.as_input(run.Spec("scale", (), dtype), value)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(1.0, "int64"), (1, "bool"), (1j, "float32"), (np.float64(1), "float32"), (1.5, "bfloat16")],
)
def test_a_number_of_another_kind_keeps_its_dtype(value: object, dtype: str) -> None:
    array = run.as_input(run.Spec("scale", (), dtype), value)
    assert array.dtype == np.asarray(value).dtype


def load_on(monkeypatch: pytest.MonkeyPatch, folder: Path, triple: str, system: str, machine: str) -> str:
    """What ``load`` says about a bundle without a library on a machine."""
    manifest = {"schema_version": 1, "target": {"triple": triple, "cores": 1}, "library": "model.so"}
    manifest.update(runtime_libraries=[], files=[])
    (folder / "manifest.json").write_text(json.dumps(manifest))
    names = {"linux": "Linux", "darwin": "Darwin"}
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr("os.uname", lambda: SimpleNamespace(machine=machine, sysname=names[system]))
    with pytest.raises(run.BundleError) as raised:
        run.load(folder)
    return str(raised.value)


@pytest.mark.parametrize(
    ("triple", "system", "machine", "name"),
    [
        ("aarch64-unknown-linux-gnu", "linux", "x86_64", "x86_64"),
        ("x86_64-unknown-linux-gnu", "linux", "aarch64", "aarch64"),
        ("aarch64-apple-macos11.0", "linux", "aarch64", "aarch64 Linux"),
        ("x86_64-pc-windows-gnu", "linux", "x86_64", "x86_64 Linux"),
        ("x86_64-unknown-linux-gnu", "darwin", "x86_64", "x86_64 Darwin"),
        ("x86_64-apple-macos11.0", "darwin", "arm64", "arm64"),
    ],
)
def test_a_bundle_for_another_platform_names_both(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, triple: str, system: str, machine: str, name: str
) -> None:
    says = load_on(monkeypatch, tmp_path, triple, system, machine)
    assert says == f"this bundle is for {triple}; this machine is {name}"


@pytest.mark.parametrize(
    ("triple", "system", "machine"),
    [
        ("x86_64-unknown-linux-musl", "linux", "x86_64"),
        ("aarch64-apple-macos11.0", "darwin", "arm64"),
        ("x86_64-unknown-linux-gnu", "linux", "i686"),
        ("powerpc64le-unknown-linux-gnu", "linux", "x86_64"),
        ("x86_64", "linux", "x86_64"),
    ],
)
def test_a_platform_that_may_fit_is_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, triple: str, system: str, machine: str
) -> None:
    assert "does not list" in load_on(monkeypatch, tmp_path, triple, system, machine)
