"""Run the inputs of a base or golden file through a new library, and compare the outputs."""

import tempfile
from dataclasses import dataclass
from math import inf
from pathlib import Path

from bessemer.cli.waiting import cancel_on_interrupt
from bessemer.client import Job
from bessemer.contract.job import REFERENCE
from bessemer.errors import InvalidArgumentError, InvocationFailedError, RequestRefusedError
from bessemer.gate.arrays import ArraysError, arrays_of, copy_arrays, reading
from bessemer.gate.outputs import INPUTS, OUTPUTS, OutputChange, compare_outputs


@dataclass(frozen=True)
class Expected:
    """A file of inputs and expected outputs.

    Attributes:
        path: a ``reference.npz``.
        is_golden: whether the user passed --golden. Then outputs that cannot be compared count as wrong.
    """

    path: Path
    is_golden: bool

    def check(self) -> None:
        """Check a golden file before compiling.

        Raises:
            InvalidArgumentError: the file is not valid.
        """
        if not self.is_golden:
            return
        try:
            with reading(self.path) as archive:
                for folder in (INPUTS, OUTPUTS):
                    arrays = arrays_of(archive, folder)
                    if not arrays:
                        raise ArraysError(f"{self.path} has no array whose name starts with '{folder}'")
                    for array in arrays.values():
                        array.header()
        except ArraysError as error:
            raise InvalidArgumentError(str(error)) from error

    def compare(self, job: Job) -> tuple[OutputChange | None, tuple[str, ...]]:
        """Run a job's library on the inputs, and compare the outputs.

        Returns:
            The change, if the outputs were compared; and notes for the summary.
        """
        try:
            change = self._compare(job)
            return change, (change.note,) if change.note else ()
        except (InvocationFailedError, RequestRefusedError) as error:
            reason = f"{error.problem.title}: {error.problem.detail}"
        except ArraysError as error:
            reason = str(error)
        if self.is_golden:
            return OutputChange(inf, reason), ()
        return None, (f"the outputs were not compared with the base's: {reason}",)

    def _compare(self, job: Job) -> OutputChange:
        with tempfile.TemporaryDirectory(prefix="bessemer-") as name:
            inputs, outputs = Path(name) / "inputs.npz", Path(name) / "outputs.npz"
            copy_arrays(self.path, INPUTS, inputs)
            invocation = job.submit_invocation(inputs, runs=0)
            with cancel_on_interrupt(invocation.id, lambda: job.cancel_invocation(invocation.id)):
                ended = job.wait_for_invocation(invocation)
            job.download_outputs(ended, outputs)
            return compare_outputs(self.path, outputs, by_position=not self.is_golden)


def reference_of(report: Path) -> Path:
    """The file of inputs and outputs beside a report."""
    return report.with_suffix(".npz")


def keep_reference(job: Job, report: Path) -> None:
    """Download a job's reference beside its report, and remove an earlier job's."""
    path = reference_of(report)
    path.unlink(missing_ok=True)
    if any(artifact.name == REFERENCE for artifact in job.document.artifacts):
        job.download_artifact(REFERENCE, path)
