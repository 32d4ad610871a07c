"""Shows the findings of a preflight."""

from collections.abc import Iterator

import typer

from bessemer.cli.output import (
    ExitStatus,
    aligned,
    errors,
    problem_lines,
    results,
    show_lines,
    shown_bytes,
    tell,
)
from bessemer.cli.views import other_method_lines
from bessemer.contract.preflight import OperatorUse, Preflight
from bessemer.contract.report import Report

__all__ = ["preflight_lines", "show_preflight"]

SHOWN_OPERATORS = 30


def show_preflight(report: Report, quiet: bool) -> None:
    """Print what a preflight found; ``quiet`` leaves it at what would not compile, on standard error.

    Raises:
        typer.Exit: with status 1, where the model would not compile.
    """
    found = report.preflight
    if found is None:
        return
    if not quiet:
        tell(results, *preflight_lines(found), *other_method_lines(report.other_methods))
    for problem in found.problems:
        show_lines(errors, problem_lines(problem))
    if not found.compiles:
        raise typer.Exit(ExitStatus.FAILED)


def preflight_lines(found: Preflight) -> Iterator[str]:
    """A preflight for a person; its problems are left out."""
    yield f"translates  {'yes' if found.compiles else 'no'}"
    yield f"parameters  {found.parameters:,} ({shown_bytes(found.parameter_bytes)})"
    yield f"work        {found.flops:,} floating-point operations in products and convolutions"
    yield f"activations {shown_bytes(found.peak_activation_bytes)} at most, before fusion"
    shown = sorted(found.operators, key=lambda use: use.supported)[:SHOWN_OPERATORS]
    yield from aligned([("operator", "calls", "flops", ""), *map(_row, shown)])
    if len(found.operators) > SHOWN_OPERATORS:
        yield f"and {len(found.operators) - SHOWN_OPERATORS} further operators: see --json"


def _row(use: OperatorUse) -> tuple[str, ...]:
    flops = f"{use.flops:,}" if use.flops else ""
    return use.name, str(use.calls), flops, "" if use.supported else "UNSUPPORTED"
