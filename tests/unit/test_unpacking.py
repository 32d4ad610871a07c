"""A job unpacks a bundle of files and folders, and nothing else."""

import io
import tarfile
from hashlib import sha256
from pathlib import Path

import pytest
import zstandard

from bessemer.contract.problem import ErrorCode
from worker.errors import JobError
from worker.job.folder import JobFolder, make_job_folder
from worker.job.unpacking import unpacked


def packed(folder: JobFolder, **fields: object) -> JobFolder:
    """The folder of a job whose bundle has a library and another entry."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(tarfile.TarInfo("lib/model.so"))
        other = tarfile.TarInfo("other")
        for name, value in fields.items():
            setattr(other, name, value)
        tar.addfile(other)
    folder.model.write_bytes(zstandard.compress(buffer.getvalue()))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    return make_job_folder(tmp_path / "job", None)


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.DIRTYPE])
def test_files_and_folders_are_unpacked(folder: JobFolder, kind: bytes) -> None:
    bundle = unpacked(packed(folder, type=kind), ErrorCode.INVOCATION_FAILED).bundle
    assert {path.name for path in bundle.rglob("*")} == {"lib", "model.so", "other"}


@pytest.mark.parametrize("name", ["other", "./other", "lib/../other"])
def test_the_digest_of_an_unpacked_file_is_that_of_its_content(folder: JobFolder, name: str) -> None:
    bundle, digests = unpacked(packed(folder, name=name), ErrorCode.INVOCATION_FAILED)
    actual = {
        path.relative_to(bundle).as_posix(): sha256(path.read_bytes()).hexdigest()
        for path in bundle.rglob("*")
        if path.is_file()
    }
    assert actual.keys() == {"lib/model.so", "other"}
    assert {path: digest for path, digest in digests.items() if path in actual}.items() <= actual.items()
    assert "lib/model.so" in digests


@pytest.mark.parametrize(
    "fields",
    [
        {"type": tarfile.SYMTYPE, "linkname": "other"},
        {"type": tarfile.SYMTYPE, "linkname": "lib/model.so"},
        {"type": tarfile.LNKTYPE, "linkname": "lib/model.so"},
        {"type": tarfile.FIFOTYPE},
        {"pax_headers": {"GNU.sparse.map": "0,1", "GNU.sparse.size": str(1 << 40)}},
        {"pax_headers": {"GNU.sparse.map": "nonsense"}},
        {"name": "../other"},
    ],
    ids=str,
)
def test_other_entries_are_refused(folder: JobFolder, fields: dict[str, object]) -> None:
    with pytest.raises(JobError) as caught:
        unpacked(packed(folder, **fields), ErrorCode.INVOCATION_FAILED)
    assert caught.value.code is ErrorCode.INVOCATION_FAILED
