"""Blobs: whole or not at all, and what their digest says."""

import asyncio
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from obstore.store import LocalStore
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool

from bessemer.contract.access import DEFAULT_TENANT
from bessemer.store.blobs.artifacts import UPLOADS_AT_ONCE, Artifacts, open_artifacts
from bessemer.store.blobs.hashing import Blob
from bessemer.store.blobs.object_stores import INCOMING, move
from bessemer.store.blobs.uploads import MinimumRate
from bessemer.store.errors import (
    BlobMissingError,
    DamagedError,
    DigestMismatchError,
    EmptyUploadError,
    StoreUnavailableError,
    TooLargeError,
    UploadStalledError,
)

LIMIT = 1 << 30
CONTENT = bytes(range(256)) * 25_000  # 6.4 MB: two parts
ROOT = Path(__file__).parents[3]


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


async def chunks_of(content: bytes, size: int = 100_000) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


def keys(artifacts: Artifacts) -> list[str]:
    return [entry["path"] for page in artifacts._store.list() for entry in page]


@pytest.mark.parametrize("content", [b"x", b"x" * (5 << 20), CONTENT], ids=["byte", "one part", "parts"])
async def test_an_upload_is_stored_under_its_digest(artifacts: Artifacts, content: bytes) -> None:
    blob = await artifacts.for_tenant(DEFAULT_TENANT).put_stream(
        chunks_of(content), digest_of(content), LIMIT
    )
    assert blob == Blob(digest_of(content), len(content))
    assert keys(artifacts) == [f"default/{blob.digest}"]
    assert artifacts.for_tenant(DEFAULT_TENANT).size(blob.digest) == len(content)
    assert b"".join(artifacts.for_tenant(DEFAULT_TENANT).stream(blob.digest)) == content


async def test_an_upload_without_a_promised_digest_is_stored(artifacts: Artifacts) -> None:
    blob = await artifacts.for_tenant(DEFAULT_TENANT).put_stream(chunks_of(CONTENT), None, LIMIT)
    assert blob.digest == digest_of(CONTENT)


async def test_the_same_upload_again_is_one_blob(artifacts: Artifacts) -> None:
    await artifacts.for_tenant(DEFAULT_TENANT).put_stream(chunks_of(CONTENT), None, LIMIT)
    await artifacts.for_tenant(DEFAULT_TENANT).put_stream(chunks_of(CONTENT, 7777), None, LIMIT)
    assert len(keys(artifacts)) == 1


async def test_an_upload_of_exactly_the_limit_is_stored(artifacts: Artifacts) -> None:
    assert (
        await artifacts.for_tenant(DEFAULT_TENANT).put_stream(chunks_of(CONTENT), None, len(CONTENT))
    ).size_bytes == len(CONTENT)


async def standing_still() -> AsyncIterator[bytes]:
    yield b"x"
    await asyncio.Event().wait()


async def dripping() -> AsyncIterator[bytes]:
    while True:
        yield b"x"
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("source", [standing_still, dripping])
async def test_uploads_that_are_too_slow_are_given_up_and_let_others_through(
    artifacts: Artifacts, source: Callable[[], AsyncIterator[bytes]]
) -> None:
    rate = MinimumRate(idle_seconds=0.1, min_bytes_per_second=1000)
    stalled = [
        artifacts.for_tenant(DEFAULT_TENANT).put_stream(source(), None, LIMIT, rate=rate)
        for _ in range(UPLOADS_AT_ONCE)
    ]
    other = artifacts.for_tenant(DEFAULT_TENANT).put_stream(chunks_of(CONTENT), None, LIMIT)
    *given_up, blob = await asyncio.gather(*stalled, other, return_exceptions=True)
    assert {type(error) for error in given_up} == {UploadStalledError}
    assert blob == Blob(digest_of(CONTENT), len(CONTENT))
    assert len(keys(artifacts)) == 1


