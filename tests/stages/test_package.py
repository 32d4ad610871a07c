"""The package stage on small libraries: complete, checkable, reproducible, and runnable without TVM."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from bundle_samples import unpacked
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from package_samples import (
    SHAPE,
    SORT_IMPORT,
    add_module,
    argsort_module,
    benchmarked,
    build_library,
    heavy_module,
)
from stage_samples import make_context

from bessemer.bundle.manifest import LIBRARIES, LIBRARY, Manifest
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import Report
from bessemer.contract.tensor import DType, TensorSpec
from worker.compiler.pipeline.package import ARTIFACTS, package, write_bundle
from worker.compiler.values import Benchmarked
from worker.errors import JobError

CREATED_AT = datetime(2025, 3, 14, 9, 26, 53, tzinfo=UTC)
X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(SHAPE)

RUN_WITHOUT_TVM = """
import runpy, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tvm", "torch", "bessemer", "worker"):
            raise ImportError(f"{name} is not part of a bundle's environment")

sys.meta_path.insert(0, Refuse())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


RESIDENT_BYTES = """
import os
import run

def resident_bytes():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

before = resident_bytes()
model = run.load(".")
model.run(model.reference_inputs())
print(resident_bytes() - before)
"""


class Packed(NamedTuple):
    """A package and its inputs."""

    source: Benchmarked
    output: Path
    files: tuple[str, ...]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    """The package of ``x + 1``."""
    folder = tmp_path_factory.mktemp("plain")
    source = benchmarked(
        build_library(add_module(), folder / LIBRARY), frozenset(), TensorSpec(name="y", shape=SHAPE), X + 1
    )
    shop = make_context(folder)
    return Packed(source, shop.output, package(source, shop).files)


