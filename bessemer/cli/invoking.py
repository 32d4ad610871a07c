"""``bessemer invoke``."""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bessemer.cli.arguments import RunEntryOption
from bessemer.cli.jobs import IdArgument
from bessemer.cli.live_view import shown_latency
from bessemer.cli.output import (
    JsonOption,
    UrlOption,
    connected,
    errors,
    print_json,
    print_lines,
    print_result,
    results,
)
from bessemer.cli.waiting import cancel_on_interrupt, print_missing_worker
from bessemer.client import Job
from bessemer.client.invoking import Arrays
from bessemer.contract.invocation import DEFAULT_RUNS, MAX_RUNS, Invocation
from bessemer.errors import InvalidArgumentError, InvocationCancelledError, InvocationFailedError

WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
WHOLE_FILES = frozenset({".npz", ".safetensors"})


def invoke(
    job_id: IdArgument,
    inputs: Annotated[
        list[str],
        typer.Option(
            "--input",
            metavar="NAME=FILE.npy",
            help="One input's array, or a whole number such as a seed; repeat for each input. Or one "
            "FILE.npz or FILE.safetensors with all inputs.",
        ),
    ],
    runs: Annotated[
        int,
        typer.Option("--runs", "--repeat", min=0, max=MAX_RUNS, metavar="N", help="Number of runs to time."),
    ] = (DEFAULT_RUNS),
    entry: RunEntryOption = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npz", dir_okay=False, help="Write the outputs to this file, by name."),
    ] = None,
    json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """Run a compilation's library on a worker with your inputs. Ctrl-C cancels the run."""
    console = errors if json else results
    with connected(url) as client:
        arrays = read_arguments(inputs)
        job = client.job(job_id)
        invocation = job.submit_invocation(arrays, runs, entry)
        cancel = partial(job.cancel_invocation, invocation.id)
        with cancel_on_interrupt(invocation.id, cancel):
            print_lines(console, f"invocation  {invocation.id}")
            print_missing_worker(client, console)
            invocation = _ended(job, invocation, json)
        if output is not None:
            job.download_outputs(invocation, output)
        print_result(invocation, _lines(invocation, output), json)


def _ended(job: Job, invocation: Invocation, json: bool) -> Invocation:
    try:
        return job.wait_for_invocation(invocation)
    except (InvocationFailedError, InvocationCancelledError) as error:
        if json:
            print_json(error.invocation)
        raise


def read_arguments(arguments: Sequence[str]) -> Arrays:
    """Parse ``NAME=FILE.npy`` and ``NAME=7`` arguments, or return the one file with all inputs.

    Raises:
        InvalidArgumentError: an argument has another form, or is repeated.
    """
    if len(arguments) == 1 and Path(arguments[0]).suffix in WHOLE_FILES and "=" not in arguments[0]:
        return Path(arguments[0])
    files: dict[str, Path | int] = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not equals or not name or not path:
            raise InvalidArgumentError(f"'{argument}' is not of the form NAME=FILE.npy")
        if name in files:
            raise InvalidArgumentError(f"input '{name}' is given twice")
        files[name] = int(path) if WHOLE_NUMBER.fullmatch(path) else Path(path)
    return files


def _lines(invocation: Invocation, output: Path | None) -> Iterator[str]:
    for spec in invocation.outputs:
        yield f"output      {spec}"
    if invocation.latency is not None:
        yield f"latency     {shown_latency(invocation.latency, invocation.threads)}"
    if output is not None:
        yield f"outputs     {output}"