async def test_a_timeout_of_the_source_is_its_own(artifacts: Artifacts) -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield b"x"
        raise TimeoutError("the sender's own")

    with pytest.raises(TimeoutError, match="the sender's own"):
        await artifacts.for_tenant(DEFAULT_TENANT).put_stream(failing(), None, LIMIT, rate=MinimumRate(60, 0))


KILLED = """
import os, sys
from pathlib import Path
from bessemer.store.blobs.artifacts import open_artifacts

def chunks():
    yield bytes(6 << 20)
    os.kill(os.getpid(), 9)

store = open_artifacts(Path(sys.argv[1]).as_uri())._store
store.put(".incoming/cut-off", chunks(), chunk_size=5 << 20)
"""


def test_what_a_killed_process_left_is_swept_once_it_is_old(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, tmp_path], cwd=ROOT, check=False)
    artifacts = open_artifacts(tmp_path.as_uri())
    assert len(list((tmp_path / INCOMING).iterdir())) == 1
    assert (artifacts.sweep_incoming(3600), artifacts.sweep_incoming(-1)) == (0, 1)
    assert list((tmp_path / INCOMING).iterdir()) == []
    artifacts.close()


def test_an_upload_that_was_never_renamed_is_swept_and_blobs_stay(
    artifacts: Artifacts, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"kept")
    kept = artifacts.for_tenant(DEFAULT_TENANT).put_file(tmp_path / "file")
    artifacts._store.put(f"{INCOMING}/left", b"half")
    assert (artifacts.sweep_incoming(3600), artifacts.sweep_incoming(-1)) == (0, 1)
    assert keys(artifacts) == [f"default/{kept.digest}"]


async def test_an_upload_above_the_limit_leaves_nothing(artifacts: Artifacts) -> None:
    with pytest.raises(TooLargeError):
        await artifacts.for_tenant(DEFAULT_TENANT).put_stream(chunks_of(CONTENT), None, len(CONTENT) - 1)
    assert keys(artifacts) == []


async def test_an_upload_of_another_digest_leaves_nothing(artifacts: Artifacts) -> None:
    with pytest.raises(DigestMismatchError) as caught:
        await artifacts.for_tenant(DEFAULT_TENANT).put_stream(chunks_of(CONTENT), digest_of(b"other"), LIMIT)
    assert caught.value.actual == digest_of(CONTENT)
    assert keys(artifacts) == []


@pytest.mark.parametrize("chunks", [[], [b""], [b"", b""]])
async def test_an_empty_upload_is_refused(artifacts: Artifacts, chunks: list[bytes]) -> None:
    async def empty() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    with pytest.raises(EmptyUploadError):
        await artifacts.for_tenant(DEFAULT_TENANT).put_stream(empty(), None, LIMIT)
    assert keys(artifacts) == []


@pytest.mark.parametrize("error", [ConnectionResetError("gone"), RuntimeError("odd")])
async def test_what_cuts_an_upload_off_is_raised_and_nothing_is_left(
    artifacts: Artifacts, tmp_path: Path, error: Exception
) -> None:
    async def cut_off() -> AsyncIterator[bytes]:
        async for chunk in chunks_of(CONTENT):
            yield chunk
        raise error

    with pytest.raises(type(error)) as caught:
        await artifacts.for_tenant(DEFAULT_TENANT).put_stream(cut_off(), None, LIMIT)
    assert caught.value is error
    assert keys(artifacts) == []
    assert files_below(tmp_path) == []


async def test_more_uploads_than_threads_all_end(artifacts: Artifacts) -> None:
    contents = [number.to_bytes(2) * 700 for number in range(UPLOADS_AT_ONCE + 8)]
    uploads = (
        artifacts.for_tenant(DEFAULT_TENANT).put_stream(chunks_of(content), None, LIMIT)
        for content in contents
    )
    blobs = await asyncio.gather(*uploads)
    assert [blob.digest for blob in blobs] == [digest_of(content) for content in contents]


