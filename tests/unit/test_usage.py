import mmap
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from worker.job.folder import JobFolder
from worker.settings import Limits
from worker.supervisor.disk import DiskMeter, DiskUse
from worker.supervisor.usage import Meter, memory_bytes

BLOCK = 4096
SELF = f"/proc/{os.getpid()}"
LARGEST_FILE = 1 << 33
AMPLE = Limits(
    memory_bytes=1 << 40,
    disk_bytes=1 << 40,
    inodes=10,
    file_bytes=LARGEST_FILE,
    output_bytes=1 << 40,
    cpu_seconds=1e9,
    wall_seconds=1e9,
)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    for name in ("output", "scratch"):
        (tmp_path / name).mkdir()
    return tmp_path / "scratch"


def disk_use(scratch: Path, inode_limit: int = 100, views: tuple[str, ...] = ()) -> DiskUse:
    return DiskMeter(JobFolder(scratch.parent), inode_limit, LARGEST_FILE).read(views)


def test_files_and_folders_are_counted_in_blocks(scratch: Path) -> None:
    (scratch / "a" / "b").mkdir(parents=True)
    (scratch / "a" / "b" / "file").write_bytes(bytes(3 * BLOCK))
    use = disk_use(scratch)
    assert use.inodes == 3
    assert use.disk_bytes >= 3 * BLOCK


def test_a_sparse_file_counts_its_blocks(scratch: Path) -> None:
    with (scratch / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    assert disk_use(scratch).disk_bytes < BLOCK * 4


def test_a_link_is_not_followed(scratch: Path) -> None:
    (scratch / "link").symlink_to("/usr")
    assert disk_use(scratch).inodes == 1


def test_counting_stops_soon_after_the_limit(scratch: Path) -> None:
    for number in range(50):
        (scratch / str(number)).touch()
    assert disk_use(scratch, inode_limit=10).inodes == 11


def test_an_absurdly_deep_tree_counts_as_too_many_files(scratch: Path) -> None:
    deep = scratch.joinpath(*["d"] * 70)
    deep.mkdir(parents=True)
    assert disk_use(scratch, inode_limit=1000).inodes == 1001


@pytest.mark.parametrize("replace", [Path.touch, lambda path: path.symlink_to("/usr")], ids=["file", "link"])
def test_a_replaced_folder_counts_as_too_many_files(scratch: Path, replace: Callable[[Path], None]) -> None:
    scratch.rmdir()
    replace(scratch)
    assert disk_use(scratch, inode_limit=10).inodes == 11


def test_a_missing_folder_uses_nothing(tmp_path: Path) -> None:
    assert disk_use(tmp_path / "gone") == DiskUse(0, 0)


def test_a_deleted_file_counts_while_it_is_open_or_mapped(scratch: Path) -> None:
    before = disk_use(scratch, views=(SELF,))  # files that other tests left open
    with (scratch / "file").open("w+b") as file:
        file.write(bytes(64 * BLOCK))
        file.flush()
        (scratch / "file").unlink()
        is_open = disk_use(scratch, views=(SELF,))
        mapped = mmap.mmap(file.fileno(), BLOCK)
    is_mapped = disk_use(scratch, views=(SELF,))
    mapped.close()
    for use in (is_open, is_mapped):
        assert use.inodes == before.inodes + 1
        assert use.disk_bytes >= before.disk_bytes + 64 * BLOCK
    assert disk_use(scratch, views=(SELF,)) == before


def test_memory_is_bounded_cheaply_within_the_limit_and_exact_beyond() -> None:
    me = (SELF,)
    upper = memory_bytes(me, limit=1 << 60, baseline_bytes=0)
    exact = memory_bytes(me, limit=0, baseline_bytes=0)
    assert 0 < exact <= upper * 1.1


def test_an_ended_process_uses_no_memory() -> None:
    assert memory_bytes((f"/proc/{1 << 22}",), limit=0, baseline_bytes=0) == 0


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
        meter = Meter(first, None, tmp_path, AMPLE, 0)
        alone = meter.read().memory_bytes
        with sleeper(group=first):
            assert meter.read().memory_bytes > 1.5 * alone
