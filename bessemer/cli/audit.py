"""``bessemer audit``: print the audit log as JSON lines."""

import sys
from typing import Annotated

import typer

from bessemer.cli.output import UrlOption, connected


def audit(
    most: Annotated[
        int | None, typer.Option("--most", min=1, metavar="COUNT", help="Print at most COUNT entries.")
    ] = None,
    url: UrlOption = None,
) -> None:
    """Print the audit log, newest first: one JSON object per line. Needs an administrator's key."""
    with connected(url) as client:
        printed = 0
        before: int | None = None
        while True:
            page = client.audit(before)
            for entry in page.items:
                sys.stdout.write(entry.model_dump_json() + "\n")
                printed += 1
                if printed == most:
                    return
            if page.next is None:
                return
            before = page.next
