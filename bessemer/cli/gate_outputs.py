"""Runs the inputs of a base, or of a golden file, through a new library."""

import tempfile
from dataclasses import dataclass
from math import inf
from pathlib import Path

from bessemer.cli.waiting import cancelled_if_interrupted
from bessemer.client import Job
from bessemer.contract.job import REFERENCE
from bessemer.errors import InvalidArgumentError, InvocationFailedError, RequestRefusedError
from bessemer.gate.arrays import ArraysError, arrays_of, copy_arrays, reading
from bessemer.gate.outputs import INPUTS, OUTPUTS, OutputChange, compare_outputs

__all__ = ["Expected", "keep_reference", "reference_of"]


@dataclass(frozen=True)
class Expected:
    """A file of inputs and of the outputs that they are expected to give.

    Attributes:
        path: a ``reference.npz``.
        is_golden: whether the user named it: then outputs that cannot be compared are wrong.
    """

    path: Path
    is_golden: bool

    def check(self) -> None:
        """See that a golden file can be used, before anything is compiled.

        Raises:
            InvalidArgumentError: it cannot.
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
        """Run the library of a job on the inputs, and compare its outputs.

        Returns:
            The change, if the outputs were compared; and what the summary must say of the comparison.
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
            with cancelled_if_interrupted(invocation.id, lambda: job.cancel_invocation(invocation.id)):
                ended = job.wait_for_invocation(invocation)
            job.download_outputs(ended, outputs)
            return compare_outputs(self.path, outputs, by_position=not self.is_golden)


def reference_of(report: Path) -> Path:
    """The file of inputs and outputs that a gate leaves beside a report."""
    return report.with_suffix(".npz")


def keep_reference(job: Job, report: Path) -> None:
    """Leave a job's reference beside its report; none of an earlier job stays there."""
    path = reference_of(report)
    path.unlink(missing_ok=True)
    if any(artifact.name == REFERENCE for artifact in job.document.artifacts):
        job.download_artifact(REFERENCE, path)
