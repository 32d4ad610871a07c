"""States how a bundle was made, signs that, and adds both to the bundle.

The job's child writes the bundle, and it may have run any code. So the child's archive has no end, and the
supervisor adds its own files and the end as a second frame, without reading what the child wrote. The digests
of the child's files come from the fresh process that checks the bundle.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import zstandard

from bessemer.bundle.manifest import ARCHIVE, ENVELOPE, STATEMENT
from bessemer.bundle.provenance import (
    BUILD_TYPE,
    BUILDER,
    MODEL,
    BuildDefinition,
    Builder,
    BuildMetadata,
    Dependency,
    Provenance,
    RunDetails,
    Sha256,
    Statement,
    Subject,
)
from bessemer.bundle.signing import SigningKey
from bessemer.contract.base import Digest
from bessemer.contract.job import Compilation
from bessemer.contract.target import ResolvedTarget, resolve_target
from worker.errors import MisbehavedError
from worker.measure.machine import processor
from worker.protocol.order import ExtensionFile, Ready

MTIME_SECONDS = 315_532_800
"""The same modification time as that of the child's files."""


@dataclass(frozen=True)
class Making:
    """What the supervisor knows about a compilation besides its result.

    Attributes:
        row: the compilation.
        uploads: its extensions and records.
        ready: the versions of the zygote.
        worker_id: this worker.
        cores: this worker's cores.
    """

    row: Compilation
    uploads: tuple[ExtensionFile, ...]
    ready: Ready
    worker_id: str
    cores: int

    @property
    def target(self) -> ResolvedTarget:
        """The target with every choice made."""
        return resolve_target(self.row.request.target, self.ready.mcpu, self.cores)


def make_statement(making: Making, files: Mapping[str, Digest], finished_at: datetime) -> Statement:
    """The statement about a bundle. Only the digests come from a job.

    Args:
        making: the compilation.
        files: the digests of the bundle's files by path.
        finished_at: when it was made.
    """
    row, ready, target = making.row, making.ready, making.target
    definition = BuildDefinition(
        build_type=BUILD_TYPE,
        external_parameters={"request": row.request.model_dump(mode="json")},
        internal_parameters={
            "target": target.model_dump(mode="json"),
            "worker": making.worker_id,
            "processor": processor(),
            "cores": making.cores,
            **({"gpus": [gpu.model_dump() for gpu in ready.capability.gpus]} if target.gpus else {}),
        },
        resolved_dependencies=(*_uploads(making), *_tools(ready)),
    )
    details = RunDetails(
        builder=Builder(id=BUILDER, version=ready.versions),
        metadata=BuildMetadata(invocation_id=row.id, started_on=row.started_at, finished_on=finished_at),
    )
    subjects = (Subject(name=path, digest=Sha256(sha256=files[path])) for path in sorted(files))
    return Statement(
        subject=tuple(subjects), predicate=Provenance(build_definition=definition, run_details=details)
    )


def provenance_files(statement: Statement, key: SigningKey | None) -> dict[str, bytes]:
    """The files to add to a bundle: the statement, and its envelope if there is a key."""
    text = statement.model_dump_json(indent=2).encode() + b"\n"
    if key is None:
        return {STATEMENT: text}
    return {STATEMENT: text, ENVELOPE: key.sign(text).model_dump_json(indent=2).encode() + b"\n"}


def add_to_archive(archive: Path, files: Mapping[str, bytes]) -> None:
    """Append files, and the end, to the archive of a job whose processes are gone.

    Raises:
        MisbehavedError: the archive cannot be written.
    """
    try:
        descriptor = os.open(
            archive, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        )
    except PermissionError as error:
        raise MisbehavedError(f"{ARCHIVE!r} cannot be written") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(_frame(files))


def _frame(files: Mapping[str, bytes]) -> bytes:
    """A compressed frame that ends an archive."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(content), 0o644, MTIME_SECONDS
            tar.addfile(entry, io.BytesIO(content))
    return zstandard.ZstdCompressor(write_checksum=True).compress(packed.getvalue())


def _uploads(making: Making) -> tuple[Dependency, ...]:
    request = making.row.request
    models = (
        Dependency(name=MODEL if digest == request.model else f"{MODEL}-{digest}", digest=_sha256(digest))
        for digest in request.models
    )
    others = (
        Dependency(name=_name(file, making.row.request.extensions), digest=_sha256(file.digest))
        for file in making.uploads
    )
    return (*models, *others)


def _name(file: ExtensionFile, extensions: tuple[Digest, ...]) -> str:
    kind = "extension" if file.digest in extensions else "records"
    return f"{kind}/{file.name or file.digest}"


def _tools(ready: Ready) -> tuple[Dependency, ...]:
    kinds = {"python": "generic"}
    packages = (
        Dependency(name=name, uri=f"pkg:{kinds.get(name, 'pypi')}/{name}@{version}")
        for name, version in ready.versions.items()
    )
    return (*packages, Dependency(name="compiler", digest=_sha256(ready.compiler)))


def _sha256(digest: Digest) -> Sha256:
    return Sha256(sha256=digest)
