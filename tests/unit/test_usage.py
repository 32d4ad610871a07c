import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from worker.supervisor.usage import Meter, deleted_bytes, folder_use, memory_bytes

BLOCK = 4096


def test_files_and_folders_are_counted_in_blocks(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(bytes(3 * BLOCK))
    use = folder_use(tmp_path, inode_limit=100)
    assert use.inodes == 3
    assert use.disk_bytes >= 3 * BLOCK


def test_a_sparse_file_counts_its_blocks(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    assert folder_use(tmp_path, inode_limit=100).disk_bytes < BLOCK * 4


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/usr")
    assert folder_use(tmp_path, inode_limit=100).inodes == 1


def test_counting_stops_soon_after_the_limit(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / str(number)).touch()
    assert folder_use(tmp_path, inode_limit=10).inodes == 11


def test_an_absurdly_deep_tree_counts_as_too_many_files(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d"] * 70)
    deep.mkdir(parents=True)
    assert folder_use(tmp_path, inode_limit=1000).inodes == 1001


def test_a_replaced_folder_counts_as_too_many_files(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("/usr")
    for name in ("file", "link"):
        assert folder_use(tmp_path / name, inode_limit=10).inodes == 11


def test_a_missing_folder_uses_nothing(tmp_path: Path) -> None:
    assert folder_use(tmp_path / "gone", inode_limit=10).inodes == 0


def test_a_deleted_file_counts_while_it_is_open(tmp_path: Path) -> None:
    before = deleted_bytes((os.getpid(),), tmp_path)  # pytest's own, and files other tests left open
    with (tmp_path / "file").open("wb") as file:
        file.write(bytes(64 * BLOCK))
        file.flush()
        (tmp_path / "file").unlink()
        assert deleted_bytes((os.getpid(),), tmp_path) >= before + 64 * BLOCK
    assert deleted_bytes((os.getpid(),), tmp_path) == before


def test_memory_is_bounded_cheaply_within_the_limit_and_exact_beyond() -> None:
    me = (os.getpid(),)
    upper = memory_bytes(me, limit=1 << 60, baseline_bytes=0)
    exact = memory_bytes(me, limit=0, baseline_bytes=0)
    assert 0 < exact <= upper * 1.1


def test_an_ended_process_uses_no_memory() -> None:
    assert memory_bytes((1 << 22,), limit=0, baseline_bytes=0) == 0


@contextmanager
def sleeper(group: int) -> Iterator[int]:
    """A started process of this group whose memory stays constant."""
    script = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]
    with subprocess.Popen(script, process_group=group, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


def test_a_process_that_a_job_starts_later_is_counted(tmp_path: Path) -> None:
    with sleeper(group=0) as first:
        meter = Meter(first, None, tmp_path, 1 << 40, 10, 0)
        alone = meter.read().memory_bytes
        with sleeper(group=first):
            assert meter.read().memory_bytes > 1.5 * alone
