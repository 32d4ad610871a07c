"""Each job in a memory cgroup of its own, where this machine offers one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bessemer.contract.job import JobState
from bessemer.contract.problem import ErrorCode
from worker.errors import WorkDirError
from worker.supervisor.cgroups import job_cgroup

Rig = Any

MEBIBYTE = 1 << 20
ROOTS = tuple(map(Path, ("/sys/fs/cgroup", "/sys/fs/cgroup/memory")))


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A cgroup of this test, in which others can be made."""
    for root in ROOTS:
        path = root / "bessemer-test"
        try:
            path.mkdir()
        except OSError:
            continue
        try:
            if (path / "cgroup.subtree_control").exists():
                (path / "cgroup.subtree_control").write_text("+memory")
            with job_cgroup(path, "usable", MEBIBYTE):
                pass
        except (OSError, WorkDirError):
            path.rmdir()
            continue
        yield path
        assert not [entry for entry in path.iterdir() if entry.is_dir()]
        path.rmdir()
        return
    pytest.skip("this machine offers no memory cgroup")


def test_a_job_joins_its_cgroup_before_it_opens_the_upload(rig: Rig, cgroup: Path) -> None:
    joined: list[int] = []

    def look() -> None:
        (job,) = (folder for folder in cgroup.iterdir() if folder.is_dir())
        joined.extend(map(int, (job / "cgroup.procs").read_text().split()))

    row = rig.handle_while(rig.job("import time\ntime.sleep(1)"), look, cgroup=cgroup)
    assert row.state is JobState.SUCCEEDED
    assert joined


def test_the_kernel_ends_a_job_at_its_memory_limit(rig: Rig, cgroup: Path) -> None:
    attack = """
        kept = []
        while True:
            kept.append(os.urandom(8 << 20))
    """
    row = rig.handle(rig.job(attack), cgroup=cgroup, limit_memory_bytes=256 * MEBIBYTE)
    assert (row.state, row.problem.code) == (JobState.FAILED, ErrorCode.LIMIT_MEMORY)
    assert row.attempt == 1


def test_a_cgroup_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(WorkDirError, match=r"BESSEMER_CGROUP: cannot make .*/absent: No such file"),
        job_cgroup(tmp_path / "absent", "job", MEBIBYTE),
    ):
        pass
