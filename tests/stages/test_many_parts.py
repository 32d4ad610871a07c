"""Models of many outputs, layers and parameters cost as much as their parts: what grows is counted."""

from collections import Counter
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from stage_samples import TARGET, Function, capture_module, make_context, optimized
from torch.export import ExportGraphSignature
from torch.export.unflatten import _is_call_name
from tvm import relax, tirx
from tvm.relax.dpl import is_op, wildcard

from benchmarks.compile_time.growing_models import GROWING
from worker.compiler.frontend.pt2 import describe
from worker.compiler.layout.pack_linear import pack_linear_weights
from worker.compiler.pipeline.translate import translate
from worker.compiler.rewrites.fold import evaluate_constants, fold_constants
from worker.compiler.rewrites.matching import Finder
from worker.compiler.target import compile_target
from worker.compiler.torch_costs import linear_torch
from worker.compiler.translation.decompositions import decomposed
from worker.compiler.translation.operator_counts import count_operators

SIZES = (8, 16)


@pytest.mark.parametrize("name", ["heads", "parameters", "equal layers"])
def test_reads_of_a_signature_do_not_grow_with_the_program(name: str) -> None:
    few, many = (reads_of_signature(name, count) for count in SIZES)

    assert few == many


def reads_of_signature(name: str, count: int) -> int:
    """How often torch collects the parameters of a program while it decomposes it."""
    model, inputs = GROWING[name](count)
    program = torch.export.export(model.eval(), inputs)
    read = ExportGraphSignature.inputs_to_parameters.fget
    reads: Counter[str] = Counter()

    def counted(signature: ExportGraphSignature) -> object:
        reads["parameters"] += 1
        return read(signature)

    with patch.object(ExportGraphSignature, "inputs_to_parameters", property(counted)):
        decomposed(program)
    return reads["parameters"]


def test_siblings_are_not_searched_for_each_parameter() -> None:
    model, inputs = GROWING["heads"](8)
    program = torch.export.export(model, inputs)

    with patch("torch.export.unflatten._is_call_name", side_effect=_is_call_name) as search:
        loaded = describe(program)

    assert not search.called
    assert [tensor.shape for tensor in loaded.eager(*inputs)] == [(4, 4)] * 8


def test_parameters_reach_every_call_of_a_module() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    program = torch.export.export(model, (torch.randn(1, 4),))
    plain = dict(program.module().named_parameters())

    with linear_torch():
        found = dict(program.module().named_parameters())

    assert found.keys() == plain.keys()
    assert all(found[name] is plain[name] for name in plain)


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["equal layers", "heads", "convolutions", "inputs"])
def test_equal_parts_share_their_functions(name: str, tmp_path: Path) -> None:
    few, many = (count_functions(name, count, tmp_path) for count in SIZES)

    assert few == many


def test_nothing_is_legalized_to_look_for_constants(tmp_path: Path) -> None:
    model, inputs = GROWING["heads"](8)
    module = evaluate_constants(translate(capture_module(model, *inputs), make_context(tmp_path)).module)

    with patch("tvm.relax.transform.FoldConstant") as fold:
        fold_constants(module)

    assert not fold.called


def test_a_pattern_meets_only_calls_of_its_operator(tmp_path: Path) -> None:
    model, inputs = GROWING["heads"](8)
    main = translate(capture_module(model, *inputs), make_context(tmp_path)).module["main"]
    pattern = is_op("relax.add")(wildcard(), wildcard())

    with patch.object(type(pattern), "extract_matched_expr", return_value=None) as match:
        assert not list(Finder(main).find(pattern))

    assert match.call_count == 8


def test_a_constant_expression_is_folded(tmp_path: Path) -> None:
    model = Function(lambda _, x: x + torch.ones(4).exp())
    module = translate(capture_module(model, torch.randn(4)), make_context(tmp_path)).module
    assert count_operators(module)["exp"] == 1

    assert "exp" not in count_operators(fold_constants(module))


def test_equal_linear_layers_write_their_kernel_once(tmp_path: Path) -> None:
    model, inputs = GROWING["equal layers"](8)
    module = evaluate_constants(translate(capture_module(model, *inputs), make_context(tmp_path)).module)
    call_te = relax.BlockBuilder.call_te

    with patch.object(relax.BlockBuilder, "call_te", autospec=True, side_effect=call_te) as write:
        packed = pack_linear_weights(compile_target(TARGET).machine)(module)

    assert write.call_count == 1
    assert count_operators(packed)["call_tir"] == 8


def count_functions(name: str, count: int, folder: Path) -> int:
    """The TensorIR functions of an optimized model."""
    model, inputs = GROWING[name](count)
    module = optimized(capture_module(model, *inputs), make_context(folder)).module
    return sum(isinstance(function, tirx.PrimFunc) for function in module.functions.values())
