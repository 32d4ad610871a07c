"""The command line. ``main`` is the entry point of the ``bessemer`` script."""

__all__ = ["main"]


def main() -> None:
    """Run the command line, and exit with the command's status."""
    from bessemer.cli.application import application

    application(prog_name="bessemer")
