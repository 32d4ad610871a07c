"""The FX graphs that a capture keeps for a request."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from capture_samples import capture_file, exported, graph, refusal, scripted
from torch import nn

from bessemer.contract.graph import GRAPH, GRAPH_PICTURE, GraphListing, GraphNode
from bessemer.contract.model import ModelFormat
from bessemer.contract.options import InspectOptions
from bessemer.contract.problem import ErrorCode
from worker.compiler.frontend import graphs

ASKED = InspectOptions(graph=True)
SHAPE = "x=2x4"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x)).chunk(3, dim=1)[0] + 1


def kept(folder: Path) -> GraphListing:
    return GraphListing.model_validate_json((folder / GRAPH).read_text())


def nodes(folder: Path) -> dict[str, GraphNode]:
    (found,) = kept(folder).items
    assert found.total == len(found.nodes)
    return {node.name: node for node in found.nodes}


def test_an_fx_upload_shows_the_graph_that_was_uploaded(tmp_path: Path) -> None:
    capture_file(graph(Net(), tmp_path / "net.fx"), SHAPE, inspect=ASKED)
    found = nodes(tmp_path)
    assert [(node.op, node.target) for node in found.values()] == [
        ("placeholder", "x"),
        ("call_module", "layer"),
        ("call_function", "torch.relu"),
        ("call_method", "chunk"),
        ("call_function", "operator.getitem"),
        ("call_function", "operator.add"),
        ("output", "output"),
    ]
    assert found["layer"].module_path == "layer"
    assert found["layer"].inputs == ("x",)
    assert found["layer"].type == "float32[2, 3]"
    assert found["chunk"].args == "relu, 3, dim=1"
    assert found["chunk"].type == ", ".join(["float32[2, 1]"] * 3)
    assert "layer" in (tmp_path / GRAPH_PICTURE).read_text()


@pytest.mark.parametrize("save", [exported, scripted])
def test_another_format_shows_the_exported_program(
    save: Callable[[nn.Module, Path], Path], tmp_path: Path
) -> None:
    captured = capture_file(save(Net(), tmp_path / "net"), SHAPE, inspect=ASKED)
    found = nodes(tmp_path)
    assert kept(tmp_path).items[0].format is captured.format
    held = {node.parameter: node.type for node in found.values() if node.parameter}
    assert held == {"layer.weight": "float32[3, 4]", "layer.bias": "float32[3]"}
    (linear,) = (node for node in found.values() if node.target == "aten.linear.default")
    assert linear.type == "float32[2, 3]"
    if save is exported:
        assert linear.module_path == "layer"
        assert Path(__file__).name in str(linear.source)


def test_an_fx_graph_that_cannot_be_exported_is_kept(tmp_path: Path) -> None:
    raw = torch.fx.Graph()
    x = raw.placeholder("x")
    raw.call_method("data_ptr", (x,))
    raw.output(raw.call_function(torch.relu, (x,)))
    torch.save(torch.fx.GraphModule(nn.Module(), raw), tmp_path / "net.fx")
    assert refusal(tmp_path / "net.fx", SHAPE, inspect=ASKED).code is ErrorCode.CAPTURE_FAILED
    found = nodes(tmp_path)
    assert [node.op for node in found.values()] == ["placeholder", "call_method", "call_function", "output"]
    assert found["relu"].type == "float32[2, 4]"


def test_a_dynamic_size_is_an_expression(tmp_path: Path) -> None:
    sizes = {"x": {0: torch.export.Dim("batch")}}
    capture_file(exported(Net(), tmp_path / "net.pt2", dynamic_shapes=sizes), inspect=ASKED)
    (shape,) = {node.values[0].shape for node in nodes(tmp_path).values() if node.name == "x"}
    assert isinstance(shape[0], str)
    assert shape[1] == 4


@pytest.mark.parametrize("limit", ["MAX_NODES", "MAX_GRAPH_BYTES"])
def test_a_huge_graph_is_cut_and_says_so(limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, limit, {"MAX_NODES": 2, "MAX_GRAPH_BYTES": 600}[limit])
    capture_file(graph(Net(), tmp_path / "net.fx"), SHAPE, inspect=ASKED)
    (found,) = kept(tmp_path).items
    assert 0 < len(found.nodes) < found.total == 7
    assert found.note in (tmp_path / GRAPH_PICTURE).read_text()


def test_each_entry_point_has_its_graph(tmp_path: Path) -> None:
    entries = {"small": {"inputs": ({"name": "x", "shape": (1, 4)},)}, "large": {}}
    captured = capture_file(graph(Net(), tmp_path / "net.fx"), SHAPE, inspect=ASKED, entries=entries)
    assert captured.format is ModelFormat.FX
    found = kept(tmp_path).items
    assert [(one.entry, one.nodes[0].type) for one in found] == [
        ("small", "float32[1, 4]"),
        ("large", "float32[2, 4]"),
    ]


def test_without_the_option_no_graph_is_kept(tmp_path: Path) -> None:
    capture_file(graph(Net(), tmp_path / "net.fx"), SHAPE)
    assert not (tmp_path / GRAPH).exists()


def test_a_model_that_does_not_run_has_no_graph(tmp_path: Path) -> None:
    found = refusal(graph(Net(), tmp_path / "net.fx"), "x=2x5", inspect=ASKED)
    assert found.code is ErrorCode.MODEL_RAISED
    assert not (tmp_path / GRAPH).exists()
