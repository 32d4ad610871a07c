"""Keeps compiled functions for later jobs of the same tenant.

A job has run a user's code, so it only reads the cache. After a job that succeeded, a confined process that
opens no upload compiles the functions that the cache lacked, one object per process. The key is the digest of
the functions' text, so a hostile text reaches only jobs with the same text.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from bessemer.contract.access import Tenant
from bessemer.contract.base import Digest
from worker.errors import MisbehavedError
from worker.job.folder import JobFolder, functions_file, seal
from worker.protocol.messages import MAX_OBJECTS, OBJECT, ObjectCompiled, ObjectsRequested
from worker.protocol.order import CompileObjectWork, ObjectsFound
from worker.supervisor.collect import read_file
from worker.supervisor.job_record import JobRecord
from worker.supervisor.job_runner import OBJECT_SLOT, JobRunner
from worker.supervisor.metrics import WorkerMetrics
from worker.supervisor.outcome import as_problem, conclude
from worker.supervisor.turns import held_turn

MAX_TEXT_BYTES = 16 << 20
"""The size of one text; a larger one is not compiled for the cache."""

MAX_WAITING = 512
MAX_WAITING_BYTES = 64 << 20
"""How many functions may wait to be compiled, and their size; a worker takes no more."""

MAX_OBJECT_BYTES = 16 << 20
"""The largest object that is kept: a hostile text of few bytes can have an object of any size."""

COMPILE_SECONDS = 20.0
"""How long one object may take: jobs that want to measure wait for it."""

SLOW_SECONDS = 5.0
"""After an object that took longer, a tenant's others are dropped, so that no job delays others for long."""

_PRIVATE = 0o700
_PASSABLE = 0o711
_DIGEST_BYTES = hashlib.sha256().digest_size

log = logging.getLogger(__name__)


class ObjectFiles:
    """The files of a cache, bounded in bytes: the least recently used ones are evicted.

    Each file has the SHA-256 of its object, then the object.

    Args:
        folder: created if missing; only the supervisor's user may enter it.
        limit_bytes: the size of all objects together.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes

    def scope(self, tenant: Tenant, compiler: Digest) -> str:
        """The part of the cache that serves a tenant, so that no tenant learns what others compile.

        Its name depends on a secret of this folder: a job that runs as the supervisor's user can find out
        whether a path exists.
        """
        return hashlib.sha256(self._secret() + f"{compiler} {tenant}".encode()).hexdigest()

    def get(self, scope: str, key: Digest) -> bytes | None:
        """The object of a key, which counts as used now; None if there is none, or if it is damaged."""
        path = self._folder / scope / key
        try:
            os.utime(path)
            stored = path.read_bytes()
        except OSError:
            return None
        digest, content = stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]
        return content if hashlib.sha256(content).digest() == digest else None

    def put(self, scope: str, key: Digest, content: bytes) -> None:
        """Add an object, and evict others if there are too many bytes. One that never fits is left out."""
        if _DIGEST_BYTES + len(content) > self._limit_bytes:
            return
        target, incoming = self._folder / scope / key, self._folder / "incoming"
        for folder in (self._folder, target.parent):
            folder.mkdir(mode=_PRIVATE, exist_ok=True)
        incoming.write_bytes(hashlib.sha256(content).digest() + content)
        incoming.replace(target)
        total_bytes = 0
        for found in sorted(self._objects(), key=lambda found: -found.used_at):
            total_bytes += found.size_bytes
            if total_bytes > self._limit_bytes:
                found.path.unlink()

    def clear(self) -> None:
        """Remove all objects."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _secret(self) -> bytes:
        path = self._folder / "secret"
        try:
            return path.read_bytes()
        except FileNotFoundError:
            self._folder.mkdir(mode=_PRIVATE, exist_ok=True)
            path.write_bytes(secrets.token_bytes())
            return path.read_bytes()

    def _objects(self) -> Iterator[_Object]:
        for path in self._folder.glob("*/*"):
            status = path.stat()
            yield _Object(path, status.st_size, status.st_mtime)


class _Object(NamedTuple):
    path: Path
    size_bytes: int
    used_at: float


class Functions(NamedTuple):
    """The text of functions that the cache lacks, and where their object belongs."""

    scope: str
    key: Digest
    text: bytes


