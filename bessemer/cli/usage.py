"""``bessemer usage``: print what the caller's tenant uses, and its limits."""

from collections.abc import Callable, Iterator

from bessemer.cli.output import JsonOption, UrlOption, connected, print_result, shown_bytes, table
from bessemer.cli.timeline import shown_duration
from bessemer.contract.usage import Usage, Use


def usage(json: JsonOption = False, url: UrlOption = None) -> None:
    """Print what your tenant uses, and its limits."""
    with connected(url) as client:
        found = client.usage()
        print_result(found, table([*usage_rows(found)], (found.tenant, "used", "limit"), ""), json)


def usage_rows(found: Usage) -> Iterator[tuple[str, str, str]]:
    """The rows of the table."""
    yield _row("running jobs", found.running_jobs)
    yield _row("queued jobs", found.queued_jobs)
    yield _row("uploads", found.uploads)
    yield _row("stored files", found.stored_bytes, shown_bytes)
    yield _row("tuning records", found.record_bytes, shown_bytes)
    yield _row("worker time today", found.worker_seconds, shown_duration)
    yield "priority", "", str(found.highest_priority)


def _row(name: str, use: Use, shown: Callable[[int], str] = str) -> tuple[str, str, str]:
    return name, shown(use.used), "unlimited" if use.limit is None else shown(use.limit)
