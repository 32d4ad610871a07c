"""The step before a bundle is published: a fresh process checks it."""

from collections.abc import Callable, Mapping

from bessemer.bundle.manifest import ARCHIVE
from bessemer.contract.base import Digest
from bessemer.contract.job import Compilation
from bessemer.contract.problem import Problem
from bessemer.store.rows.lifecycle import Attempt
from worker.job.folder import JobFolder
from worker.protocol.messages import Checked
from worker.protocol.order import CheckWork
from worker.supervisor.job_record import CheckRecord
from worker.supervisor.job_runner import JobRunner
from worker.supervisor.outcome import as_problem, conclude


async def run_check(
    runner: JobRunner,
    slot: int,
    row: Compilation,
    attempt: Attempt,
    name: str,
    bundle: JobFolder,
    work: Callable[..., CheckWork],
    on_gpu: bool = False,
) -> tuple[Checked, Mapping[str, Digest]] | Problem:
    """Check a compilation's bundle in a fresh process.

    Args:
        runner: runs the process.
        slot: the process's slot.
        row: the compilation.
        attempt: its attempt.
        name: the process's name.
        bundle: the folder whose output has the bundle.
        work: makes the order from what all checks of the compilation share.
        on_gpu: whether the process may use the GPU.

    Returns:
        What the process found, and the digests of the bundle's files; or the problem.

    Raises:
        MisbehavedError: the folder has no bundle.
    """
    record = CheckRecord(runner.store.jobs, row.id, attempt)
    async with runner.folder(name, slot) as fresh, runner.lent_output(bundle, ARCHIVE, fresh.model, slot):
        extensions = await runner.fetch_extensions(attempt.tenant, row.request, fresh, slot)
        if isinstance(extensions, Problem):
            return extensions
        order = work(
            model=row.request.model,
            verify=row.request.verify,
            float32_products=row.request.optimize.float32_products,
            extensions=extensions,
        )
        limit_seconds = runner.settings.limit_invoke_seconds
        outcome = await runner.run(name, slot, fresh, order, record, limit_seconds, on_gpu=on_gpu)
    result = conclude(outcome)
    return (result, record.files) if isinstance(result, Checked) else as_problem(result)
