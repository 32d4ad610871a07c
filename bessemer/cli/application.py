"""The application with all commands."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import bessemer
from bessemer.cli import (
    audit,
    compiling,
    devices,
    gating,
    generating,
    invoking,
    jobs,
    models,
    running,
    serving,
    usage,
    verifying,
    workers,
)
from bessemer.cli.arguments import RequestCommand
from bessemer.cli.gate_files import GateCommand
from bessemer.cli.keys import keys
from bessemer.cli.records import records


class Commands(TyperGroup):
    """Strips pydantic's prefix from error messages."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise


application = typer.Typer(
    cls=Commands,
    name="bessemer",
    help="Compile PyTorch models to verified, benchmarked libraries.",
    epilog="Exit status: 0 success; 1 failure; 2 usage; 3 no server; 4 to 7 see `gate`; 130, 143 "
    "interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bessemer {bessemer.__version__}")
        raise typer.Exit


@application.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Compile PyTorch models to verified, benchmarked libraries."""


application.command("serve")(serving.serve)
application.command("compile", cls=RequestCommand)(compiling.compile_model)
application.command("gate", cls=GateCommand)(gating.gate)
application.command("check", cls=RequestCommand)(compiling.check)
application.command("show")(jobs.show)
application.command("jobs")(jobs.list_jobs)
application.command("cancel")(jobs.cancel)
application.command("logs")(jobs.logs)
application.command("delete")(jobs.delete)
application.command("download")(jobs.download)
application.command("invoke")(invoking.invoke)
application.command("ir")(jobs.ir)
application.command("code")(jobs.code)
application.command("targets")(models.targets)
application.command("usage")(usage.usage)
application.command("workers")(workers.workers)
application.command("devices")(devices.devices)
application.command("models")(models.list_models)
application.command("extensions")(models.list_extensions)
application.command("inspect")(models.inspect)
application.add_typer(records, name="records")
application.add_typer(keys, name="keys")
application.command("audit")(audit.audit)
application.command("run")(running.run)
application.command("verify-bundle")(verifying.verify)
application.command("generate")(generating.generate)
