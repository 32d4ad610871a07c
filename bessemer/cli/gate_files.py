"""The files of ``bessemer gate``: expected outputs, a report, a Markdown summary and a JUnit report."""

import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from bessemer.cli.arguments import RequestCommand
from bessemer.cli.output import (
    ExitStatus,
    error_lines,
    errors,
    exit_status,
    interruption_status,
    print_lines,
    results,
)
from bessemer.cli.waiting import cancel_on_interrupt
from bessemer.client import Job
from bessemer.contract.job import REFERENCE
from bessemer.contract.report import Report
from bessemer.contract.request import MAIN_ENTRY
from bessemer.errors import BessemerError, InvalidArgumentError, InvocationFailedError, RequestRefusedError
from bessemer.gate.arrays import ArraysError, arrays_of, copy_arrays, reading
from bessemer.gate.outputs import INPUTS, OUTPUTS, OutputChange, compare_outputs
from bessemer.gate.policy import Outcome
from bessemer.gate.summary import annotation, junit, junit_refusal, markdown, markdown_refusal

REASONS = {
    ExitStatus.USAGE: "refused",
    ExitStatus.UNREACHABLE: "no answer from a Bessemer server",
    ExitStatus.INTERRUPTED: "interrupted",
    ExitStatus.TERMINATED: "interrupted",
}
VARIABLE_PREFIX = "BESSEMER_GATE_"
"""An option such as --max-size is also read from the variable ``BESSEMER_GATE_MAX_SIZE``."""

_ENTRY = re.compile(r"""(?P<quote>["'])(?P<quoted>[^\n]+?)(?P=quote)(?!\S)|(?P<word>\S+)""")
NO_VERDICT = "no verdict"
HELP = "  → See `bessemer gate --help`."
UNNAMED = "the model"


@dataclass(frozen=True)
class GateFiles:
    """The paths to write; None for no file. A summary is appended, the other files are replaced.

    ``console`` is the address of the server's console, for links in the summary; empty for none.
    """

    report: Path | None = None
    summary: Path | None = None
    junit: Path | None = None
    console: str = ""

    def write(self, outcome: Outcome) -> None:
        """Write the outcome of a gate."""
        if self.report is not None and outcome.report is not None:
            named = _named(outcome.report, outcome.document.name)
            _prepared(self.report).write_text(named.model_dump_json(indent=2) + "\n")
        self._write(markdown(outcome, self.console), junit(outcome))

    @contextmanager
    def reporting_errors(self, model: str) -> Iterator[None]:
        """Report an error that prevents a verdict in the files, and raise it again."""
        try:
            yield
        except BessemerError as error:
            self.refuse(model, exit_status(error), tuple(error_lines(error)))
            raise
        except OSError as error:
            self.refuse(model, ExitStatus.FAILED, (f"error: {error}",))
            raise
        except KeyboardInterrupt as interruption:
            said = ("interrupted before a verdict", *getattr(interruption, "__notes__", ()))
            self.refuse(model, interruption_status(interruption), said)
            raise

    def refuse(self, model: str, status: ExitStatus, lines: Iterable[str]) -> None:
        """Write the reason for the missing verdict. If writing fails, print the error."""
        reason = REASONS.get(status, NO_VERDICT)
        said = (*lines, *((HELP,) if status is ExitStatus.USAGE else ()))
        annotate("error", model, (f"{reason}: {' '.join(said)}",))
        try:
            self._write(markdown_refusal(model, reason, said), junit_refusal(model, reason, said))
        except OSError as error:
            print_lines(errors, f"error: {error}")

    def _write(self, section: str, suite: str) -> None:
        if self.summary is not None:
            with _prepared(self.summary).open("a") as file:
                file.write(section)
        if self.junit is not None:
            _prepared(self.junit).write_text(suite)


def _named(report: Report, name: str | None) -> Report:
    """The report with the model's name, by which a later gate recognizes the base of another model."""
    return report.model_copy(update={"request": report.request.model_copy(update={"name": name})})


def annotate(level: str, model: str, texts: Iterable[str]) -> None:
    """On a GitHub runner, print annotations for the run and its pull request."""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        print_lines(results, *(annotation(level, model, text) for text in texts))


class GateCommand(RequestCommand):
    """Reads its options from variables, too, and also reports usage errors in the pipeline's files."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        parameters: Sequence[Any] = self.params
        for parameter in parameters:
            if parameter.envvar is None and parameter.name not in (None, "url"):
                parameter.envvar = f"{VARIABLE_PREFIX}{parameter.name.upper()}"
            if getattr(parameter, "multiple", False):
                parameter.split_envvar_value = split_entries

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse the command line."""
        given = list(args)
        try:
            return super().make_context(info_name, args, parent, **extra)
        except Exception as error:  # Typer does not export the class of usage errors
            _name_variables(error)
            if callable(message := getattr(error, "format_message", None)):
                self._refuse(given, message())
            raise

    def _refuse(self, given: Sequence[str], said: str) -> None:
        """Find the files by parsing the command line and the environment leniently."""
        lenient = {"resilient_parsing": True, "ignore_unknown_options": True}
        context = super().make_context(self.name, list(given), None, **lenient)
        read = context.params
        files = GateFiles(summary=read.get("summary"), junit=read.get("junit"))
        files.refuse(_shown_name(read.get("model")), ExitStatus.USAGE, (f"error: {said}",))


