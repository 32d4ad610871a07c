"""Reading a bundle's archive, piece by piece."""

import io
import random
import tarfile
from hashlib import sha256
from pathlib import Path

import pytest
import zstandard

from bessemer.bundle.archive import COPY_BYTES, open_archive


def frame(*files: tuple[str, bytes], cut: int | None = None) -> bytes:
    """A compressed frame with files, and without the archive's end."""
    packed = io.BytesIO()
    for name, content in files:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        packed.write(entry.tobuf(tarfile.PAX_FORMAT) + content + bytes(-len(content) % tarfile.BLOCKSIZE))
    return zstandard.compress(packed.getvalue()[:cut])


def read(path: Path, folder: Path) -> dict[str, bytes]:
    with open_archive(path) as archive:
        for member in archive:
            archive.extract(member, folder / member.name)
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, COPY_BYTES, COPY_BYTES + 1, 2 * COPY_BYTES + 600])
def test_files_of_any_size_and_frame_are_read(tmp_path: Path, size: int) -> None:
    files = {"a": b"a" * size, "b": b"b" * 700, "c" * 150: b"c"}
    one, two, three = files.items()
    (tmp_path / "archive").write_bytes(frame(one) + frame(two, three))
    folder = tmp_path / "folder"
    assert read(tmp_path / "archive", folder) == files


@pytest.mark.parametrize("size", [0, 1, COPY_BYTES, COPY_BYTES + 1, 5 * COPY_BYTES + 600])
def test_each_file_is_hashed_as_it_is_written(tmp_path: Path, size: int) -> None:
    files = {"a": random.Random(1).randbytes(size), "b": b"b" * 700}
    (tmp_path / "archive").write_bytes(frame(*files.items()))
    with open_archive(tmp_path / "archive") as archive:
        digests = {member.name: archive.extract(member, tmp_path / member.name) for member in archive}
    assert digests == {name: sha256(content).hexdigest() for name, content in files.items()}


def test_entries_may_be_skipped(tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(frame(("a", b"a" * (COPY_BYTES + 5)), ("b", b"b")))
    with open_archive(tmp_path / "archive") as archive:
        assert [member.name for member in archive] == ["a", "b"]


def test_a_file_that_is_cut_is_refused(tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(frame(("a", b"a" * 10_000), cut=9_000))
    with pytest.raises(tarfile.ReadError, match="unexpected end of data"):
        read(tmp_path / "archive", tmp_path / "folder")


def test_a_header_that_claims_a_huge_name_takes_no_memory(tmp_path: Path) -> None:
    entry = tarfile.TarInfo("name")
    entry.type, entry.size = tarfile.GNUTYPE_LONGNAME, 1 << 40
    (tmp_path / "archive").write_bytes(zstandard.compress(entry.tobuf(tarfile.GNU_FORMAT)))
    with pytest.raises(tarfile.ReadError):
        read(tmp_path / "archive", tmp_path / "folder")


def test_existing_files_stay(tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(frame(("a", b"1"), ("a", b"2")))
    with pytest.raises(FileExistsError):
        read(tmp_path / "archive", tmp_path / "folder")
    assert (tmp_path / "folder" / "a").read_bytes() == b"1"


@pytest.mark.parametrize(
    ("kind", "size", "refusal"),
    [
        (tarfile.REGTYPE, -(10**15), "before the one that was read"),
        (tarfile.XHDTYPE, 2 << 20, "a header of"),
    ],
)
def test_headers_of_hostile_sizes_are_refused(tmp_path: Path, kind: bytes, size: int, refusal: str) -> None:
    entry = tarfile.TarInfo("a")
    entry.type, entry.size = kind, size
    packed = entry.tobuf(tarfile.GNU_FORMAT) + bytes(max(size, 0) + 4 * tarfile.BLOCKSIZE)
    (tmp_path / "archive").write_bytes(zstandard.compress(packed))
    with pytest.raises(tarfile.ReadError, match=refusal):
        read(tmp_path / "archive", tmp_path / "folder")
