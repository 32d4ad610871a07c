"""``bessemer show``, ``jobs``, ``logs``, ``cancel``, ``delete``, ``download``, ``ir`` and ``code``."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from bessemer.cli.arguments import AfterOption, BeforeOption, LimitOption, read_labels
from bessemer.cli.groups import exit_unless_succeeded, follow_group, show_group
from bessemer.cli.live_view import compilation_lines
from bessemer.cli.output import (
    JsonOption,
    UrlOption,
    aligned,
    connected,
    errors,
    failure_status,
    first_of,
    print_json,
    print_lines,
    print_result,
    problem_lines,
    results,
    show_lines,
    table,
)
from bessemer.cli.waiting import follow
from bessemer.client import Client, Group, Job
from bessemer.client.ir_tree import tree_lines
from bessemer.contract.base import is_digest, is_digest_prefix
from bessemer.contract.code import CodeKind, CodeListing, listed_name
from bessemer.contract.extension import Extension
from bessemer.contract.group import Group as GroupDocument
from bessemer.contract.invocation import Invocation
from bessemer.contract.ir import IrListing, IrStep
from bessemer.contract.job import Compilation, CompilationPage, JobState
from bessemer.contract.model import Model
from bessemer.contract.names import as_name, shown_labels
from bessemer.errors import BessemerError, InvalidArgumentError, NotFoundError

Found = TypeVar("Found")

HEADINGS = ("id", "name", "state", "stage", "target", "p50", "created", "labels")
COUNTS = ("functions", "kernels", "operators", "calls", "loops")
FUNCTION_HEADINGS = ("function", "calls", "bytes of assembly", "operators")
STEP_HEADINGS = ("step", "stage", "phase", "pass", "ms", *COUNTS, "")

MAX_SHOWN_NAMESAKES = 5

NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID|NAME",
        help="Id of a compilation, a unique prefix of an id, or a name that only one compilation has.",
    ),
]
IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="Id of a compilation, or a unique prefix of it.")
]


def show(
    job_id: NameArgument,
    until_ended: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Show its stages until it ends; exit with 1 unless it succeeds."),
    ] = False,
    json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """Show a compilation or a group, or follow it."""
    with connected(url) as client:
        job = _read_or_group(client, job_id)
        if isinstance(job, Group):
            if until_ended and not job.state.final:
                follow_group(job, errors if json else results)
            show_group(job, json)
            if until_ended:
                exit_unless_succeeded(job.document)
            return
        if until_ended and not job.state.final:
            follow(job, errors if json else results)
        _show(job.document, json)
        if until_ended and job.state is not JobState.SUCCEEDED:
            raise typer.Exit(failure_status(job.document.problem))


def _read_or_group(client: Client, name: str) -> Job | Group:
    """The compilation as ``_read`` finds it, or else the group."""
    try:
        return _read(client, name)
    except NotFoundError:
        group = _unless_missing(client.group, name)
        if group is None:
            raise
    return group


def _read(client: Client, name: str) -> Job:
    """The compilation to read, by its id or a prefix of it, or by a name that no other compilation has."""
    try:
        return client.job(name)
    except NotFoundError:
        found = client.jobs(name=name) if as_name(name) == name else ()
        namesakes = tuple(islice(found, MAX_SHOWN_NAMESAKES + 1))
        if not namesakes:
            raise
    if len(namesakes) == 1:
        return namesakes[0]
    ids = ", ".join(each.id for each in namesakes[:MAX_SHOWN_NAMESAKES])
    more = ", …" if len(namesakes) > MAX_SHOWN_NAMESAKES else ""
    raise InvalidArgumentError(f"several compilations are named '{name}': {ids}{more}; give an id")


def list_jobs(
    state: Annotated[JobState | None, typer.Option(help="Only compilations in this state.")] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only compilations with this name.")
    ] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--label",
            metavar="KEY=VALUE",
            help="Only compilations with this label; KEY alone matches any value.",
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="DIGEST", help="Only compilations of this model.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only compilations for this preset or mcpu.")
    ] = None,
    group: Annotated[str | None, typer.Option(metavar="ID", help="Only compilations of this group.")] = None,
    after: AfterOption = None,
    before: BeforeOption = None,
    limit: LimitOption = 20,
    json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """List compilations, newest first."""
    with connected(url) as client:
        found = client.jobs(
            state,
            name=name,
            labels=read_labels(labels or ()),
            model=model,
            target=target,
            group=group,
            created_after=after,
            created_before=before,
        )
        jobs, more = first_of(found, limit)
        documents = tuple(job.document for job in jobs)
        lines = table([_row(document) for document in documents], HEADINGS, "no compilations")
        print_result(CompilationPage(items=documents), lines, json)
        print_lines(errors, *more)


def cancel(
    job_id: IdArgument,
    invocation_id: Annotated[
        str | None,
        typer.Argument(metavar="INVOCATION", help="Cancel this invocation instead of the compilation."),
    ] = None,
    keep_best: Annotated[
        bool,
        typer.Option("--keep-best", help="End only the search, and deliver the best result so far."),
    ] = False,
    json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """Cancel a compilation, a group or an invocation. A running one ends within seconds."""
    if keep_best and invocation_id is not None:
        raise typer.BadParameter("--keep-best ends the search of a compilation: name no invocation")
    with connected(url) as client:
        if keep_best:
            kept = client.job(job_id).cancel(keep_best=True).document
            is_cancelled = kept.state is JobState.CANCELLED
            ends = "asked to end its search and keep the best so far"
            result = "cancelled: it had found nothing yet" if is_cancelled else ends
            print_result(kept, [f"{kept.id}: {result}"], json)
            return
        document = _cancelled(client, job_id, invocation_id)
        done = document.state is JobState.CANCELLED
        print_result(document, [f"{document.id}: {'cancelled' if done else 'asked to cancel'}"], json)


def _cancelled(
    client: Client, name: str, invocation_id: str | None
) -> Compilation | Invocation | GroupDocument:
    if invocation_id:
        return client.job(name).cancel_invocation(invocation_id)
    return _job_or_group(client, name).cancel().document


def logs(
    job_id: NameArgument,
    until_ended: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new output until the compilation ends.")
    ] = False,
    url: UrlOption = None,
) -> None:
    """Print a compilation's output: the last part while it runs, all of it once it has ended."""
    with connected(url) as client:
        job = _read(client, job_id)
        for line in _lines(job.follow_logs() if until_ended else (job.logs(),)):
            print_lines(results, line)


