"""The parts of a bundle: its runtime libraries, checksums and archive, and what a library needs."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import zstandard

from bessemer.bundle.manifest import FFI_LIBRARY, RUNTIME_EXTRA_LIBRARY, RUNTIME_LIBRARY
from bessemer.contract.tensor import DType, TensorSpec
from worker.package.archive import (
    FAST_LEVEL,
    LARGE_BYTES,
    LEVEL,
    MTIME_SECONDS,
    checksums,
    describe,
    level_of,
    write_archive,
    write_arrays,
)
from worker.package.dependencies import Dependencies, linkage_refusal, read_dependencies
from worker.package.runtime import license_sources, needs_extra, runtime_libraries, runtime_sources

LIST_FUNCTIONS = """
import ctypes, sys
sys.modules["torch"] = None
import tvm_ffi
for path in sys.argv[1:]:
    ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
print("\\n".join(tvm_ffi.registry.list_global_func_names()))
"""


def registered_functions(*libraries: Path) -> set[str]:
    """The functions of tvm-ffi's registry in a process that loads these libraries and nothing else."""
    command = [sys.executable, "-c", LIST_FUNCTIONS, *map(str, libraries)]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


@pytest.mark.parametrize(
    ("imports", "extra"),
    [
        ((), False),
        (("vm.builtin.alloc_storage", "vm.builtin.shape_of"), False),
        (("vm.builtin.sample_top_p_from_prob",), False),
        (("tvm.contrib.sort.argsort",), True),
        (("tvm.contrib.sort.sort",), True),
        (("tvm.contrib.sort.topk", "vm.builtin.copy"), True),
        (("tvm.contrib.random.uniform",), True),
        (("runtime.disco.allreduce",), True),
        (("my.tvm.contrib.sort.argsort",), False),
    ],
)
def test_the_extra_runtime_is_included_exactly_when_a_function_needs_it(
    imports: tuple[str, ...], extra: bool
) -> None:
    expected = (RUNTIME_LIBRARY, RUNTIME_EXTRA_LIBRARY) if extra else (RUNTIME_LIBRARY,)
    assert runtime_libraries(imports) == expected


def test_the_rule_for_the_extra_runtime_matches_the_installed_libraries() -> None:
    sources = runtime_sources({"tvm.contrib.sort.sort"})
    plain = registered_functions(sources[RUNTIME_LIBRARY])
    full = registered_functions(sources[RUNTIME_LIBRARY], sources[RUNTIME_EXTRA_LIBRARY])
    assert {name for name in full - plain if not needs_extra([name])} == set()
    assert {name for name in plain if needs_extra([name])} == set()


def test_a_runtime_without_extra_is_two_libraries() -> None:
    assert set(runtime_sources(())) == {FFI_LIBRARY, RUNTIME_LIBRARY}


def test_every_license_text_is_installed_and_not_empty() -> None:
    sizes = {path: source.stat().st_size for path, source in license_sources().items()}
    assert {path.split("/")[1] for path in sizes} == {"bessemer", "tvm", "tvm-ffi"}
    assert min(sizes.values()) > 100


def test_the_dependencies_of_a_library_are_read_from_its_dynamic_section() -> None:
    dependencies = read_dependencies(runtime_sources(())[RUNTIME_LIBRARY])
    assert {"libtvm_ffi.so", "libc.so.6"} <= set(dependencies.needed)
    assert dependencies.search_path == "$ORIGIN"


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + bytes(58), b"MZ" + bytes(500)])
def test_a_file_that_is_not_a_library_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.so").write_bytes(content)
    with pytest.raises(ValueError, match="ELF file"):
        read_dependencies(tmp_path / "model.so")


