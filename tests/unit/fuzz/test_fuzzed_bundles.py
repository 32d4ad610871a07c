"""Any bundle is unpacked inside its folder or refused, in a job and in the client."""

import io
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from mutations import mutated

from bessemer.bundle.manifest import CHECKSUMS, MANIFEST
from bessemer.client.unpacking import Caps, unpack
from bessemer.contract.problem import ErrorCode
from bessemer.errors import BundleError
from worker.errors import JobError
from worker.job.folder import JobFolder
from worker.job.unpacking import read_manifest, unpacked

pytestmark = pytest.mark.fuzz

KINDS = st.sampled_from(
    [
        *(tarfile.REGTYPE, tarfile.REGTYPE, tarfile.REGTYPE, tarfile.DIRTYPE),
        *(tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE),
    ]
)
NAMES = st.sampled_from(
    [
        *(MANIFEST, CHECKSUMS, "model.so", "a", "a/b", "a/b/c", "./a", "a" * 300, "é", "."),
        *("../outside", "a/../../outside", "/etc/outside", ""),
    ]
)
LINKS = st.sampled_from(["a", "..", "../..", "../../outside", "/etc", "a/b", "b/../..", "."])
NUMBERS = st.sampled_from([0, 1, 0o644, 0o7777, 1 << 31, 1 << 40])
PAX = st.dictionaries(
    st.sampled_from(
        ["path", "linkpath", "size", "mtime", "uid", "GNU.sparse.map", "GNU.sparse.size", "hdrcharset"]
    ),
    st.sampled_from(["0", "-1", "1e400", "nan", "../outside", "a/b", "9" * 30, "0,1", "x"]),
    max_size=2,
)
SMALL = Caps(files=8, total_bytes=1 << 20)
CANARY = "nothing of this changes"


@st.composite
def members(draw: st.DrawFn) -> tuple[tarfile.TarInfo, bytes]:
    info, data = tarfile.TarInfo(draw(NAMES)), draw(st.binary(max_size=600))
    info.type, info.linkname, info.size = draw(KINDS), draw(LINKS), len(data)
    info.mode, info.mtime, info.uid = draw(NUMBERS), draw(NUMBERS), draw(NUMBERS)
    info.pax_headers = draw(PAX)
    return info, data


def tarred(entries: list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, data in entries:
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


TARS = mutated(st.lists(members(), max_size=6).map(tarred), b"ustar")
BUNDLES = TARS.map(zstandard.compress) | mutated(TARS.map(zstandard.compress)) | st.binary()


@contextmanager
def only(inner: str, upload: str, data: bytes) -> Iterator[Path]:
    """A folder with an upload, in which only one inner folder may change."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / inner).mkdir(parents=True)
        (folder / upload).write_bytes(data)
        (folder / "outside").write_text(CANARY)
        before = listed(folder, inner)
        yield folder
        assert listed(folder, inner) == before
        assert (folder / "outside").read_text() == CANARY


def listed(folder: Path, inner: str) -> set[str]:
    paths = (str(path.relative_to(folder)) for path in folder.rglob("*"))
    return {path for path in paths if not path.startswith(f"{inner}/")}


@given(BUNDLES)
def test_a_job_unpacks_a_bundle_inside_its_folder_or_refuses_it(data: bytes) -> None:
    with only("job/scratch", "job/model", data) as folder:
        job = JobFolder(folder / "job")
        try:
            read_manifest(unpacked(job, ErrorCode.INVOCATION_FAILED).bundle, ErrorCode.INVOCATION_FAILED)
        except JobError as error:
            assert error.code is ErrorCode.INVOCATION_FAILED
        for path in job.scratch.rglob("*"):
            assert not path.is_symlink() and (path.is_file() or path.is_dir())


@given(BUNDLES)
def test_the_client_unpacks_a_bundle_inside_a_folder_or_refuses_it(data: bytes) -> None:
    with only("bundle", "bundle.tar.zst", data) as folder:
        try:
            unpack(folder / "bundle.tar.zst", folder / "bundle", SMALL)
        except BundleError:
            assert list((folder / "bundle").iterdir()) == []
