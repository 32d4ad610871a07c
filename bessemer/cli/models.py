"""``bessemer inspect``, ``models``, ``extensions`` and ``targets``."""

import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from bessemer.cli.arguments import (
    AfterOption,
    BeforeOption,
    ConstantsOption,
    DimensionsOption,
    EntriesOption,
    InputsOption,
    LimitOption,
    ModelArgument,
    NameOption,
    read_draft,
)
from bessemer.cli.live_view import other_method_lines, upload_view
from bessemer.cli.model_argument import ResolvedModel, resolved_model, submitted, uploaded_model
from bessemer.cli.output import (
    ExitStatus,
    JsonOption,
    UrlOption,
    aligned,
    connected,
    errors,
    first_of,
    print_json,
    print_lines,
    print_result,
    problem_lines,
    results,
    show_lines,
    shown_bytes,
    table,
)
from bessemer.cli.waiting import follow, print_missing_worker
from bessemer.client import Client, Job
from bessemer.client.sources import Progress
from bessemer.contract.dynamic import shown_shape
from bessemer.contract.extension import Extension, ExtensionPage
from bessemer.contract.fleet import OfferedPreset, TargetList
from bessemer.contract.graph import GRAPH, GRAPH_PICTURE, GraphListing, graph_rows
from bessemer.contract.job import JobState
from bessemer.contract.model import Model, ModelFormat, ModelPage, ModelState
from bessemer.contract.problem import ErrorCode
from bessemer.contract.service import Worker
from bessemer.contract.stage import Stage
from bessemer.contract.target import HOST, Preset
from bessemer.errors import InvalidArgumentError, ModelRejectedError, RequestRefusedError

WIDTH = 100
TARGET_HEADINGS = ("target", "build", "verify", "measure", "description")
HEADINGS = ("digest", "name", "state", "format", "parameters", "size", "created")
EXTENSION_HEADINGS = ("digest", "name", "size", "created")


def list_models(
    state: Annotated[ModelState | None, typer.Option(help="Only models in this state.")] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Only models with this name.")] = None,
    model_format: Annotated[
        ModelFormat | None, typer.Option("--format", help="Only models of this format.")
    ] = None,
    after: AfterOption = None,
    before: BeforeOption = None,
    limit: LimitOption = 20,
    json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """List uploaded models, newest first."""
    with connected(url) as client:
        found = client.models(
            state,
            name=name,
            format=model_format,
            created_after=after,
            created_before=before,
        )
        models, more = first_of(found, limit)
        lines = table([_row(model) for model in models], HEADINGS, "no models")
        print_result(ModelPage(items=models), lines, json)
        print_lines(errors, *more)


def list_extensions(limit: LimitOption = 20, json: JsonOption = False, url: UrlOption = None) -> None:
    """List uploaded extensions and files of tuning records, newest first."""
    with connected(url) as client:
        extensions, more = first_of(client.extensions(), limit)
        lines = table([_extension_row(each) for each in extensions], EXTENSION_HEADINGS, "no extensions")
        print_result(ExtensionPage(items=extensions), lines, json)
        print_lines(errors, *more)


def targets(json: JsonOption = False, url: UrlOption = None) -> None:
    """List the targets for compilations, and how the live workers build, verify and measure each."""
    with connected(url) as client:
        found = client.targets()
        print_result(found, target_lines(found, _workers(client)), json)


def _workers(client: Client) -> tuple[Worker, ...] | None:
    """The live workers; None for a key that may not list them."""
    try:
        return client.workers().items
    except RequestRefusedError as error:
        if error.problem.code is ErrorCode.FORBIDDEN:
            return None
        raise


NO_WORKER = "no worker is live, so nothing can be built, verified or measured now"


def target_lines(targets: TargetList, workers: Iterable[Worker] | None = ()) -> Iterator[str]:
    """The presets with what the fleet can do for each, and the processors.

    Args:
        targets: what the server offers.
        workers: the live workers; None if they are unknown.
    """
    live = tuple(workers or ())
    if workers is not None and not live:
        yield NO_WORKER
    rows = [(preset.name, *_means(preset), _described(preset, live)) for preset in targets.items]
    yield from aligned([TARGET_HEADINGS, *rows])
    if not targets.processors:
        return
    yield from ("", "Every LLVM name of a processor is also a target:")
    for level, names in targets.processors.items():
        shown = ", ".join(name for name in names if "_" not in name)
        yield from textwrap.wrap(
            shown,
            WIDTH,
            initial_indent=f"{level:<11}",
            subsequent_indent=" " * 11,
            break_on_hyphens=False,
        )


def _means(preset: OfferedPreset) -> tuple[str, ...]:
    """How the fleet builds, verifies and measures libraries; older servers do not say."""
    fleet = preset.fleet
    if fleet is None:
        return ("?", "?", "?")
    return (fleet.build.value, fleet.verify.value, fleet.measure.value)


def _described(preset: Preset, workers: Iterable[Worker]) -> str:
    """A preset's description; for ``host``, with what it is on the live workers."""
    if preset.name != HOST:
        return preset.description
    found = sorted({f"{one.mcpu} ({one.capability.preset or 'no preset'})" for one in workers})
    return f"{preset.description} Now: {', '.join(found)}." if found else preset.description


def inspect(
    model: ModelArgument,
    graph: Annotated[
        bool,
        typer.Option(
            "--graph", help="Show the model's FX graph with shapes: opcode, name, target, args, value."
        ),
    ] = False,
    inputs: InputsOption = None,
    dimensions: DimensionsOption = None,
    constants: ConstantsOption = None,
    entries: EntriesOption = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="With --graph, write a picture of it here.")
    ] = None,
    name: NameOption = None,
    json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """Upload a model if necessary, and show its format and signature as its file has them, or its FX graph.

    `bessemer check` exports the model: it shows outputs, state, sizes that depend on data and the seed of
    random numbers, and takes --input and --constant.
    """
    console = errors if json else results
    with connected(url) as client:
        if not graph and (inputs or dimensions or constants or entries or output):
            raise InvalidArgumentError("--input, --dimension, --constant, --entry and --output need --graph")
        if graph:
            options = ["inspect.graph=true"]
            draft = read_draft(None, inputs, options, None, dimensions, name, constants, entries)
            job = submitted(client, model, draft.until(Stage.CAPTURE), errors)
            _show_graph(job, output, json)
            return
        with resolved_model(model) as resolved, upload_view(console, Path(model).name) as progress:
            found = _upload(client, resolved, name, progress)
        if found.state is ModelState.INSPECTING:
            print_missing_worker(client, console)
        found = _inspect(client, found, json)
        print_result(found, model_lines(found), json)