def split_entries(text: str) -> list[str]:
    """The entries of a variable, separated by spaces or line breaks; quotes enclose an entry with spaces."""
    return [found["quoted"] or found["word"] for found in _ENTRY.finditer(text)]


def _name_variables(error: Any) -> None:
    """Make a usage error name the variables of an option that has several: Typer would print the list."""
    parameter: Any = getattr(error, "param", None)
    variables = getattr(parameter, "envvar", None)
    if isinstance(variables, list) and error.param_hint is None:
        options = " / ".join(f"'{option}'" for option in parameter.opts)
        error.param_hint = f"{options} (env var: {' or '.join(variables)})"


def _shown_name(model: str | None) -> str:
    """The model, unless an unknown option was parsed in its place."""
    return UNNAMED if model is None or model.startswith("-") else model


def _prepared(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@dataclass(frozen=True)
class Expected:
    """A file of inputs and expected outputs.

    Attributes:
        path: a ``reference.npz``.
        first: the name of the entry point that has no folder of its own in it; empty for the library's first.
        is_golden: whether the user passed --golden. Then outputs that cannot be compared count as wrong.
    """

    path: Path
    is_golden: bool
    first: str = ""

    def check(self) -> None:
        """Check a golden file before compiling. Raises ``InvalidArgumentError`` if it is not valid."""
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

    def compare(self, job: Job) -> tuple[dict[str, OutputChange], tuple[str, ...]]:
        """Run a job's library on the inputs.

        Returns:
            The changes of the outputs by entry point, as far as they are known, and notes.
        """
        names = tuple(job.document.request.entries) or (MAIN_ENTRY,)
        changes: dict[str, OutputChange] = {}
        notes: list[str] = []
        for name in names:
            label = f"{name}: " if len(names) > 1 else ""
            folder = "" if name == (self.first or names[0]) else f"{name}/"
            change, note = self._change(job, name, folder)
            changes.update({} if change is None else {name: change})
            notes += [f"{label}{note}"] if note else []
        return changes, tuple(notes)

    def _has(self, folder: str) -> bool:
        """Whether the file has inputs in a folder; the first one's are required."""
        if not folder:
            return True
        with reading(self.path) as archive:
            return bool(arrays_of(archive, folder + INPUTS))

    def _change(self, job: Job, entry: str, folder: str) -> tuple[OutputChange | None, str]:
        """The change of the outputs of an entry point, if known, and a note, which may be empty."""
        try:
            if not self._has(folder):
                return None, f"the outputs were not compared: {self.path} has none for it"
            change = self._compare(job, entry, folder)
            return change, change.note
        except (InvocationFailedError, RequestRefusedError) as error:
            reason = f"{error.problem.title}: {error.problem.detail}"
        except ArraysError as error:
            reason = str(error)
        if self.is_golden:
            return OutputChange(inf, reason), ""
        return None, f"the outputs were not compared with the base's: {reason}"

    def _compare(self, job: Job, entry: str, folder: str) -> OutputChange:
        self._require_seed(job, entry, folder)
        with tempfile.TemporaryDirectory(prefix="bessemer-") as name:
            inputs, outputs = Path(name) / "inputs.npz", Path(name) / "outputs.npz"
            copy_arrays(self.path, folder + INPUTS, inputs)
            invocation = job.submit_invocation(inputs, runs=0, entry=entry)
            with cancel_on_interrupt(invocation.id, lambda: job.cancel_invocation(invocation.id)):
                ended = job.wait_for_invocation(invocation)
            job.download_outputs(ended, outputs)
            return compare_outputs(self.path, outputs, by_position=not self.is_golden, folder=folder)

    def _require_seed(self, job: Job, entry: str, folder: str) -> None:
        """Refuse to compare random numbers of another seed. Raises ``ArraysError``."""
        report = job.report()
        seeds = {one.name: one.seed for one in report.entries}
        seed = seeds.get(entry, report.seed)
        with reading(self.path) as archive:
            given = arrays_of(archive, folder + INPUTS)
        if seed is not None and given and seed not in given:
            raise ArraysError(
                f"the model draws random numbers, and {self.path} has no seed: add '{folder}{INPUTS}{seed}', "
                "an int64 scalar, and the outputs for it, as in a compilation's reference.npz"
            )


def reference_of(report: Path) -> Path:
    """The file of inputs and outputs beside a report."""
    return report.with_suffix(".npz")


def keep_reference(job: Job, report: Path) -> None:
    """Download a job's reference beside its report, in place of an earlier job's."""
    path = reference_of(report)
    if any(artifact.name == REFERENCE for artifact in job.document.artifacts):
        job.download_artifact(REFERENCE, path)
    else:
        path.unlink(missing_ok=True)