def delete(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="ID|DIGEST...",
            help="Finished compilations or groups, models or extensions; prefixes work.",
        ),
    ],
    url: UrlOption = None,
) -> None:
    """Delete compilations or groups with their files, or uploaded models and extensions."""
    with connected(url) as client:
        for name in names:
            for found in _named(client, name):
                if isinstance(found, Job | Group):
                    found.delete()
                elif isinstance(found, Model):
                    client.delete_model(found.digest)
                else:
                    client.delete_extension(found.digest)
                print_lines(results, f"{_id_of(found)}: deleted")


def _named(client: Client, name: str) -> Sequence[Job | Group | Model | Extension]:
    """The resources with a name. A prefix must match only one; a digest can name two uploads of one file."""
    found: list[Job | Group | Model | Extension] = []
    if is_digest_prefix(name):
        uploads = (_unless_missing(client.model, name), _unless_missing(client.extension, name))
        found += [upload for upload in uploads if upload is not None]
    if not found:
        return (client.model(name) if is_digest(name) else _job_or_group(client, name),)
    if is_digest(name):
        return found
    job = _unless_missing(client.job, name)
    if job is not None and job.id == name:
        return (job,)
    if job is not None:
        found.append(job)
    if len(found) > 1:
        several = " and ".join(f"{_noun(one)} {_id_of(one)}" for one in found)
        raise InvalidArgumentError(f"'{name}' matches {several}; give more characters")
    return found


def _job_or_group(client: Client, name: str) -> Job | Group:
    try:
        return client.job(name)
    except NotFoundError:
        group = _unless_missing(client.group, name)
        if group is None:
            raise
    return group


def _id_of(found: Job | Group | Model | Extension) -> str:
    return found.id if isinstance(found, Job | Group) else found.digest