@pytest.fixture(scope="module")
def sorting(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    """The package of ``argsort``, which needs the extra runtime library."""
    folder = tmp_path_factory.mktemp("sorting")
    source = benchmarked(
        build_library(argsort_module(), folder / LIBRARY),
        frozenset({SORT_IMPORT}),
        TensorSpec(name="order", shape=SHAPE, dtype=DType.INT64),
        np.argsort(X, axis=-1),
    )
    shop = make_context(folder)
    return Packed(source, shop.output, package(source, shop).files)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a bundle's runner where neither TVM nor Bessemer can be imported."""
    return subprocess.run(
        [sys.executable, "-c", RUN_WITHOUT_TVM, "run.py", *arguments],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_artifacts_are_files_with_plain_names(plain: Packed) -> None:
    assert plain.files == tuple(name for name in ARTIFACTS if name not in LIBRARIES[1:])
    assert all((plain.output / name).is_file() and "/" not in name for name in plain.files)


def test_the_bundle_holds_every_part(plain: Packed, tmp_path: Path) -> None:
    folder = unpacked(plain.output / "bundle.tar.zst", tmp_path)
    paths = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {path for path in paths if not path.startswith("LICENSES/")} == {
        "README.md",
        "SHA256SUMS",
        "lib/libtvm_ffi.so",
        "lib/libtvm_runtime.so",
        "manifest.json",
        "model.so",
        "reference/inputs.npz",
        "reference/outputs.npz",
        "report.html",
        "report.json",
        "run.py",
        "sbom.cdx.json",
    }


def test_the_reference_is_one_file_of_inputs_and_outputs(plain: Packed, tmp_path: Path) -> None:
    folder = unpacked(plain.output / "bundle.tar.zst", tmp_path)
    with np.load(plain.output / "reference.npz") as reference:
        for kind in ("inputs", "outputs"):
            with np.load(folder / "reference" / f"{kind}.npz") as parts:
                assert len(parts.files) > 0
                for name in parts.files:
                    np.testing.assert_array_equal(reference[f"{kind}/{name}"], parts[name])


def test_the_checksums_cover_every_file_and_hold(plain: Packed, tmp_path: Path) -> None:
    folder = unpacked(plain.output / "bundle.tar.zst", tmp_path)
    paths = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    assert {line.split("  ", 1)[1] for line in lines} == paths - {"SHA256SUMS"}
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=folder, check=True)


def test_the_documents_are_valid_and_agree_with_the_files(plain: Packed) -> None:
    manifest = Manifest.model_validate_json((plain.output / "manifest.json").read_bytes())
    report = Report.model_validate_json((plain.output / "report.json").read_bytes())
    assert manifest.inputs == report.inputs
    assert manifest.target == report.target
    assert {file.path: file.size_bytes for file in manifest.files}[
        "model.so"
    ] == report.benchmark.library_bytes


def test_packages_of_the_same_input_have_equal_digests(plain: Packed, tmp_path: Path) -> None:
    digests = set()
    for name in ("first", "second"):
        shop = make_context(tmp_path / name)
        write_bundle(plain.source, shop, CREATED_AT)
        digests.add((shop.output / "bundle.tar.zst").read_bytes())
    assert len(digests) == 1


def test_a_bundle_runs_without_tvm_and_matches_its_reference(plain: Packed, tmp_path: Path) -> None:
    folder = unpacked(plain.output / "bundle.tar.zst", tmp_path)
    result = run(folder, "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["matches_reference"] is True


def test_a_loaded_library_holds_its_parameters_once(tmp_path: Path) -> None:
    elements = 8 << 20
    source = benchmarked(
        build_library(heavy_module(elements), tmp_path / LIBRARY),
        frozenset(),
        TensorSpec(name="y", shape=SHAPE),
        X + np.float32(elements),
    )
    shop = make_context(tmp_path / "shop")
    package(source, shop)
    folder = unpacked(shop.output / "bundle.tar.zst", tmp_path / "bundle")
    result = subprocess.run(
        [sys.executable, "-c", RESIDENT_BYTES], cwd=folder, capture_output=True, text=True, check=True
    )
    # Heap and file pages together, beyond what Python and its imports hold.
    assert int(result.stdout) < 1.5 * (folder / "model.so").stat().st_size


def test_a_library_that_sorts_comes_with_the_extra_runtime_and_runs(sorting: Packed, tmp_path: Path) -> None:
    folder = unpacked(sorting.output / "bundle.tar.zst", tmp_path)
    assert (folder / "lib" / "libtvm_runtime_extra.so").is_file()
    result = run(folder, "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["matches_reference"] is True


def test_a_library_that_sorts_does_not_run_without_the_extra_runtime(sorting: Packed, tmp_path: Path) -> None:
    folder = unpacked(sorting.output / "bundle.tar.zst", tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["runtime_libraries"] = ["lib/libtvm_runtime.so"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert run(folder).returncode != 0


def test_tuning_records_travel_in_the_bundle(plain: Packed, tmp_path: Path) -> None:
    records = tmp_path / "records"
    records.mkdir()
    for name in ("database_workload.json", "database_tuning_record.json"):
        (records / name).write_text("[]\n")
    shop = make_context(tmp_path)
    built = plain.source.verified.built
    tuned = replace(built.tuned, records=records)
    source = replace(plain.source, verified=replace(plain.source.verified, built=replace(built, tuned=tuned)))
    package(source, shop)
    folder = unpacked(shop.output / "bundle.tar.zst", tmp_path / "unpacked")
    assert {path.name for path in (folder / "records").iterdir()} == {
        "database_workload.json",
        "database_tuning_record.json",
    }


def test_an_invalid_library_ends_the_job_with_its_own_code(plain: Packed, tmp_path: Path) -> None:
    (tmp_path / "broken.so").write_bytes(b"not a library")
    built = replace(plain.source.verified.built, library=tmp_path / "broken.so")
    source = replace(plain.source, verified=replace(plain.source.verified, built=built))
    with pytest.raises(JobError) as caught:
        package(source, make_context(tmp_path))
    assert caught.value.code is ErrorCode.PACKAGE_FAILED


def test_the_stage_imports_no_torch() -> None:
    command = "import sys; import worker.compiler.pipeline.package; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", command], check=True)


def test_the_bill_of_materials_is_valid_and_names_what_the_bundle_holds(
    plain: Packed, sorting: Packed
) -> None:
    for packed, libraries in ((plain, 2), (sorting, 3)):
        text = (packed.output / "sbom.cdx.json").read_text()
        assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
        sbom, manifest = json.loads(text), json.loads((packed.output / "manifest.json").read_text())
        digests = {file["path"]: file["digest"] for file in manifest["files"]}
        assert digests["sbom.cdx.json"] == hashlib.sha256(text.encode()).hexdigest()
        components = {each["name"]: each for each in (sbom["metadata"]["component"], *sbom["components"])}
        shipped = {name: each for name, each in components.items() if name in digests}
        assert {name: each["hashes"][0]["content"] for name, each in shipped.items()} == {
            name: digests[name] for name in shipped
        }
        assert {"model.so", "run.py"} <= shipped.keys()
        runtime = [each for name, each in shipped.items() if name.startswith("lib/")]
        assert len(runtime) == libraries
        assert all(each["purl"].startswith("pkg:pypi/apache-tvm") for each in runtime)
        (model,) = (each for each in sbom["components"] if each["type"] == "machine-learning-model")
        assert model["hashes"][0]["content"] == manifest["model"]