class ObjectCache:
    """The cache of one worker, and what fills it."""

    def __init__(self, files: ObjectFiles, metrics: WorkerMetrics) -> None:
        self.files = files
        self.metrics = metrics
        self._waiting: dict[tuple[str, Digest], Functions] = {}
        self._arrived = asyncio.Event()

    def of_job(self, folder: JobFolder, uid: int | None, tenant: Tenant, compiler: Digest) -> JobObjects:
        """What a job may ask for: the objects that this compiler made for its tenant."""
        return JobObjects(self, folder, uid, self.files.scope(tenant, compiler))

    def offer(self, offered: Iterable[Functions]) -> None:
        """Compile functions for the cache later, as far as there is room."""
        room_bytes = MAX_WAITING_BYTES - sum(len(other.text) for other in self._waiting.values())
        for functions in offered:
            place, is_small = (functions.scope, functions.key), len(functions.text) <= room_bytes
            if is_small and place not in self._waiting and len(self._waiting) < MAX_WAITING:
                self._waiting[place] = functions
                room_bytes -= len(functions.text)
        self._arrived.set()

    async def fill(self, runner: JobRunner) -> None:
        """Compile what waits, one object after the other while no job measures, until cancelled.

        After a failure, what else waits for the same part of the cache is dropped: a job that offers what
        cannot be compiled may do so often. So is it after a slow object, which is kept.
        """
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._waiting:
                place, functions = next(iter(self._waiting.items()))
                try:
                    await self._compile_in_turn(functions, runner)
                except Exception as error:
                    log.warning("cannot compile functions for the cache: %s", error)
                    self._drop(functions.scope)
                self._waiting.pop(place, None)

    def _drop(self, scope: str) -> None:
        self._waiting = {place: kept for place, kept in self._waiting.items() if kept.scope != scope}

    async def _compile_in_turn(self, functions: Functions, runner: JobRunner) -> None:
        await runner.ready()  # a new zygote takes seconds, and other jobs may measure meanwhile
        async with held_turn(runner.settings.turn_limits()) as is_held:
            began = time.monotonic()
            if not is_held:
                raise TimeoutError("other jobs measured all the time")
            await self._compile(functions, runner)
        if time.monotonic() - began > SLOW_SECONDS:
            self._drop(functions.scope)

    async def _compile(self, functions: Functions, runner: JobRunner) -> None:
        name = f"object-{functions.key}"
        async with runner.folder(name, OBJECT_SLOT) as folder:
            await asyncio.to_thread(folder.model.write_bytes, functions.text)
            seal(folder.model, runner.uid(OBJECT_SLOT))
            work, record = CompileObjectWork(), JobRecord()
            limit_seconds = min(COMPILE_SECONDS, runner.settings.measuring_turn_seconds)
            result = conclude(await runner.run(name, OBJECT_SLOT, folder, work, record, limit_seconds))
            if not isinstance(result, ObjectCompiled):
                raise MisbehavedError(as_problem(result).detail)
            content = await asyncio.to_thread(read_file, folder.path, OBJECT, MAX_OBJECT_BYTES)
        await asyncio.to_thread(self.files.put, functions.scope, functions.key, content)


@dataclass
class JobObjects:
    """What one job asks of the cache.

    Attributes:
        scope: the part of the cache for the job's tenant and this compiler.
        missing: the keys that were not found, up to ``MAX_OBJECTS``: a job may ask again and again.
    """

    cache: ObjectCache
    folder: JobFolder
    uid: int | None
    scope: str
    missing: set[Digest] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Make the folder of objects, before the job starts: it can neither write nor replace any."""
        self.folder.objects.mkdir()
        self.folder.objects.chmod(_PASSABLE)  # whatever the umask is

    async def find(self, message: ObjectsRequested) -> ObjectsFound:
        """Copy the objects that the cache has into the job's folder.

        Raises:
            OSError: the folder cannot be written.
        """
        found = await asyncio.to_thread(self._find, message.keys)
        missing = set(message.keys) - set(found)
        self.missing.update(islice(missing, MAX_OBJECTS - len(self.missing)))
        self.cache.metrics.asked(len(found), len(missing))
        return ObjectsFound(keys=found)

    async def settle(self) -> None:
        """Offer the functions that the cache lacks, once every process of the job is gone."""
        self.cache.offer(await asyncio.to_thread(self._offered))

    def _find(self, keys: tuple[Digest, ...]) -> tuple[Digest, ...]:
        return tuple(key for key in dict.fromkeys(keys) if self._give(key))

    def _give(self, key: Digest) -> bool:
        """Copy an object unless the job has it: one at a time, since all of them may fill the memory."""
        path = self.folder.object_of(key)
        if path.exists():
            return True
        content = self.cache.files.get(self.scope, key)
        if content is None:
            return False
        path.write_bytes(content)
        seal(path, self.uid)
        return True

    def _offered(self) -> list[Functions]:
        """The functions that the job left, the smallest first; those with a wrong digest are skipped.

        It reads no more than may wait: files with holes can be far larger than the job's disk.
        """
        offered, room_bytes = [], MAX_WAITING_BYTES
        for key in self.missing:
            try:
                text = read_file(self.folder.path, functions_file(key), min(MAX_TEXT_BYTES, room_bytes))
            except MisbehavedError:
                continue
            room_bytes -= len(text)
            if hashlib.sha256(text).hexdigest() == key:
                offered.append(Functions(self.scope, key, text))
        return sorted(offered, key=lambda functions: len(functions.text))
