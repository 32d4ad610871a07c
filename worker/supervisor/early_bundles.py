"""Publishes bundles of a compilation that still runs, each after the check that every bundle must pass."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bessemer.bundle.manifest import ARCHIVE
from bessemer.contract.base import now
from bessemer.contract.job import Artifact
from bessemer.contract.problem import Problem
from bessemer.store.rows.lifecycle import Attempt
from worker.errors import MisbehavedError
from worker.job.folder import JobFolder
from worker.protocol.messages import EARLY_ARCHIVE, EarlyBundleMade
from worker.protocol.order import CheckWork, EarlyBundleTaken
from worker.supervisor.check_step import run_check
from worker.supervisor.collect import collect_content, media_type, take_output
from worker.supervisor.job_record import CompilationRecord
from worker.supervisor.job_runner import EARLY_SLOT, JobRunner
from worker.supervisor.outcome import with_latency
from worker.supervisor.provenance import Making, add_to_archive, make_statement, provenance_files

MAX_EARLY_BUNDLES = 32

log = logging.getLogger(__name__)


@dataclass
class EarlyBundles:
    """The bundles of one attempt at a compilation that are published before it ends.

    Attributes:
        made: how many the job has made.
        stored_bytes: how large these are together.
    """

    runner: JobRunner
    making: Making
    attempt: Attempt
    folder: JobFolder
    record: CompilationRecord
    made: int = 0
    stored_bytes: int = 0

    async def publish(self, bundle: EarlyBundleMade) -> EarlyBundleTaken:
        """Check a bundle in a fresh process, sign it, and make it downloadable.

        Raises:
            MisbehavedError: the job has not written a bundle, or makes too many.
            FencedError: another attempt at the compilation has begun.
            StoreUnavailableError: the store was unavailable for too long.
        """
        self.made += 1
        if self.made > MAX_EARLY_BUNDLES:
            raise MisbehavedError(f"the job made more than {MAX_EARLY_BUNDLES} bundles before its end")
        runner = self.runner
        limit_bytes = runner.settings.limit_disk_bytes
        if self.stored_bytes > limit_bytes:
            return EarlyBundleTaken(refusal=f"the earlier ones have more than {limit_bytes} bytes together")
        name = f"early-{self.making.row.id}"
        async with runner.folder(f"{name}-archive", None) as own:
            archive = own.output / ARCHIVE
            take = partial(take_output, self.folder.path, EARLY_ARCHIVE, archive, limit_bytes)
            self.stored_bytes += await asyncio.to_thread(take)
            work = partial(CheckWork, measures=bundle.figures is not None)
            row = self.making.row
            checked = await run_check(runner, EARLY_SLOT, row, self.attempt, name, own, work)
            if isinstance(checked, Problem):
                log.warning("an early bundle is not published: %s", checked.detail)
                return EarlyBundleTaken(refusal=checked.detail)
            found, files = checked
            figures = bundle.figures and with_latency(bundle.figures, found.check)
            provenance = provenance_files(make_statement(self.making, files, now()), runner.signing_key)
            await asyncio.to_thread(add_to_archive, archive, provenance)
            published = await runner.store_retry.call(partial(self._stored, archive, provenance))
        await runner.store_retry.call(partial(self.record.published, self.making.target, figures, published))
        return EarlyBundleTaken()

    def _stored(self, archive: Path, provenance: Mapping[str, bytes]) -> tuple[Artifact, ...]:
        """Store the bundle, and the provenance beside it. Blocks."""
        artifacts = self.runner.store.artifacts.for_tenant(self.attempt.tenant)
        blob = artifacts.take_file(archive)
        bundle = Artifact(
            name=ARCHIVE, digest=blob.digest, size_bytes=blob.size_bytes, media_type=media_type(ARCHIVE)
        )
        return (bundle, *(collect_content(name, text, artifacts) for name, text in provenance.items()))
