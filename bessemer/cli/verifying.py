"""``bessemer verify-bundle``: check a bundle's files, provenance and signature."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from bessemer.cli.output import JsonOption, print_result, reporting
from bessemer.cli.running import unpacked_bundle
from bessemer.client.verifying import BundleVerification, verify_bundle
from bessemer.contract.base import now

SHOWN_CHARACTERS = 16


def verify(
    bundle: Annotated[
        Path, typer.Argument(metavar="BUNDLE", exists=True, help="A bundle's directory, or a bundle.tar.zst.")
    ],
    key: Annotated[
        Path | None,
        typer.Option(
            metavar="PUBLIC.pem",
            help="Public key that must have signed the bundle. Without it, a signature is not checked.",
            dir_okay=False,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Verify that a bundle is complete and unaltered, and with --key who made it. Needs no server.

    Exits with 1 if a file is altered, missing or additional, or if the key did not sign the bundle.
    """
    with reporting(), unpacked_bundle(bundle) as folder:
        found = verify_bundle(folder, key)
    print_result(found, verification_lines(found), json)


def verification_lines(found: BundleVerification) -> Iterator[str]:
    """What was verified."""
    yield f"files       {found.files} match {', '.join(found.lists)}"
    if found.statement is None:
        yield "provenance  none"
    else:
        definition, run = found.statement.predicate.build_definition, found.statement.predicate.run_details
        target = definition.internal_parameters.get("target", {})
        finished = run.metadata.finished_on.astimezone(now().astimezone().tzinfo)
        yield f"model       {found.statement.predicate.model}"
        yield f"target      {target.get('name')} ({target.get('mcpu')}, {target.get('cores')} cores)"
        yield f"made by     compilation {run.metadata.invocation_id}, {finished:%Y-%m-%d %H:%M:%S %Z}"
        yield "with        " + ", ".join(f"{name} {each}" for name, each in run.builder.version.items())
    yield f"signature   {_signature(found)}"


def _signature(found: BundleVerification) -> str:
    if found.verified_key is not None:
        return f"valid, by the key {found.verified_key[:SHOWN_CHARACTERS]}"
    if not found.signed_by:
        return "none"
    names = ", ".join(key[:SHOWN_CHARACTERS] or "unnamed" for key in found.signed_by)
    return f"not checked, by {names}: pass the public key as --key"