def _noun(found: Job | Group | Model | Extension) -> str:
    return "compilation" if isinstance(found, Job) else type(found).__name__.lower()


def _unless_missing(find: Callable[[str], Found], name: str) -> Found | None:
    try:
        return find(name)
    except NotFoundError:
        return None


def download(
    job_id: NameArgument,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Where to unpack the bundle, by default NAME-TARGET-ID. With --artifact: a file, or an "
            "existing directory.",
        ),
    ] = None,
    artifact: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Download this artifact unchanged instead of the bundle."),
    ] = None,
    json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """Download a compilation's bundle, check it and unpack it."""
    with connected(url) as client:
        job = _read(client, job_id)
        if artifact is None:
            path = job.download(output or _folder(job.document))
        else:
            path = job.download_artifact(artifact, _file_of(artifact, output or Path()))
        if json:
            print_json(job.document)
        print_lines(errors if json else results, str(path))


def _folder(document: Compilation) -> Path:
    """The default directory: the name for people, and part of the id to make it unique."""
    stem = document.file_stem
    return Path(document.id if stem is None else f"{stem}-{document.id[:8]}")


def _file_of(artifact: str, output: Path) -> Path:
    return output / Path(artifact).name if output.is_dir() else output


def _lines(pieces: Iterable[str]) -> Iterator[str]:
    """Each line as soon as it is complete, then the rest."""
    rest = ""
    for piece in pieces:
        *whole, rest = (rest + piece).split("\n")
        yield from whole
    if rest:
        yield rest


def _show(document: Compilation, json: bool) -> None:
    print_result(document, compilation_lines(document), json)
    if document.problem and not json:
        show_lines(results, problem_lines(document.problem))


def _stage(document: Compilation) -> str:
    """The queue position, the stage, or the error code; for an early stop, the last stage."""
    if document.problem:
        return document.problem.code.value
    if document.queue:
        return "no worker" if document.queue.waiting_for else f"place {document.queue.position}"
    whole = document.state.final and document.request.makes_bundle
    return document.stage.value if document.stage and not whole else ""


def _row(document: Compilation) -> tuple[str, ...]:
    latency = f"{document.figures.latency.p50_ms:.4g} ms" if document.figures else ""
    return (
        document.id,
        document.name or f"({document.request.model[:12]})",
        document.shown_state,
        _stage(document),
        document.target_name,
        latency,
        f"{document.created_at.astimezone():%Y-%m-%d %H:%M:%S}",
        " ".join(shown_labels(document.request.labels)),
    )