def _show_graph(job: Job, output: Path | None, json: bool) -> None:
    """Print the graph of a model, and the problem if the model cannot be exported.

    With ``json``, print the graph as JSON, or the compilation if it has no graph.
    """
    follow(job, errors)
    names = {artifact.name for artifact in job.document.artifacts}
    if GRAPH in names:
        listing = job.graph()
        if output is not None:
            job.download_artifact(GRAPH_PICTURE, output)
        print_result(listing, graph_lines(listing), json)
    elif json:
        print_json(job.document)
    if job.document.problem:
        show_lines(errors, problem_lines(job.document.problem))
    elif GRAPH not in names and job.state is JobState.SUCCEEDED:
        raise InvalidArgumentError(
            "an IRModule has no FX graph: compile it with --option inspect.ir=true, then use "
            "`bessemer ir ID translate --function NAME --tree`"
        )
    if job.state is not JobState.SUCCEEDED:
        raise typer.Exit(ExitStatus.FAILED)


def graph_lines(listing: GraphListing) -> Iterator[str]:
    """The tables of graphs."""
    for graph in listing.items:
        if graph.entry is not None:
            yield f"entry point {graph.entry}"
        yield from aligned(tuple(graph_rows(graph)))
        if graph.note:
            yield graph.note


def _upload(client: Client, model: ResolvedModel, name: str | None, progress: Progress) -> Model:
    if isinstance(model.source, str):
        return uploaded_model(client, model.source)
    return client.upload(model.source, progress, name=name or model.name)


def _inspect(client: Client, model: Model, json: bool) -> Model:
    try:
        return client.inspect(model.digest)
    except ModelRejectedError as error:
        if json:
            print_json(error.model)
        raise


def _row(model: Model) -> tuple[str, ...]:
    found = model.inspection
    return (
        model.digest,
        model.name or "",
        model.state.value,
        found.format.value if found else "",
        str(found.signature.parameters) if found else "",
        shown_bytes(model.size_bytes),
        f"{model.created_at.astimezone():%Y-%m-%d %H:%M:%S}",
    )


def _extension_row(extension: Extension) -> tuple[str, ...]:
    return (
        extension.digest,
        extension.name or "",
        shown_bytes(extension.size_bytes),
        f"{extension.created_at.astimezone():%Y-%m-%d %H:%M:%S}",
    )


def _value_name(name: str, kind: str) -> str:
    """How a request names a value of an argument of a type of TorchScript."""
    inner = kind.removeprefix("Optional[")
    place = {"List": ".0", "Dict": ".KEY"}.get(inner.partition("[")[0], "")
    return name + place


def model_lines(model: Model) -> Iterator[str]:
    """The lines that describe a model: one for each input and constant."""
    yield f"model       {model.digest}"
    if model.name:
        yield f"name        {model.name}"
    yield f"size        {shown_bytes(model.size_bytes)}"
    if model.inspection is None:
        return
    signature = model.inspection.signature
    known = {spec.name: shown_shape(spec, signature.dynamic.inputs) for spec in signature.inputs}
    yield f"format      {model.inspection.format}"
    yield f"parameters  {signature.parameters}"
    for constant in signature.constants:
        value = _value_name(constant.name, constant.type)
        needed = f": pass --constant {value}=VALUE" if constant.required else ", optional"
        yield f"constant    {constant.name} ({constant.type}{needed})"
    containers = {
        each.name: each.type for each in signature.call.arguments if each.structure is None and each.type
    }
    for name in signature.input_names:
        kind = containers.get(name)
        if kind is None:
            yield f"input       {known.get(name, f'{name}=(shape unknown: pass --input)')}"
        else:
            yield f"input       {name} ({kind}: pass --input {_value_name(name, kind)}=SHAPE)"
    if signature.call.arguments and not signature.call.is_flat:
        yield f"call        {signature.call}"
    yield from other_method_lines(model.inspection.other_methods)
    for dimension in signature.dynamic.dimensions:
        yield f"dynamic     {dimension}"
