"""Archives are checked before they are opened."""

import io
import struct
import zipfile
from pathlib import Path

import pytest

from bessemer.contract.problem import ErrorCode
from worker.compiler.frontend.zip_archive import EXPANSION_SLACK_BYTES, check_archive
from worker.errors import JobError


def write(path: Path, entries: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


def patched(path: Path, old: bytes, new: bytes, count: int = -1) -> Path:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, count))
    return path


def refusal(path: Path) -> JobError:
    with pytest.raises(JobError) as caught:
        check_archive(path)
    return caught.value


def test_an_honest_archive_passes_and_loses_its_root_folder(tmp_path: Path) -> None:
    archive = check_archive(write(tmp_path / "model", {"root/data.pkl": b"x", "root/data/0": b"y" * 5000}))
    assert archive.names == {"data.pkl", "data/0"}
    assert archive.has_folder("data")


def test_an_archive_without_a_root_folder_passes(tmp_path: Path) -> None:
    assert check_archive(write(tmp_path / "model", {"version": b"8", "a/b": b""})).names == {"version", "a/b"}


def test_a_zip_bomb_is_unsafe(tmp_path: Path) -> None:
    bomb = write(tmp_path / "model", {"r/a": bytes(3 * EXPANSION_SLACK_BYTES)}, zipfile.ZIP_DEFLATED)
    assert bomb.stat().st_size < 1 << 20
    assert refusal(bomb).code is ErrorCode.MODEL_UNSAFE_ARCHIVE


def test_a_bomb_that_hides_its_size_is_refused_without_expanding_it(tmp_path: Path) -> None:
    size = 3 * EXPANSION_SLACK_BYTES
    bomb = write(tmp_path / "model", {"r/a": bytes(size)}, zipfile.ZIP_DEFLATED)
    patched(bomb, struct.pack("<L", size), struct.pack("<L", 1000))
    assert refusal(bomb).code in (ErrorCode.MODEL_UNSAFE_ARCHIVE, ErrorCode.MODEL_DAMAGED)


@pytest.mark.parametrize("name", ["../outside", "r/../../outside", "/etc/passwd", "r\\..\\outside"])
def test_an_entry_outside_the_archive_is_unsafe(tmp_path: Path, name: str) -> None:
    error = refusal(write(tmp_path / "model", {name: b"x"}))
    assert error.code is ErrorCode.MODEL_UNSAFE_ARCHIVE


def test_two_entries_of_one_name_are_unsafe(tmp_path: Path) -> None:
    path = patched(write(tmp_path / "model", {"r/aaaa": b"1", "r/bbbb": b"2"}), b"r/bbbb", b"r/aaaa")
    assert "twice" in refusal(path).detail


def test_a_header_of_another_name_than_the_directory_is_unsafe(tmp_path: Path) -> None:
    path = patched(write(tmp_path / "model", {"r/aaaa": b"1"}), b"r/aaaa", b"r/zzzz", 1)
    assert "its own header" in refusal(path).detail


def test_overlapping_entries_are_unsafe(tmp_path: Path) -> None:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("r/b", b"inner")
    path = write(tmp_path / "model", {"r/a": inner.getvalue(), "r/b": b"inner"})
    content = bytearray(path.read_bytes())
    second = content.rfind(b"PK\x01\x02")
    nested = content.find(b"PK\x03\x04", 4)
    content[second + 42 : second + 46] = struct.pack("<L", nested)
    path.write_bytes(content)
    assert "overlap" in refusal(path).detail


def test_a_stored_entry_of_two_sizes_is_unsafe(tmp_path: Path) -> None:
    path = write(tmp_path / "model", {"r/a": b"x" * 777})
    content = bytearray(path.read_bytes())
    directory = content.rfind(b"PK\x01\x02")
    content[directory + 24 : directory + 28] = struct.pack("<L", 778)
    path.write_bytes(content)
    assert refusal(path).code is ErrorCode.MODEL_UNSAFE_ARCHIVE


@pytest.mark.parametrize("keep", [10, 60, 400])
def test_a_truncated_archive_is_damaged(tmp_path: Path, keep: int) -> None:
    path = write(tmp_path / "model", {"r/a": b"x" * 500})
    path.write_bytes(path.read_bytes()[:keep])
    assert refusal(path).code is ErrorCode.MODEL_DAMAGED


def test_an_archive_truncated_after_a_nested_one_is_damaged(tmp_path: Path) -> None:
    inner = write(tmp_path / "inputs", {"data.pkl": b"a tensor"}).read_bytes()
    path = write(tmp_path / "model", {"r/inputs": inner, "r/version": b"1"})
    path.write_bytes(path.read_bytes()[:-30])
    assert "may be truncated" in refusal(path).detail


def test_a_flipped_bit_is_damage(tmp_path: Path) -> None:
    path = patched(write(tmp_path / "model", {"r/a": b"weights" * 100}), b"weights", b"weightz", 1)
    assert refusal(path).code is ErrorCode.MODEL_DAMAGED


def test_a_checksum_of_zero_is_not_compared(tmp_path: Path) -> None:
    path = write(tmp_path / "model", {"r/a": b"weights" * 100})
    with zipfile.ZipFile(path) as archive:
        checksum = archive.getinfo("r/a").CRC
    check_archive(patched(path, struct.pack("<L", checksum), bytes(4)))


def test_an_empty_archive_is_damaged(tmp_path: Path) -> None:
    assert refusal(write(tmp_path / "model", {})).code is ErrorCode.MODEL_DAMAGED


def test_a_name_that_is_not_utf_8_is_damage(tmp_path: Path) -> None:
    path = patched(
        write(tmp_path / "model", {"r/\N{LATIN SMALL LETTER E WITH ACUTE}": b"1"}), b"\xc3\xa9", b"\xff\xff"
    )
    assert refusal(path).code is ErrorCode.MODEL_DAMAGED


def test_an_entry_beyond_any_file_is_damage(tmp_path: Path) -> None:
    path = write(tmp_path / "model", {"r/a": b"1", "r/b": b"2"})
    content = path.read_bytes()
    start, end = content.rfind(b"PK\x01\x02"), content.rfind(b"PK\x05\x06")
    sizes = struct.pack("<HHQ", 1, 8, (1 << 64) - 1)
    entry = bytearray(content[start:end] + sizes)
    entry[30:32], entry[42:46] = struct.pack("<H", len(sizes)), b"\xff" * 4
    directory_bytes = len(content[:end]) - content.find(b"PK\x01\x02") + len(sizes)
    last = bytearray(content[end:])
    last[12:16] = struct.pack("<L", directory_bytes)
    path.write_bytes(content[:start] + entry + last)
    assert refusal(path).code is ErrorCode.MODEL_DAMAGED


@pytest.mark.parametrize(("name", "attributes"), [("r/a/", 0), ("r/a", 0x10)])
def test_a_folder_with_content_is_unsafe(tmp_path: Path, name: str, attributes: int) -> None:
    with zipfile.ZipFile(tmp_path / "model", "w") as archive:
        entry = zipfile.ZipInfo(name)
        archive.writestr(entry, b"torch reads something else")
        entry.external_attr = attributes
    assert "folder with content" in refusal(tmp_path / "model").detail


@pytest.mark.parametrize("name", ["", "\0r"])
def test_an_entry_without_a_name_is_unsafe(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "model", "w") as archive:
        entry = zipfile.ZipInfo("r")
        entry.filename = name
        archive.writestr(entry, b"content")
    assert "without a name" in refusal(tmp_path / "model").detail