async def test_a_cancelled_upload_leaves_nothing(artifacts: Artifacts, tmp_path: Path) -> None:
    reached = asyncio.Event()

    async def stalled() -> AsyncIterator[bytes]:
        async for chunk in chunks_of(CONTENT):
            yield chunk
        reached.set()
        await asyncio.Event().wait()

    upload = asyncio.create_task(artifacts.for_tenant(DEFAULT_TENANT).put_stream(stalled(), None, LIMIT))
    await reached.wait()
    upload.cancel()
    with pytest.raises(asyncio.CancelledError):
        await upload
    assert keys(artifacts) == []
    assert files_below(tmp_path) == []


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_file_is_stored_under_its_digest(artifacts: Artifacts, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    assert artifacts.for_tenant(DEFAULT_TENANT).put_file(path) == Blob(digest_of(CONTENT), len(CONTENT))
    assert keys(artifacts) == [f"default/{digest_of(CONTENT)}"]


def test_a_file_that_is_given_away_is_stored_under_its_digest(artifacts: Artifacts, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    path.chmod(0o400)
    os.utime(path, (0, 0))
    blob = artifacts.for_tenant(DEFAULT_TENANT).take_file(path)
    assert blob == Blob(digest_of(CONTENT), len(CONTENT))
    assert b"".join(artifacts.for_tenant(DEFAULT_TENANT).stream(blob.digest)) == CONTENT
    assert keys(artifacts) == [f"default/{blob.digest}"]
    assert not any(artifacts.blobs_older_than(1e9))


def test_a_file_that_a_process_may_still_write_to_is_copied(artifacts: Artifacts, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    with path.open("r+b") as writer:
        blob = artifacts.for_tenant(DEFAULT_TENANT).take_file(path)
        writer.write(b"changed")
    assert b"".join(artifacts.for_tenant(DEFAULT_TENANT).stream(blob.digest)) == CONTENT


def test_an_empty_file_can_be_stored_and_read(artifacts: Artifacts, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    blob = artifacts.for_tenant(DEFAULT_TENANT).put_file(path)
    assert blob.size_bytes == 0 and list(artifacts.for_tenant(DEFAULT_TENANT).stream(blob.digest)) == []


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "missing"])
def test_only_a_regular_file_is_stored(artifacts: Artifacts, tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if kind == "link":
        path.symlink_to(__file__)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    for store in (
        artifacts.for_tenant(DEFAULT_TENANT).put_file,
        artifacts.for_tenant(DEFAULT_TENANT).take_file,
    ):
        with pytest.raises(OSError):
            store(path)
    assert keys(artifacts) == []


def test_tenants_do_not_see_each_others_blobs(artifacts: Artifacts, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    digest = artifacts.for_tenant("one").put_file(path).digest
    assert [artifacts.for_tenant(name).size(digest) for name in ("one", "two")] == [7, None]


def test_a_blob_is_fetched_to_a_new_file(artifacts: Artifacts, tmp_path: Path) -> None:
    digest = stored(artifacts, tmp_path)
    artifacts.for_tenant(DEFAULT_TENANT).fetch_to(digest, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == CONTENT
    with pytest.raises(FileExistsError):
        artifacts.for_tenant(DEFAULT_TENANT).fetch_to(digest, tmp_path / "copy")


def test_a_missing_blob_is_named(artifacts: Artifacts, tmp_path: Path) -> None:
    digest = digest_of(b"never stored")
    assert artifacts.for_tenant(DEFAULT_TENANT).size(digest) is None
    with pytest.raises(BlobMissingError):
        artifacts.for_tenant(DEFAULT_TENANT).stream(digest)
    with pytest.raises(BlobMissingError):
        artifacts.for_tenant(DEFAULT_TENANT).fetch_to(digest, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("change", [b"", b"conten", b"contenx"])
def test_a_damaged_blob_is_not_handed_out(artifacts: Artifacts, tmp_path: Path, change: bytes) -> None:
    digest = stored(artifacts, tmp_path, b"content")
    artifacts._store.put(f"default/{digest}", change)
    with pytest.raises(DamagedError):
        artifacts.for_tenant(DEFAULT_TENANT).fetch_to(digest, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    with pytest.raises(DamagedError):
        list(artifacts.for_tenant(DEFAULT_TENANT).stream(digest))


async def test_a_damaged_blob_is_healed_by_an_upload(artifacts: Artifacts, tmp_path: Path) -> None:
    digest = stored(artifacts, tmp_path, b"content")
    artifacts._store.put(f"default/{digest}", b"damaged")
    await artifacts.for_tenant(DEFAULT_TENANT).put_stream(chunks_of(b"content"), digest, LIMIT)
    assert b"".join(artifacts.for_tenant(DEFAULT_TENANT).stream(digest)) == b"content"


@pytest.mark.parametrize(
    ("start", "end"), [(0, 1), (0, len(CONTENT)), (5, 5), (1, 3_000_000), (len(CONTENT) - 1, None)]
)
def test_a_range_is_streamed(artifacts: Artifacts, tmp_path: Path, start: int, end: int | None) -> None:
    digest = stored(artifacts, tmp_path)
    assert b"".join(artifacts.for_tenant(DEFAULT_TENANT).stream(digest, start, end)) == CONTENT[start:end]


@pytest.mark.parametrize(("start", "end"), [(-1, 1), (2, 1), (8, None)])
def test_a_range_that_no_blob_has_is_refused(
    artifacts: Artifacts, tmp_path: Path, start: int, end: int | None
) -> None:
    digest = stored(artifacts, tmp_path, b"content")
    with pytest.raises(ValueError, match="no blob has bytes"):
        artifacts.for_tenant(DEFAULT_TENANT).stream(digest, start, end)


@pytest.mark.parametrize("start", [0, 7, 9])
def test_a_blob_that_ends_before_a_range_is_damaged(artifacts: Artifacts, tmp_path: Path, start: int) -> None:
    """Ranges come from the size that the row of an artifact has."""
    digest = stored(artifacts, tmp_path, b"content")
    with pytest.raises(DamagedError, match="it has 7 bytes, but"):
        artifacts.for_tenant(DEFAULT_TENANT).stream(digest, start, 10)


def stored(artifacts: Artifacts, folder: Path, content: bytes = CONTENT) -> str:
    path = folder / "original"
    path.write_bytes(content)
    return artifacts.for_tenant(DEFAULT_TENANT).put_file(path).digest


@pytest.mark.parametrize("copy_bytes", [len(CONTENT), len(CONTENT) - 1], ids=["copied", "streamed"])
def test_a_moved_blob_replaces_what_was_there(artifacts: Artifacts, copy_bytes: int) -> None:
    artifacts._store.put("default/source", CONTENT)
    artifacts._store.put("default/target", b"damaged")
    move(artifacts._store, "default/source", "default/target", copy_bytes)
    assert keys(artifacts) == ["default/target"]
    assert bytes(artifacts._store.get("default/target").bytes()) == CONTENT


@pytest.mark.parametrize("copy_bytes", [0, 1])
def test_what_is_not_there_is_not_moved(artifacts: Artifacts, copy_bytes: int) -> None:
    artifacts._store.put("default/target", b"kept")
    with pytest.raises(FileNotFoundError):
        move(artifacts._store, "default/source", "default/target", copy_bytes)
    assert keys(artifacts) == ["default/target"]


def test_blobs_are_listed_page_by_page(artifacts: Artifacts) -> None:
    digests = {digest_of(bytes([number])) for number in range(10)}
    for digest in digests:
        artifacts._store.put(f"default/{digest}", b"x")
    found = [key.digest for keys in artifacts.blobs_older_than(time.time() + 1) for key in keys]
    assert sorted(found) == sorted(digests)


def test_a_ping_leaves_nothing(artifacts: Artifacts) -> None:
    artifacts.ping()
    assert keys(artifacts) == []


async def test_a_folder_that_cannot_be_written_is_unavailable(tmp_path: Path) -> None:
    folder = tmp_path / "artifacts"
    artifacts = Artifacts(LocalStore(folder, mkdir=True))
    folder.rmdir()
    folder.write_text("a file where the folder was")
    with pytest.raises(StoreUnavailableError):
        artifacts.ping()
    with pytest.raises(StoreUnavailableError):
        await artifacts.for_tenant(DEFAULT_TENANT).put_stream(chunks_of(CONTENT), None, LIMIT)


@pytest.mark.parametrize("url", ["file:///proc/no/such/folder", "nonsense://bucket", "s3://"])
def test_a_store_that_cannot_be_opened_is_unavailable(url: str) -> None:
    with pytest.raises(StoreUnavailableError):
        open_artifacts(url)


def test_an_upload_of_128_mib_takes_little_memory(tmp_path: Path) -> None:
    script = [sys.executable, "-m", "tests.contract.store.upload_memory", str(tmp_path)]
    grown_bytes = int(subprocess.check_output(script, cwd=ROOT, text=True))
    assert grown_bytes < 64 << 20


async def test_parts_that_another_request_deletes_while_they_are_joined_are_missing(
    artifacts: Artifacts,
) -> None:
    parts = artifacts.parts_for_tenant(DEFAULT_TENANT)
    contents = (b"first", b"second")
    digests = [digest_of(content) for content in contents]
    for content, digest in zip(contents, digests, strict=True):
        await parts.put_stream(chunks_of(content), digest, LIMIT)
    joining = parts.joined(digests)
    assert next(joining) == b"first"
    parts.delete(digests)
    assert parts.missing(digests) == tuple(digests)
    with pytest.raises(BlobMissingError):
        list(joining)


async def test_two_processes_that_join_the_same_parts_at_once_store_one_whole_blob(
    artifacts: Artifacts, artifacts_url: str
) -> None:
    """Whichever is first deletes the parts: the other has stored the same blob, or misses a part."""
    other = open_artifacts(artifacts_url)
    pieces = (CONTENT, b"the rest")
    digests, whole = [digest_of(piece) for piece in pieces], b"".join(pieces)
    for piece, digest in zip(pieces, digests, strict=True):
        await artifacts.parts_for_tenant(DEFAULT_TENANT).put_stream(chunks_of(piece), digest, LIMIT)

    async def join(process: Artifacts) -> Blob:
        parts = process.parts_for_tenant(DEFAULT_TENANT)
        chunks = iterate_in_threadpool(parts.joined(digests))
        blob = await process.for_tenant(DEFAULT_TENANT).put_stream(chunks, digest_of(whole), LIMIT)
        await run_in_threadpool(parts.delete, digests)
        return blob

    found = await asyncio.gather(join(artifacts), join(other), return_exceptions=True)
    other.close()
    stored, missing = (
        Blob(digest_of(whole), len(whole)),
        [each for each in found if isinstance(each, Exception)],
    )
    assert all(isinstance(error, BlobMissingError) for error in missing) and len(missing) < 2, found
    assert [each for each in found if not isinstance(each, Exception)] == [stored] * (2 - len(missing))
    assert keys(artifacts) == [f"{DEFAULT_TENANT}/{stored.digest}"]
    assert b"".join(artifacts.for_tenant(DEFAULT_TENANT).stream(stored.digest)) == whole


async def test_a_blob_that_is_deleted_before_it_is_read_is_missing(artifacts: Artifacts) -> None:
    own = artifacts.for_tenant(DEFAULT_TENANT)
    blob = await own.put_stream(chunks_of(b"content"), None, LIMIT)
    reading = own.stream(blob.digest)
    artifacts._store.delete(f"{DEFAULT_TENANT}/{blob.digest}")
    with pytest.raises(BlobMissingError):
        list(reading)
