"""Says why nothing happens."""

from rich.console import Console

from bessemer.cli.output import tell
from bessemer.client import Client

__all__ = ["tell_missing_worker"]


def tell_missing_worker(client: Client, console: Console) -> None:
    """Say so where no worker lives: what was asked for waits until one comes."""
    if not client.workers().items:
        tell(console, "queued, waiting for a live worker")