@pytest.mark.parametrize(
    ("needed", "search_path", "refusal"),
    [
        ((), None, None),
        (("libm.so.6", "libc.so.6"), None, None),
        (("libtvm_runtime.so", "libtvm_ffi.so"), "$ORIGIN/lib", None),
        (("libtvm_runtime.so",), None, "it looks for the runtime in None, not in '$ORIGIN/lib'"),
        (("libtvm_runtime.so",), "/opt/tvm", "it looks for the runtime in '/opt/tvm', not in '$ORIGIN/lib'"),
        (("libtvm_compiler.so",), "$ORIGIN/lib", "it needs libtvm_compiler.so"),
        (("libstdc++.so.6", "libgomp.so.1"), None, "it needs libgomp.so.1, libstdc++.so.6"),
    ],
)
def test_a_library_may_depend_only_on_the_bundle_and_libc(
    needed: tuple[str, ...], search_path: str | None, refusal: str | None
) -> None:
    assert linkage_refusal(Dependencies(needed, search_path)) == refusal


def test_arrays_of_any_name_are_written_and_read_back(tmp_path: Path) -> None:
    specs = tuple(TensorSpec(name=name, shape=(2,)) for name in ("file", "x", "args.0"))
    arrays = tuple(np.arange(2, dtype=np.float32) + index for index in range(3))
    write_arrays(tmp_path / "folder" / "inputs.npz", specs, arrays)
    with np.load(tmp_path / "folder" / "inputs.npz") as archive:
        assert {name: archive[name].tolist() for name in archive.files} == {
            "file": [0, 1],
            "x": [1, 2],
            "args.0": [2, 3],
        }


def test_bfloat16_is_stored_as_its_bits(tmp_path: Path) -> None:
    one = np.ones(3, dtype=ml_dtypes.bfloat16)
    write_arrays(tmp_path / "x.npz", (TensorSpec(name="x", shape=(3,), dtype=DType.BFLOAT16),), (one,))
    with np.load(tmp_path / "x.npz") as archive:
        assert archive["x"].dtype == np.uint16
        assert archive["x"].tolist() == [0x3F80] * 3


def test_an_archive_holds_sorted_files_without_owner_or_leading_folder(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "b.so").write_bytes(b"b" * 100_000)
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "a.txt").chmod(0o600)
    write_archive(tmp_path, ("lib/b.so", "a.txt"), tmp_path / "bundle.tar.zst")
    raw = zstandard.ZstdDecompressor().stream_reader((tmp_path / "bundle.tar.zst").read_bytes()).read()
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        members = archive.getmembers()
    assert [member.name for member in members] == ["a.txt", "lib/b.so"]
    assert {(member.mode, member.uid, member.gid, member.uname) for member in members} == {(0o644, 0, 0, "")}
    assert {member.mtime for member in members} == {MTIME_SECONDS}


@pytest.mark.parametrize(
    ("content", "level"),
    [
        (b"small", LEVEL),
        (b"text " * (LARGE_BYTES // 5 + 1), LEVEL),
        (np.random.default_rng(0).normal(size=LARGE_BYTES // 4).astype(np.float32).tobytes(), FAST_LEVEL),
    ],
    ids=["a small file", "a large file that shrinks", "parameters"],
)
def test_large_files_that_hardly_shrink_are_stored_fast(tmp_path: Path, content: bytes, level: int) -> None:
    (tmp_path / "file").write_bytes(content)
    assert level_of(tmp_path / "file") == level


def test_an_archive_of_several_frames_unpacks_like_one(tmp_path: Path) -> None:
    large = np.random.default_rng(0).normal(size=LARGE_BYTES // 4).astype(np.float32).tobytes()
    contents = {"a.txt": b"a", "b.so": large, "c.txt": b"c"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    write_archive(tmp_path, tuple(contents), tmp_path / "bundle.tar.zst")

    packed = (tmp_path / "bundle.tar.zst").read_bytes()
    with (
        zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True) as stream,
        tarfile.open(fileobj=stream, mode="r|") as archive,
    ):
        found = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    assert found == contents


def test_checksums_are_sorted_lines_as_coreutils_reads_them(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).write_text(name)
    files = tuple(describe(tmp_path, name) for name in ("b", "a"))
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("a", "b")}
    assert checksums(files) == f"{digests['a']}  a\n{digests['b']}  b\n"
