"""The command line. ``main`` is the entry point of the script ``bessemer``."""

__all__ = ["main"]


def main() -> None:
    """Run the command line; ends the process with the command's exit status."""
    from bessemer.cli.application import application

    application(prog_name="bessemer")
