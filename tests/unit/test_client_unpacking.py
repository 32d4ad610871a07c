"""Malicious and damaged bundles."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest
import zstandard

from bessemer.client.unpacking import Caps, unpack
from bessemer.errors import BundleError

LIBRARY = b"machine code"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def bundle_files() -> dict[str, bytes]:
    manifest = {
        "model": "0" * 64,
        "target": {
            "name": "host",
            "kind": "llvm",
            "mcpu": "znver4",
            "triple": "t",
            "features": [],
            "cores": 1,
        },
        "inputs": [],
        "outputs": [],
        "versions": {},
        "files": [{"path": "model.so", "digest": digest(LIBRARY), "size_bytes": len(LIBRARY)}],
        "created_at": "2026-01-01T00:00:00Z",
    }
    files = {"model.so": LIBRARY, "manifest.json": json.dumps(manifest).encode()}
    return files | {"SHA256SUMS": checksums(files)}


def checksums(files: dict[str, bytes]) -> bytes:
    return "".join(f"{digest(data)}  {path}\n" for path, data in files.items()).encode()


def member(
    name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(data)
    return info, data


def sparse(extents: str) -> tuple[tarfile.TarInfo, bytes]:
    """A file with holes, which only a hostile bundle has."""
    info, data = member("weights", b"x")
    info.pax_headers = {"GNU.sparse.map": extents, "GNU.sparse.size": str(1 << 40)}
    return info, data


def pack(path: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    path.write_bytes(zstandard.compress(buffer.getvalue()))
    return path


def pack_files(path: Path, files: dict[str, bytes]) -> Path:
    return pack(path, [member(name, data) for name, data in files.items()])


def test_a_correct_bundle_is_unpacked(tmp_path: Path) -> None:
    folder = unpack(pack_files(tmp_path / "b.tar.zst", bundle_files()), tmp_path / "new" / "out")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == bundle_files()


def test_a_bundle_is_unpacked_within_a_folder_that_exists(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "link").symlink_to(elsewhere)
    folder = unpack(pack_files(tmp_path / "b.tar.zst", bundle_files()), tmp_path / "link")
    assert (folder / "model.so").read_bytes() == LIBRARY
    assert sorted(path.name for path in elsewhere.iterdir()) == sorted(bundle_files())


def test_a_second_bundle_replaces_the_first(tmp_path: Path) -> None:
    archive = pack_files(tmp_path / "b.tar.zst", bundle_files())
    folder = unpack(archive, tmp_path / "out")
    (folder / "model.so").write_bytes(b"older")
    (folder / "mine.txt").write_bytes(b"the user's")
    unpack(archive, folder)
    assert (folder / "model.so").read_bytes() == LIBRARY
    assert (folder / "mine.txt").exists()


@pytest.mark.parametrize(
    "hostile",
    [
        member("/tmp/escaped", b"x"),
        member("../escaped", b"x"),
        member("lib/../../escaped", b"x"),
        member("link", kind=tarfile.SYMTYPE, link="/etc/passwd"),
        member("link", kind=tarfile.LNKTYPE, link="model.so"),
        member("pipe", kind=tarfile.FIFOTYPE),
        member("null", kind=tarfile.CHRTYPE),
        member(".hidden", b"x"),
        member("model.so", b"twice"),
        member("model.so/a", b"in a file"),
        member("a" * 300, b"a name that is too long"),
        sparse("0,1"),
        sparse("nonsense"),
    ],
    ids=lambda hostile: f"{hostile[0].name}-{hostile[0].type.decode()}",
)
def test_an_archive_with_foreign_entries_is_refused_and_leaves_nothing(
    tmp_path: Path, hostile: tuple[tarfile.TarInfo, bytes]
) -> None:
    members = [member(name, data) for name, data in bundle_files().items()]
    archive = pack(tmp_path / "b.tar.zst", [*members, hostile])
    with pytest.raises(BundleError):
        unpack(archive, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["b.tar.zst"]


@pytest.mark.parametrize("caps", [Caps(files=2), Caps(total_bytes=100)])
def test_a_bundle_beyond_its_caps_is_refused(tmp_path: Path, caps: Caps) -> None:
    with pytest.raises(BundleError, match="larger"):
        unpack(pack_files(tmp_path / "b.tar.zst", bundle_files()), tmp_path / "out", caps)


def test_a_bomb_is_refused_before_it_is_written(tmp_path: Path) -> None:
    archive = pack_files(tmp_path / "b.tar.zst", {"zeros": bytes(1 << 24)})
    assert archive.stat().st_size < 1 << 14
    with pytest.raises(BundleError, match="larger"):
        unpack(archive, tmp_path / "out", Caps(total_bytes=1 << 20))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model.so": b"other code"}, "model.so differs"),
        ({"more.so": b"code"}, "more.so is not listed"),
        ({"SHA256SUMS": b"nonsense\n"}, "malformed line"),
        ({"manifest.json": b"{}"}, "manifest.json differs"),
    ],
)
def test_a_changed_file_is_found(tmp_path: Path, change: dict[str, bytes], says: str) -> None:
    with pytest.raises(BundleError, match=says):
        unpack(pack_files(tmp_path / "b.tar.zst", bundle_files() | change), tmp_path / "out")


@pytest.mark.parametrize("missing", ["model.so", "manifest.json", "SHA256SUMS"])
def test_a_missing_file_is_found(tmp_path: Path, missing: str) -> None:
    files = {name: data for name, data in bundle_files().items() if name != missing}
    with pytest.raises(BundleError, match=missing):
        unpack(pack_files(tmp_path / "b.tar.zst", files), tmp_path / "out")


def test_a_manifest_that_names_another_library_is_found(tmp_path: Path) -> None:
    files = {name: data for name, data in bundle_files().items() if name != "SHA256SUMS"}
    files["model.so"] = b"other code"
    files["SHA256SUMS"] = checksums(files)
    with pytest.raises(BundleError, match=r"model\.so differs from its checksum in manifest\.json"):
        unpack(pack_files(tmp_path / "b.tar.zst", files), tmp_path / "out")


@pytest.mark.parametrize("keep", [0, 10, 60])
def test_a_truncated_archive_is_damaged(tmp_path: Path, keep: int) -> None:
    archive = pack_files(tmp_path / "b.tar.zst", bundle_files())
    archive.write_bytes(archive.read_bytes()[:keep])
    with pytest.raises(BundleError):
        unpack(archive, tmp_path / "out")