def ir(
    job_id: NameArgument,
    step: Annotated[
        str | None,
        typer.Argument(metavar="STEP", help="Number of a step in the list, or a pass, phase or stage."),
    ] = None,
    diff: Annotated[
        bool, typer.Option("--diff", help="Print the step's changes instead of the whole module.")
    ] = False,
    function: Annotated[
        str | None, typer.Option("--function", metavar="NAME", help="Print only this function.")
    ] = None,
    tree: Annotated[
        bool,
        typer.Option(
            "--tree", help="Print the function's parameters, blocks, bindings, loops and buffers as a tree."
        ),
    ] = False,
    json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """List a compilation's snapshots of the module, or print one of them.

    Compile with --option inspect.ir=true to take snapshots.
    """
    with connected(url) as client:
        if step is None:
            if diff or function or tree:
                option = "--diff" if diff else "--tree" if tree else "--function"
                raise InvalidArgumentError(f"{option} needs a step: bessemer ir ID STEP {option}")
            job = _read(client, job_id)
            _require_ir(job)
            listing = job.ir()
            print_result(listing, step_lines(listing), json)
            return
        if tree and function is None:
            raise InvalidArgumentError("--tree needs a function: bessemer ir ID STEP --function NAME --tree")
        if diff and function is not None:
            raise InvalidArgumentError("--diff compares whole modules; remove --function")
        if json and not tree:
            raise InvalidArgumentError("--json works only for the list and --tree; remove the step")
        job = _read(client, job_id)
        _require_ir(job)
        if function is not None:
            if tree:
                found = job.ir_tree(step, function)
                print_result(found, tree_lines(found), json)
            else:
                _print_module(job.ir_function(step, function))
            return
        text = job.ir_diff(step) if diff else job.ir_text(step)
        if not text:
            print_lines(errors, why_empty(job.ir().named(step)[0], diff))
        _print_module(text)


def _require_ir(job: Job) -> None:
    """Check that a compilation takes snapshots. Raises ``BessemerError``."""
    if not job.document.request.inspect.ir:
        advice = "→ Compile again with `--option inspect.ir=true`."
        raise BessemerError(f"compilation {job.id} kept no IR\n{advice}")


def _require_code(job: Job) -> None:
    """Check that a compilation keeps the functions of its library. Raises ``BessemerError``."""
    inspect = job.document.request.inspect
    if not (inspect.ir or inspect.assembly):
        advice = (
            "→ Compile again with `--option inspect.assembly=true`, which keeps LLVM IR and assembly, or "
            "with `--option inspect.ir=true`, which keeps only the list."
        )
        raise BessemerError(f"compilation {job.id} kept no code\n{advice}")


def code(
    job_id: NameArgument,
    function: Annotated[
        str | None,
        typer.Argument(metavar="FUNCTION", help="A function in the list, to print its assembly or PTX."),
    ] = None,
    llvm: Annotated[bool, typer.Option("--llvm", help="Print LLVM IR instead of assembly.")] = False,
    json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """List a library's functions with the operators that they compute, or print the code of one.

    Compile with --option inspect.assembly=true to keep LLVM IR and assembly, or PTX for a GPU.
    """
    with connected(url) as client:
        job = _read(client, job_id)
        _require_code(job)
        if function is None:
            if llvm:
                raise InvalidArgumentError("--llvm needs a function: bessemer code ID FUNCTION --llvm")
            listing = job.code()
            print_result(listing, function_lines(listing), json)
            return
        if json:
            raise InvalidArgumentError("--json works only for the list; remove the function")
        text = job.code_text(function, CodeKind.LLVM_IR if llvm else _kept_code(job.code(), function))
        if not text:
            print_lines(errors, "no code was kept: compile with --option inspect.assembly=true")
        _print_module(text)


def _kept_code(listing: CodeListing, name: str) -> CodeKind:
    """The form in which a function's machine code is kept."""
    has_ptx = any(each.name == listed_name(name) and each.ptx.text_bytes for each in listing.functions)
    return CodeKind.PTX if has_ptx else CodeKind.ASSEMBLY


def function_lines(listing: CodeListing) -> Iterator[str]:
    """The table of functions."""
    calls = Counter(call.function for call in listing.calls)
    rows = [FUNCTION_HEADINGS]
    for function in listing.functions:
        places = [
            listing.operators[number].place
            for number in function.operators
            if number < len(listing.operators)
        ]
        first = str(places[0]) if places else ""
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        size = str(function.code_bytes or "")
        rows.append((function.name, str(calls[function.name]), size, first + more))
    return aligned(rows)


def _print_module(text: str) -> None:
    """Print a module unchanged; on a terminal, without control characters."""
    if results.is_terminal:
        print_lines(results, *text.splitlines())
    else:
        typer.echo(text, nl=False)


def why_empty(step: IrStep, diff: bool) -> str:
    """Why a step has no text or diff. It goes to standard error, so that a pipe gets an empty diff."""
    if diff and not step.step:
        return f"{step.name} is the first step: there is nothing to compare it with"
    if step.changed and step.truncated:
        return f"step {step.step}, {step.name}: omitted, because the snapshots are too large together"
    return f"unchanged: step {step.step}, {step.name}, left the module as it was"


def step_lines(listing: IrListing) -> Iterator[str]:
    """The table of snapshots."""
    return aligned([STEP_HEADINGS, *map(_step_row, listing.items)])


def _step_row(step: IrStep) -> tuple[str, ...]:
    counts = step.counts
    figures = (counts.functions, counts.kernels, counts.operators, counts.calls, counts.loops)
    milliseconds = f"{step.seconds * 1e3:.1f}"
    note = "" if step.changed else "unchanged"
    return (str(step.step), step.stage.value, step.phase, step.name, milliseconds, *map(str, figures), note)
