"""The supervisor treats a job's files as hostile."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from bessemer.contract.access import DEFAULT_TENANT
from bessemer.contract.job import Artifact, Figures
from bessemer.contract.report import Latency
from bessemer.store.blobs.artifacts import open_artifacts
from worker.errors import MisbehavedError
from worker.protocol.messages import Compiled
from worker.supervisor.collect import (
    collect,
    collect_left,
    lent_file,
    replace_files,
    size_of,
    store_output,
    take_output,
)

LIMIT_BYTES = 1 << 20
LATENCY = Latency(runs=1, min_ms=1, p50_ms=1, p90_ms=1, p99_ms=1, mean_ms=1, stddev_ms=0)


def compiled() -> Compiled:
    figures = Figures(
        latency=LATENCY, baselines=(), library_bytes=1, peak_memory_bytes=1, max_absolute_error=0
    )
    return Compiled(verified=True, figures=figures, files=("bundle.tar.zst",))


def plain(file: Path) -> None:
    file.write_bytes(b"bundle")


def absent(file: Path) -> None:
    assert not file.exists()


def link(file: Path) -> None:
    file.symlink_to("/etc/hostname")


def hard_link(file: Path) -> None:
    plain(file.with_name("other"))
    file.hardlink_to(file.with_name("other"))


def pipe(file: Path) -> None:
    os.mkfifo(file)


def hole(file: Path) -> None:
    plain(file)
    os.truncate(file, LIMIT_BYTES + 1)


def collected(folder: Path, make: Callable[[Path], None], printed: str = "printed") -> tuple[str, ...]:
    (folder / "output").mkdir()
    (folder / "log.txt").write_text(printed)
    make(folder / "output" / "bundle.tar.zst")
    artifacts = open_artifacts(f"file://{folder}/store")
    try:
        kept = collect(folder, compiled(), artifacts.for_tenant(DEFAULT_TENANT), LIMIT_BYTES, {})
        return tuple(file.name for file in kept)
    finally:
        artifacts.close()


@pytest.mark.parametrize("make", [absent, link, hard_link, pipe, hole])
def test_only_regular_files_within_their_limit_are_accepted(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    with pytest.raises(MisbehavedError):
        collected(tmp_path, make)


def test_plain_files_are_stored_with_the_log(tmp_path: Path) -> None:
    assert collected(tmp_path, plain) == ("bundle.tar.zst", "log.txt")


def test_an_empty_log_is_no_artifact(tmp_path: Path) -> None:
    assert collected(tmp_path, plain, printed="") == ("bundle.tar.zst",)


def test_files_are_moved_once_and_a_second_try_finds_them(tmp_path: Path) -> None:
    (tmp_path / "output").mkdir()
    (tmp_path / "log.txt").write_text("printed")
    plain(tmp_path / "output" / "bundle.tar.zst")
    artifacts = open_artifacts(f"file://{tmp_path}/store")
    stored: dict[str, Artifact] = {}
    try:
        own = artifacts.for_tenant(DEFAULT_TENANT)
        first = collect(tmp_path, compiled(), own, LIMIT_BYTES, stored)
        second = collect(tmp_path, compiled(), own, LIMIT_BYTES, stored)
        assert first == second
        assert not (tmp_path / "output" / "bundle.tar.zst").exists()
        assert b"".join(own.stream(first[0].digest)) == b"bundle"
    finally:
        artifacts.close()


def stored(folder: Path, make: Callable[[Path], None]) -> int:
    (folder / "output").mkdir(exist_ok=True)
    make(folder / "output" / "candidates.tar.zst")
    artifacts = open_artifacts(f"file://{folder}/store")
    try:
        own = artifacts.for_tenant(DEFAULT_TENANT)
        return store_output(folder, "candidates.tar.zst", own, LIMIT_BYTES).size_bytes
    finally:
        artifacts.close()


def test_a_file_of_a_running_job_is_stored(tmp_path: Path) -> None:
    assert stored(tmp_path, plain) == 6


@pytest.mark.parametrize("make", [absent, link, hard_link, pipe, hole])
def test_of_a_running_job_only_regular_files_within_their_limit_are_stored(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    with pytest.raises(MisbehavedError):
        stored(tmp_path, make)


def test_a_running_job_cannot_put_a_link_in_place_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "output").symlink_to(tmp_path / "other")
    with pytest.raises(MisbehavedError):
        stored(tmp_path, plain)


def link_index(output: Path) -> None:
    (output / "ir.json").symlink_to("/etc/hostname")
    (output / "ir.zst").write_bytes(b"texts")


def write_both(output: Path) -> None:
    (output / "ir.json").write_bytes(b"{}")
    (output / "ir.zst").write_bytes(b"texts")


def write_too_much(output: Path) -> None:
    write_both(output)
    os.truncate(output / "ir.zst", LIMIT_BYTES + 1)


@pytest.mark.parametrize(
    ("make", "left"),
    [
        (lambda output: None, ("log.txt",)),
        (write_both, ("ir.json", "ir.zst", "log.txt")),
        (link_index, ("ir.zst", "log.txt")),
        (write_too_much, ("ir.json", "log.txt")),
    ],
)
def test_a_failed_jobs_snapshots_are_kept(
    tmp_path: Path, make: Callable[[Path], None], left: tuple[str, ...]
) -> None:
    (tmp_path / "output").mkdir()
    (tmp_path / "log.txt").write_text("printed")
    make(tmp_path / "output")
    artifacts = open_artifacts(f"file://{tmp_path}/store")
    try:
        kept = collect_left(tmp_path, artifacts.for_tenant(DEFAULT_TENANT), LIMIT_BYTES)
        assert tuple(one.name for one in kept) == left
    finally:
        artifacts.close()


def two_jobs(folder: Path) -> tuple[Path, Path]:
    """The folders of a job and of a fresh one, each with a file ``report.json``."""
    for name in ("job", "fresh"):
        (folder / name / "output").mkdir(parents=True)
        (folder / name / "output" / "report.json").write_text(name)
    return folder / "job", folder / "fresh"


def test_files_of_a_fresh_job_replace_those_of_an_earlier_one(tmp_path: Path) -> None:
    job, fresh = two_jobs(tmp_path)
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    (job / "output" / "report.json").unlink()
    (job / "output" / "report.json").symlink_to(victim)
    replace_files(job, ("report.json",), fresh)
    assert (job / "output" / "report.json").read_text() == "fresh"
    assert victim.read_text() == "untouched"


def test_files_are_not_replaced_through_a_link_in_place_of_the_folder(tmp_path: Path) -> None:
    job, fresh = two_jobs(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    (job / "output").rename(elsewhere)
    (job / "output").symlink_to(elsewhere)
    with pytest.raises(MisbehavedError, match="is not a folder"):
        replace_files(job, ("report.json",), fresh)
    assert (elsewhere / "report.json").read_text() == "job"


@pytest.mark.parametrize("name", ["missing.json", "link.json", "../report.json"])
def test_only_files_replace_files(tmp_path: Path, name: str) -> None:
    job, fresh = two_jobs(tmp_path)
    (fresh / "output" / "link.json").symlink_to("/etc/passwd")
    with pytest.raises(MisbehavedError):
        replace_files(job, ("report.json", name), fresh)
    assert (job / "output" / "report.json").read_text() == "job"


def test_a_directory_in_the_way_of_a_file_is_misbehavior(tmp_path: Path) -> None:
    job, fresh = two_jobs(tmp_path)
    (job / "output" / "report.json").unlink()
    (job / "output" / "report.json").mkdir()
    with pytest.raises(MisbehavedError, match="cannot be replaced"):
        replace_files(job, ("report.json",), fresh)


@pytest.mark.parametrize("is_open", [False, True], ids=["closed", "open for writing"])
def test_a_file_taken_from_a_running_job_no_longer_changes(tmp_path: Path, is_open: bool) -> None:
    (tmp_path / "output").mkdir()
    file, taken = tmp_path / "output" / "early.tar.zst", tmp_path / "taken"
    plain(file)
    with file.open("ab") if is_open else nullcontext() as writer:
        assert take_output(tmp_path, file.name, taken, LIMIT_BYTES) == 6
        if writer is not None:
            writer.write(b", and more")
    assert taken.read_bytes() == b"bundle"
    assert not file.exists()


@pytest.mark.parametrize("make", [absent, link, hard_link, pipe, hole, Path.mkdir])
def test_of_a_running_job_only_regular_files_within_their_limit_are_taken(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    (tmp_path / "output").mkdir()
    make(tmp_path / "output" / "early.tar.zst")
    with pytest.raises(MisbehavedError):
        take_output(tmp_path, "early.tar.zst", tmp_path / "taken", LIMIT_BYTES)


def test_nothing_is_taken_through_a_link_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    plain(tmp_path / "elsewhere" / "early.tar.zst")
    (tmp_path / "output").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(MisbehavedError):
        take_output(tmp_path, "early.tar.zst", tmp_path / "taken", LIMIT_BYTES)
    assert (tmp_path / "elsewhere" / "early.tar.zst").exists()


def test_a_lent_file_can_only_be_read_and_comes_back(tmp_path: Path) -> None:
    (tmp_path / "output").mkdir()
    source, target = tmp_path / "output" / "bundle.tar.zst", tmp_path / "model"
    plain(source)
    source.chmod(0o666)
    with lent_file(tmp_path, source.name, target, os.getegid(), LIMIT_BYTES):
        assert not source.exists()
        assert target.read_bytes() == b"bundle"
        assert target.stat().st_mode & 0o777 == 0o440
        assert target.stat().st_uid == os.geteuid()
    assert not target.exists()
    assert source.read_bytes() == b"bundle"


@pytest.mark.parametrize("make", [absent, link, hard_link, pipe, hole])
def test_only_regular_files_within_their_limit_are_lent(tmp_path: Path, make: Callable[[Path], None]) -> None:
    (tmp_path / "output").mkdir()
    make(tmp_path / "output" / "bundle.tar.zst")
    lent = lent_file(tmp_path, "bundle.tar.zst", tmp_path / "model", os.getegid(), LIMIT_BYTES)
    with pytest.raises(MisbehavedError), lent:
        pass
    assert not (tmp_path / "model").exists()


def test_the_size_of_a_file_is_that_of_the_file_itself(tmp_path: Path) -> None:
    job, _ = two_jobs(tmp_path)
    assert (size_of(job, "report.json"), size_of(job, "missing")) == (3, 0)
