"""``bessemer records``: list, import, export and delete the service's tuning records."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from bessemer.cli.arguments import LimitOption, read_time
from bessemer.cli.output import (
    JsonOption,
    UrlOption,
    connected,
    errors,
    first_of,
    print_lines,
    print_result,
    results,
    table,
)
from bessemer.contract.cost_model import LearnedCostModel, RankedFamily
from bessemer.contract.records import MAX_EXPORTED, RecordPage, TuningRecord
from bessemer.figures.words import percent

HEADINGS = (
    "function",
    "target",
    "threads",
    "space",
    "time",
    "default",
    "won",
    "shared",
    "measured",
    "workload",
)

RANKED_HEADINGS = (
    "family",
    "processor",
    "functions",
    "pairs",
    "learned",
    "family's own",
    "loss, learned",
    "loss, own",
    "used",
)

records = typer.Typer(
    help="List, import, export and delete the service's tuning records: what searches measured.",
    no_args_is_help=True,
)

TargetFilter = Annotated[
    str | None,
    typer.Option("--target", metavar="NAME", help="Only records for this processor or GPU architecture."),
]
ThreadsFilter = Annotated[
    int | None, typer.Option("--threads", min=1, metavar="COUNT", help="Only records of this many threads.")
]
WorkloadFilter = Annotated[
    str | None, typer.Option("--workload", metavar="HASH", help="Only records of this function.")
]
WonFilter = Annotated[
    bool | None, typer.Option("--won/--not-won", help="Only records that won, or only the others.")
]
SinceFilter = Annotated[
    datetime | None,
    typer.Option(
        "--since",
        parser=read_time,
        metavar="TIME",
        help="Only records since this local time: 2026-11-30, 2026-11-30T18:00:00.",
    ),
]


@records.command("list")
def list_records(
    target: TargetFilter = None,
    threads: ThreadsFilter = None,
    workload: WorkloadFilter = None,
    won: WonFilter = None,
    since: SinceFilter = None,
    limit: LimitOption = 20,
    json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """List tuning records, newest first."""
    with connected(url) as client:
        found = client.records(target=target, threads=threads, workload=workload, won=won, since=since)
        items, more = first_of(found, limit)
        page = RecordPage(items=items, next=None)
        print_result(page, table(list(map(_row, page.items)), HEADINGS, "no records"), json)
        print_lines(errors, *more)


@records.command("export")
def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Directory for the two files.")],
    target: TargetFilter = None,
    threads: ThreadsFilter = None,
    workload: WorkloadFilter = None,
    won: WonFilter = None,
    since: SinceFilter = None,
    url: UrlOption = None,
) -> None:
    """Write tuning records, at most 2,000, as a JSON database of TVM's MetaSchedule."""
    with connected(url) as client:
        count = client.export_records(
            folder, target=target, threads=threads, workload=workload, won=won, since=since
        )
        print_lines(results, f"{folder}: {count} records")
        if count >= MAX_EXPORTED:
            print_lines(
                errors, f"an export has at most {MAX_EXPORTED} records: narrow it with --target or --since"
            )


@records.command("import")
def import_records(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A bundle, or a directory with the two files.")
    ],
    shared: Annotated[
        bool, typer.Option("--shared", help="Let other tenants that share records measure these, too.")
    ] = False,
    json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """Store the records of a JSON database of TVM's MetaSchedule."""
    with connected(url) as client:
        found = client.import_records(folder, shared=shared)
        failed = f"; left out {found.failed} without times" if found.failed else ""
        print_result(found, [f"{found.imported} records of {found.functions} functions{failed}"], json)


@records.command("delete")
def delete(
    target: TargetFilter = None,
    threads: ThreadsFilter = None,
    workload: WorkloadFilter = None,
    won: WonFilter = None,
    since: SinceFilter = None,
    every: Annotated[
        bool, typer.Option("--all", help="Delete all of your tenant's records, without conditions.")
    ] = False,
    json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """Delete the tuning records that meet all conditions."""
    conditions = (target, threads, workload, won, since)
    if all(each is None for each in conditions) and not every:
        raise typer.BadParameter("give a condition, or --all to delete every record")
    with connected(url) as client:
        found = client.delete_records(target=target, threads=threads, workload=workload, won=won, since=since)
        print_result(found, [f"{found.deleted} records deleted"], json)


@records.command("model")
def show_model(json: JsonOption = False, url: UrlOption = None) -> None:
    """Show the cost model that learned from your searches, and how well it ranks plans."""
    with connected(url) as client:
        found = client.cost_model()
        print_result(found, cost_model_lines(found), json)


def cost_model_lines(found: LearnedCostModel) -> list[str]:
    """What a cost model was trained on, and its accuracy."""
    trained_at = f"{found.trained_at.astimezone():%Y-%m-%d %H:%M:%S}"
    trained_on = f"{found.plans} plans of {found.functions} functions"
    heading = f"{found.version}, trained {trained_at} on {trained_on}"
    return [heading, *table([_ranked(family) for family in found.families], RANKED_HEADINGS, "")]


def _ranked(family: RankedFamily) -> tuple[str, ...]:
    return (
        family.family,
        family.kind,
        str(family.functions),
        str(family.pairs),
        percent(family.accuracy),
        percent(family.analytic_accuracy),
        percent(family.regret),
        percent(family.analytic_regret),
        "yes" if family.used else "",
    )


def _row(record: TuningRecord) -> tuple[str, ...]:
    return (
        record.function,
        record.target,
        str(record.threads),
        record.space,
        "failed" if record.seconds is None else _shown(record.seconds),
        "" if record.default_seconds is None else _shown(record.default_seconds),
        "yes" if record.won else "",
        "yes" if record.shared else "",
        f"{record.created_at.astimezone():%Y-%m-%d %H:%M:%S}",
        record.workload,
    )


def _shown(seconds: float) -> str:
    return f"{seconds * 1e3:.4g} ms"
