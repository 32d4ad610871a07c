"""Both levels of translation, from exported programs and from FX graphs with every kind of node."""

import operator
from pathlib import Path

import pytest
import torch
from capture_samples import capture_file, exported
from torch import fx, nn
from tvm import relax

from bessemer.contract.options import TranslateOptions, TranslationLevel
from examples.models import EXAMPLES
from examples.models.save import SavedAs, save
from worker.compiler.pipeline.build import build
from worker.compiler.pipeline.optimize import optimize
from worker.compiler.pipeline.translate import translate
from worker.compiler.pipeline.tune import tune
from worker.compiler.pipeline.verify import verify
from worker.compiler.translation.builders import ExpressionBuilder
from worker.compiler.translation.operator_counts import count_operators
from worker.compiler.values import Captured, StageContext, Translated

KINDS = {"placeholder", "get_attr", "call_function", "call_method", "call_module", "output"}
LEVELS = tuple(TranslationLevel)


def mismatches(translated: Translated, context: StageContext) -> list[int]:
    """The differences between library and model."""
    tuned = tune(optimize(translated, context), context)
    return [comparison.mismatches for comparison in verify(build(tuned, context), context).comparisons]


def every_kind_of_node() -> fx.GraphModule:
    """A graph with every kind of node, keyword arguments, and nested tuples and dictionaries."""
    root = nn.Module()
    root.layer = nn.Linear(6, 4)
    root.inner = nn.Module()
    root.inner.scale = nn.Parameter(torch.randn(4))
    root.register_buffer("shift", torch.randn(4))
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.placeholder("y")
    scale, shift = graph.get_attr("inner.scale"), graph.get_attr("shift")
    layer = graph.call_module("layer", (x,))
    scaled = graph.call_function(torch.mul, (layer,), {"other": scale})
    shifted = graph.call_function(torch.add, (scaled, shift), {"alpha": 0.5})
    picked = graph.call_function(operator.getitem, ({"a": shifted, "b": (layer, (scaled,))}, "b"))
    inner = graph.call_function(operator.getitem, (graph.call_function(operator.getitem, (picked, 1)), 0))
    parts = graph.call_method("split", (y,), {"split_size": 2, "dim": 1})
    first = graph.call_function(operator.getitem, (parts, 0))
    joined = graph.call_function(torch.cat, ((shifted, inner, first),), {"dim": 1})
    total = graph.call_method("sum", (joined,), {"dim": -1, "keepdim": True})
    graph.output({"joined": joined, "more": (total, [graph.call_method("relu", (y,))], {"deep": shifted})})
    graph.lint()
    return fx.GraphModule(root, graph)


def captured_graph(folder: Path, level: TranslationLevel) -> Captured:
    module = every_kind_of_node()
    assert {node.op for node in module.graph.nodes} == KINDS
    torch.save(module, folder / "model")
    options = TranslateOptions(level=level)
    return capture_file(folder / "model", "x=3x6", "y=3x5", translate=options)


@pytest.mark.parametrize("level", LEVELS)
def test_an_fx_graph_with_every_kind_of_node_is_right(
    tmp_path: Path, context: StageContext, level: TranslationLevel
) -> None:
    translated = translate(captured_graph(tmp_path, level), context)
    assert mismatches(translated, context) == [0, 0, 0, 0]


@pytest.mark.parametrize(("name", "saved_as"), [("mlp", SavedAs.PT2), ("cnn", SavedAs.FX)])
def test_networks_of_tensor_expressions_are_right(
    tmp_path: Path, context: StageContext, name: str, saved_as: SavedAs
) -> None:
    save(EXAMPLES[name], saved_as, tmp_path / "model")
    options = TranslateOptions(level=TranslationLevel.TENSOR_EXPRESSIONS)
    captured = capture_file(tmp_path / "model", EXAMPLES[name].inputs[0].spec, translate=options)
    translated = translate(captured, context)
    functions = {str(variable.name_hint) for variable in translated.module.get_global_vars()}
    assert {"matmul", "add", "relu"} <= functions
    assert mismatches(translated, context) == [0]


def test_operators_without_an_expression_stay_operators() -> None:
    x = relax.Var("x", relax.TensorType((3, 5), "float32"))
    builder = ExpressionBuilder({})
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.sort(relax.op.exp(x))))
    assert count_operators(builder.get()) == {"call_tir": 1, "sort": 1}


def test_dynamic_sizes_stay_dynamic_in_tensor_expressions(tmp_path: Path, context: StageContext) -> None:
    batch = torch.export.Dim("batch", min=1, max=8)
    model, x = EXAMPLES["mlp"].build(), torch.randn(2, 784)
    path = exported(model, tmp_path / "model", x, dynamic_shapes=({0: batch},))
    options = TranslateOptions(level=TranslationLevel.TENSOR_EXPRESSIONS)
    captured = capture_file(path, translate=options)
    assert captured.samples
    assert set(mismatches(translate(captured, context), context)) == {0}
