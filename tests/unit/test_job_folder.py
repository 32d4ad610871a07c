import os
from pathlib import Path

import pytest

from worker.job.folder import make_job_folder, remove_job_folder, seal

AS_ROOT = os.geteuid() == 0


def test_a_folder_is_private_and_its_model_read_only(tmp_path: Path) -> None:
    uid = 62_345 if AS_ROOT else None
    folder = make_job_folder(tmp_path / "job", uid)
    folder.model.write_bytes(b"model")
    seal(folder.model, uid)
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert folder.model.stat().st_mode & 0o777 == 0o400
    owner = uid if uid is not None else os.getuid()
    places = (folder.path, folder.model, folder.output, folder.scratch, folder.log)
    assert {place.stat().st_uid for place in places} == {owner}


def test_an_existing_folder_is_refused(tmp_path: Path) -> None:
    make_job_folder(tmp_path / "job", None)
    with pytest.raises(FileExistsError):
        make_job_folder(tmp_path / "job", None)


def test_removing_follows_no_link(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    folder = make_job_folder(tmp_path / "job", None)
    (folder.scratch / "link").symlink_to(kept)
    (folder.scratch / "file").symlink_to(kept / "file")
    remove_job_folder(folder.path)
    assert (kept / "file").exists()
    assert not folder.path.exists()


def test_folders_deeper_than_any_path_are_removed(tmp_path: Path) -> None:
    folder = make_job_folder(tmp_path / "job", None)
    current = os.open(folder.scratch, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=current)
        inner = os.open("d", os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = inner
    os.close(current)
    remove_job_folder(folder.path)
    assert not folder.path.exists()


def test_folders_without_permissions_are_removed(tmp_path: Path) -> None:
    folder = make_job_folder(tmp_path / "job", None)
    locked = folder.scratch / "locked" / "inner"
    locked.mkdir(parents=True)
    (locked / "file").touch()
    locked.chmod(0)
    locked.parent.chmod(0)
    remove_job_folder(folder.path)
    assert not folder.path.exists()


def test_removing_a_missing_folder_succeeds(tmp_path: Path) -> None:
    remove_job_folder(tmp_path / "gone")


def test_a_link_in_place_of_a_job_folder_is_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    (tmp_path / "job").symlink_to(kept)
    with pytest.raises(OSError):
        remove_job_folder(tmp_path / "job")
    assert (kept / "file").exists()
