"""``bessemer run``: runs a bundle on this machine."""

import importlib.util
import json as json_module
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from bessemer.cli.output import ExitStatus, JsonOption, errors, reporting, tell
from bessemer.client.unpacking import unpack
from bessemer.errors import InvalidArgumentError

__all__ = ["run"]

RUN_MODULES = ("numpy", "tvm_ffi")


def run(
    bundle: Annotated[
        Path, typer.Argument(metavar="BUNDLE", exists=True, help="A folder, or its bundle.tar.zst.")
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="NAME=FILE.npy",
            help="Once for each input, or one FILE.npz that holds them all; without any, the reference "
            "inputs are run and compared.",
        ),
    ] = None,
    parameters: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.safetensors",
            help="Other weights than the bundle's, where these lie beside the library; "
            "nothing is compared then.",
        ),
    ] = None,
    repeat: Annotated[
        int, typer.Option("--repeat", "--runs", min=0, metavar="N", help="Time so many runs.")
    ] = 0,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE.npz", help="Write the outputs there, by name.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Run a compiled model, without any server."""
    _require_run_extra()
    # apache-tvm-ffi imports torch wherever it is installed: seconds, for nothing that is used here.
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]
    from bessemer.bundle import run as runner

    with reporting(), _unpacked(bundle) as folder:
        try:
            given = runner.read_inputs(inputs or ())
            model = runner.load(folder, parameters)
            outcome = runner.execute(model, given, repeat, compares=parameters is None)
        except (runner.InputError, runner.BundleError) as error:
            tell(errors, f"error: {error}")
            usage = isinstance(error, runner.InputError)
            raise typer.Exit(ExitStatus.USAGE if usage else ExitStatus.FAILED) from error
        if output is not None:
            output.parent.mkdir(parents=True, exist_ok=True)
            runner.save_arrays(output, outcome.outputs)
        text = json_module.dumps(outcome.document(), indent=2) if json else "\n".join(outcome.lines())
        sys.stdout.write(text + "\n")
        raise typer.Exit(outcome.exit_status)


def _require_run_extra() -> None:
    missing = [name for name in RUN_MODULES if importlib.util.find_spec(name) is None]
    if missing:
        tell(errors, f"running a bundle needs {' and '.join(missing)}: pip install 'bessemer[run]'")
        raise typer.Exit(ExitStatus.FAILED)


@contextmanager
def _unpacked(bundle: Path) -> Iterator[Path]:
    if bundle.is_dir():
        yield bundle
        return
    if not bundle.name.endswith(".tar.zst"):
        raise InvalidArgumentError(f"{bundle} is neither a folder nor a bundle.tar.zst")
    with tempfile.TemporaryDirectory(prefix="bessemer-run-") as folder:
        yield unpack(bundle, Path(folder) / "bundle")
