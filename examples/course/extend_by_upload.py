"""Send Python files with a request: rules for modules by class, a library function, and a search space."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bessemer import TuneOptions
from bessemer.client import Client
from bessemer.contract.options import TranslateOptions, TranslationLevel
from examples.course.session import functions_of, run, trained
from examples.extensions import env_functions, module_map, tile_columns

MODULE_MAP, FUNCTIONS, SPACE = (Path(module.__file__) for module in (module_map, env_functions, tile_columns))


def show(client: Client, folder: Path) -> None:
    """Call a NumPy function for each layer of the MLP, then give one function a search space of its own."""
    _show_library_function(client, folder)
    _show_space(client, folder)


def _show_library_function(client: Client, folder: Path) -> None:
    model = trained("mlp", folder)
    job = client.submit(model, target="host", extensions=[MODULE_MAP, FUNCTIONS]).wait()
    report = job.report()
    for extension in report.extensions:
        print(f"{extension.name} defines {extension.defines}")
    print(f"functions of the library: {functions_of(report)}")
    assert [extension.defines for extension in report.extensions] == [
        {"RULES": ("torch.nn.modules.linear.Linear",)},
        {"FUNCTIONS": ("env.linear",)},
    ]
    assert functions_of(report)["env.linear"] == 2
    assert report.functions == ("env.linear",)

    runner = job.download(folder / "functions") / "run.py"
    alone = subprocess.run([sys.executable, runner], capture_output=True, text=True, check=False)
    print(alone.stderr.strip())
    assert "the library calls 'env.linear'" in alone.stderr
    command = [sys.executable, runner, "--functions", FUNCTIONS]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    print(ran.stdout.splitlines()[-1])
    assert "matches the reference" in ran.stdout


def _show_space(client: Client, folder: Path) -> None:
    job = client.submit(
        trained("mlp", folder),
        target="host",
        extensions=[SPACE],
        translate=TranslateOptions(level=TranslationLevel.TENSOR_EXPRESSIONS),
        optimize={"fusion": "none"},
        tune=TuneOptions(trials=4, spaces={"matmul": "tile-columns"}, force=True),
    ).wait()
    tune = job.report().tune
    assert tune is not None
    (task,) = tune.tasks
    print(f"{task.name} in the space {task.space}: {task.trials} trials, {task.found_ms:.4g} ms")
    assert (task.name, task.space, task.kept) == ("matmul", "tile-columns", True)


if __name__ == "__main__":
    run(show)
