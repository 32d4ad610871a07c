"""The command line. ``main`` is the entry point of the ``bessemer`` script."""

from bessemer.quick_imports import quick_imports

__all__ = ["main"]


def main() -> None:
    """Run the command line, and exit with the command's status."""
    with quick_imports():
        from bessemer.cli.application import application

    application(prog_name="bessemer")
