"""The command line shows graphs, snapshots and trees."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard
from client_samples import FakeWorker
from test_cli_server import ROOT, bessemer, newest

from bessemer.client import Client
from bessemer.contract.graph import GraphListing, GraphNode, GraphValue, ModelGraph
from bessemer.contract.ir import IrCounts, IrListing, IrStep, IrText
from bessemer.contract.job import Compilation
from bessemer.contract.model import ModelFormat
from bessemer.contract.options import InspectOptions
from bessemer.contract.stage import Stage

MODULE = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), dtype="float32")) -> R.Tensor((4,), dtype="float32"):
        with R.dataflow():
            y = R.add(x, x)
            R.output(y)
        return y
"""
TREE = """\
relax function main -> R.Tensor((4,), dtype='float32')
  parameter x: R.Tensor((4,), dtype='float32')
  dataflow
    y = R.add(x, x)
    outputs y
  result y
"""
FRAME = zstandard.compress(MODULE.encode())
TEXT = IrText(offset=0, packed_bytes=len(FRAME), text_bytes=len(MODULE.encode()))
NOTHING = IrText(offset=0, packed_bytes=0, text_bytes=0)
COUNTS = IrCounts.model_validate(dict.fromkeys(IrCounts.model_fields, 1))


def step(number: int, stage: Stage, name: str, changed: bool) -> IrStep:
    return IrStep(
        step=number,
        stage=stage,
        phase=stage.value,
        name=name,
        seconds=0.1,
        changed=changed,
        counts=COUNTS,
        text=TEXT,
        diff=NOTHING,
    )


STEPS = (
    step(0, Stage.TRANSLATE, "translate", changed=True),
    step(1, Stage.OPTIMIZE, "FoldConstant", changed=False),
    step(2, Stage.OPTIMIZE, "FoldConstant", changed=False),
    step(3, Stage.TUNE, "Schedule", changed=False),
)
NODE = GraphNode(
    name="relu",
    op="call_function",
    target="torch.relu",
    args="x",
    inputs=("x",),
    values=(GraphValue(shape=(4,), dtype="float32"),),
)
GRAPH = GraphListing(items=(ModelGraph(format=ModelFormat.FX, total=9, nodes=(NODE,)),))


@pytest.fixture
def job(client: Client, fake_worker: FakeWorker, model: Path) -> str:
    job = client.submit(model, inputs={"x": (1, 784)}, inspect=InspectOptions(ir=True))
    fake_worker.fail(job.id, ir_json=IrListing(items=STEPS).model_dump_json().encode(), ir_zst=FRAME)
    return job.id


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("arguments", "status", "printed", "said"),
    [
        (("translate",), 0, MODULE, ""),
        (("SCHEDULE", "--function", "main", "--tree"), 0, TREE, ""),
        (("3", "--diff"), 0, "", "unchanged: step 3, Schedule, left the module as it was"),
        (("translate", "--diff"), 0, "", "translate is the first step"),
        (("foldconstant",), 1, "", "use a number instead: 1 (FoldConstant), 2 (FoldConstant)"),
        (("shedule",), 1, "", "did you mean 'Schedule'?"),
        (("tune", "--function", "mian"), 2, "", "did you mean 'main'?"),
        (("tune", "--tree"), 2, "", "--tree needs a function"),
        (("tune", "--json"), 2, "", "--json works only for the list and --tree"),
        (("tune", "--diff", "--function", "main"), 2, "", "--diff compares whole modules"),
        (("--tree",), 2, "", "--tree needs a step"),
    ],
)
def test_a_snapshot_is_shown_by_name(
    server: str, job: str, arguments: tuple[str, ...], status: int, printed: str, said: str
) -> None:
    ran = bessemer(server, "ir", job, *arguments)
    assert (ran.returncode, ran.stdout) == (status, printed), ran.stderr
    assert said in ran.stderr


def test_one_function_and_its_tree_are_read_by_programs(server: str, client: Client, job: str) -> None:
    assert bessemer(server, "ir", job, "tune", "--function", "main").stdout.startswith("@R.function\n")
    printed = json.loads(bessemer(server, "ir", job, "tune", "--function", "main", "--tree", "--json").stdout)
    tree = client.job(job).ir_tree("tune", "main")
    assert printed == tree.model_dump(mode="json")
    assert [node.kind for node in tree.body] == ["parameter", "dataflow", "result"]


def test_inspect_shows_the_graph_and_writes_its_picture(
    server: str, client: Client, fake_worker: FakeWorker, model: Path, tmp_path: Path
) -> None:
    picture = tmp_path / "drawn.svg"
    command = [sys.executable, "-m", "bessemer.cli", "inspect", str(model), "--graph", "--input", "x=1x784"]
    with subprocess.Popen(
        [*command, "--output", str(picture), "--url", server],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        job = client.job(newest(client, None))
        assert job.document.request.inspect.graph
        assert job.document.request.stop_after is Stage.CAPTURE
        fake_worker.fail(job.id, graph_json=GRAPH.model_dump_json().encode(), graph_svg=b"<svg/>")
        printed, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert [line.split() for line in printed.splitlines()] == [
        ["opcode", "name", "target", "args", "value", "module", "source"],
        ["call_function", "relu", "torch.relu", "x", "float32[4]"],
        ["cut:", "8", "of", "9", "nodes", "are", "not", "shown"],
    ]
    assert "aten.foo has no translation" in said
    assert picture.read_bytes() == b"<svg/>"


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_without_a_graph_an_inspection_prints_the_compilation_as_json(
    server: str, client: Client, fake_worker: FakeWorker, model: Path, is_cancelled: bool
) -> None:
    command = [sys.executable, "-m", "bessemer.cli", "inspect", str(model), "--graph", "--json"]
    with subprocess.Popen(
        [*command, "--url", server], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        job = client.job(newest(client, None))
        if is_cancelled:
            job.cancel()
        else:
            fake_worker.fail(job.id)
        printed, said = process.communicate(timeout=60)
    assert process.returncode == 1
    document = Compilation.model_validate_json(printed)
    assert (document.id, document.state) == (job.id, "cancelled" if is_cancelled else "failed")
    assert ("aten.foo has no translation" in said) == (not is_cancelled)
    assert "no FX graph" not in said


def test_inputs_of_an_inspection_need_the_graph(server: str, model: Path) -> None:
    ran = bessemer(server, "inspect", model, "--input", "x=1x784")
    assert ran.returncode == 2
    assert "need --graph" in ran.stderr
