"""``bessemer run``: run a bundle on this machine."""

import importlib.util
import json as json_module
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from bessemer.cli.arguments import RunEntryOption
from bessemer.cli.output import ExitStatus, JsonOption, errors, print_lines, reporting
from bessemer.client.unpacking import unpack
from bessemer.errors import InvalidArgumentError

RUN_MODULES = ("numpy", "tvm_ffi")


def run(
    bundle: Annotated[
        Path, typer.Argument(metavar="BUNDLE", exists=True, help="A bundle's directory, or a bundle.tar.zst.")
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="NAME=FILE.npy",
            help="One input's array, or a whole number such as a seed; repeat for each input. Or one "
            "FILE.npz with all inputs. By default, run the reference inputs and compare the outputs.",
        ),
    ] = None,
    parameters: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.safetensors",
            help="Use these weights instead, if the bundle stores its weights beside the library; disables "
            "the comparison.",
        ),
    ] = None,
    functions: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE.py",
            help="Python file with functions that the library calls and lacks; repeat for several.",
        ),
    ] = None,
    entry: RunEntryOption = None,
    repeat: Annotated[
        int, typer.Option("--repeat", "--runs", min=0, metavar="N", help="Number of runs to time.")
    ] = 0,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE.npz", help="Write the outputs to this file, by name.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Run a bundle on this machine, without a server."""
    with reporting(), unpacked_bundle(bundle) as folder, bundle_runner(bool(functions)) as runner:
        for file in functions or ():
            runner.register_functions(file)
        given = runner.read_inputs(inputs or ())
        model = runner.load(folder, parameters)
        outcome = runner.execute(model, given, repeat, parameters is None, entry)
        if output is not None:
            output.parent.mkdir(parents=True, exist_ok=True)
            runner.save_arrays(output, outcome.outputs)
        text = json_module.dumps(outcome.document(), indent=2) if json else "\n".join(outcome.lines())
        sys.stdout.write(text + "\n")
        raise typer.Exit(outcome.exit_status)


@contextmanager
def bundle_runner(may_use_torch: bool = False) -> Iterator[Any]:
    """The module ``run`` of bundles; its errors end the command.

    Args:
        may_use_torch: whether functions of a bundle's user may import torch.

    Raises:
        typer.Exit: a package is missing, the inputs are not valid, or the bundle failed.
    """
    missing = [name for name in RUN_MODULES if importlib.util.find_spec(name) is None]
    if missing:
        print_lines(errors, f"to run a bundle, install {' and '.join(missing)}: pip install 'bessemer[run]'")
        raise typer.Exit(ExitStatus.FAILED)
    if not may_use_torch:
        # apache-tvm-ffi imports torch if it is installed, which takes seconds and is not needed here
        sys.modules.setdefault("torch", None)  # type: ignore[arg-type]
    from bessemer.bundle import run as runner

    try:
        yield runner
    except (runner.InputError, runner.BundleError) as error:
        print_lines(errors, f"error: {error}")
        usage = isinstance(error, runner.InputError)
        raise typer.Exit(ExitStatus.USAGE if usage else ExitStatus.FAILED) from error


@contextmanager
def unpacked_bundle(bundle: Path) -> Iterator[Path]:
    """A bundle's folder; an archive is unpacked while the context lasts."""
    if bundle.is_dir():
        yield bundle
        return
    if not bundle.name.endswith(".tar.zst"):
        raise InvalidArgumentError(f"{bundle} is neither a directory nor a bundle.tar.zst")
    with tempfile.TemporaryDirectory(prefix="bessemer-run-") as folder:
        yield unpack(bundle, Path(folder) / "bundle")
