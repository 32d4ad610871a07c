"""Commands that make a request know its fields, for whoever writes ``--trials`` for ``--option trials``."""

from typing import Any

from typer.core import TyperCommand

from bessemer.cli.options import option_paths

__all__ = ["RequestCommand", "fields_named"]


class RequestCommand(TyperCommand):
    """Says how to give a field of the request that was given as an option of its own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line.

        Raises:
            Exception: what cannot be used, as it comes; an unknown option with the fields that it may mean.
        """
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # an unknown option, for which Typer has no name of its own
            if hasattr(error, "possibilities"):
                error.possibilities = fields_named(getattr(error, "option_name", "")) or error.possibilities
            raise


def fields_named(option: str) -> tuple[str, ...]:
    """The fields of a request that have an option's name, such as ``--trials``, as they are to be given."""
    name = option.lstrip("-").replace("-", "_")
    paths = (path for path in option_paths() if name in (path, path.rpartition(".")[2]))
    return tuple(f"--option {path}=…" for path in paths)
