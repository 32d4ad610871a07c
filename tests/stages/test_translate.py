import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from stage_samples import Function, Perceptron, capture_module, make_context
from torch import nn

from bessemer.contract.problem import ErrorCode
from worker.compiler import source_locations as places
from worker.compiler.pipeline.translate import translate
from worker.compiler.source_locations import author_frame
from worker.compiler.translation.importer import Importer
from worker.compiler.translation.operator_counts import count_operators
from worker.compiler.values import StageContext
from worker.errors import JobError, OperatorsUnsupportedError


@pytest.fixture
def context(tmp_path: Path) -> StageContext:
    return make_context(tmp_path)


class Inner(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.bessel_j0(x) + torch.special.airy_ai(x)


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + torch.special.bessel_j0(x)


def test_main_takes_the_inputs_by_their_names_and_parameters_are_bound(context: StageContext) -> None:
    captured = capture_module(Perceptron(), torch.randn(1, 16))

    main = translate(captured, context).module["main"]

    assert [parameter.name for parameter in main.params] == ["input_0"]


def test_operators_are_counted(context: StageContext) -> None:
    translated = translate(capture_module(Perceptron(), torch.randn(1, 16)), context)

    assert translated.operators == {"permute_dims": 2, "matmul": 2, "add": 2, "nn.relu": 1}
    assert translated.operators == count_operators(translated.module)


def test_every_unsupported_operator_is_reported_at_once_with_its_place(context: StageContext) -> None:
    with pytest.raises(OperatorsUnsupportedError) as raised:
        translate(capture_module(Outer(), torch.randn(3, 3)), context)

    places = [(place.operator, place.module_path) for place in raised.value.places]
    assert places == [
        ("aten.special_bessel_j0.default", "inner"),
        ("aten.special_airy_ai.default", "inner"),
        ("aten.special_bessel_j0.default", None),
    ]
    assert all(place.file == __file__ and place.line for place in raised.value.places)
    detail = re.sub(r"\(\S+/test_translate.py:\d+\)", "(line)", raised.value.detail)
    assert detail == (
        "unsupported: aten.special_airy_ai.default in module inner (line), "
        "aten.special_bessel_j0.default in module inner (line) and 1 more place\n"
        "`bessemer check --explain` prints a translation rule to fill in"
    )


def test_an_operator_called_twice_at_one_place_is_reported_once(context: StageContext) -> None:
    def body(_: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return torch.special.bessel_j0(torch.special.bessel_j0(x))

    with pytest.raises(OperatorsUnsupportedError) as raised:
        translate(capture_module(Function(body), torch.randn(3)), context)

    assert len(raised.value.places) == 1


@pytest.mark.parametrize(
    ("body", "advice"),
    [
        (
            lambda _, x: x + torch.rand(3),
            r"aten\.rand\.default draws random numbers in a branch .*: draw them before",
        ),
        (lambda _, x: x + torch.randn_like(x), r"aten\.randn_like\.default draws random numbers"),
        (lambda _, x: nn.functional.dropout(x, 0.5, training=True), r"draws random numbers"),
        (lambda _, x: torch.poisson(x.abs()), r"from an unsupported distribution"),
    ],
    ids=["rand", "randn_like", "dropout", "poisson"],
)
def test_untranslatable_operators_come_with_advice_instead_of_a_rule_template(
    context: StageContext, body: Callable[..., torch.Tensor], advice: str
) -> None:
    with pytest.raises(OperatorsUnsupportedError, match=advice) as raised:
        translate(capture_module(Function(body), torch.randn(3)), context)

    assert raised.value.template == ""
    assert "--explain" not in str(raised.value.problem("translate"))


@pytest.mark.parametrize(
    ("body", "operator"),
    [
        (lambda _, x: torch.as_strided_scatter(x.mT, x[0, :2], (2,), (1,)), "as_strided_scatter"),
        (
            lambda _, x: x.index_put(
                (torch.tensor([1]), torch.tensor([False, True, True, False])), torch.tensor(0.0)
            ),
            "index_put",
        ),
    ],
    ids=["strides of a view", "a mask after an index"],
)
def test_a_decomposition_with_unknown_arguments_names_the_place(
    context: StageContext, body: Callable[..., torch.Tensor], operator: str
) -> None:
    with pytest.raises(
        JobError, match=rf"{operator}\.default \(.*\.py:\d+\) cannot be translated: "
    ) as raised:
        translate(capture_module(Function(body), torch.randn(3, 4)), context)

    assert raised.value.code is ErrorCode.TRANSLATE_FAILED
    assert len(raised.value.places) == 1


def test_a_failure_of_the_importer_names_the_node(context: StageContext) -> None:
    def body(_: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return x.expand(3, 3).as_strided((2,), (1,))

    with pytest.raises(JobError, match=r"aten\.as_strided\.default \(.*\.py:\d+\) cannot be") as raised:
        translate(capture_module(Function(body), torch.randn(3)), context)

    assert raised.value.code is ErrorCode.TRANSLATE_FAILED
    assert len(raised.value.places) == 1


def test_a_signature_that_differs_from_the_models_is_refused(context: StageContext) -> None:
    captured = capture_module(Perceptron(), torch.randn(1, 16))
    wrong = captured.output_specs[0].model_copy(update={"shape": (1, 5)})

    with pytest.raises(JobError, match=r"'output_0' became float32\[1,4\], the model's is float32\[1,5\]"):
        translate(replace(captured, output_specs=(wrong,)), context)


def test_linear_layers_stay_whole(context: StageContext) -> None:
    module = Function(lambda self, x: self.layer(x), layer=nn.Linear(4, 8))

    operators = translate(capture_module(module, torch.randn(2, 3, 4)), context).operators

    assert "reshape" not in operators


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        ("", (None, None)),
        ('  File "/home/me/net.py", line 7, in forward\n    x\n', ("/home/me/net.py", 7)),
        (
            'File "/home/me/net.py", line 7, in forward\nFile "/venv/torch/nn/linear.py", line 125, in f',
            ("/home/me/net.py", 7),
        ),
        ('File "/venv/torch/nn/functional.py", line 1, in f', (None, None)),
        ('File "/home/me/torch_models/net.py", line 3, in f', ("/home/me/torch_models/net.py", 3)),
        ("/home/me/net.py(9): forward\n/venv/torch/nn/modules/module.py(1): f", ("/home/me/net.py", 9)),
        (f'File "{Path(places.__file__).parent}/child.py", line 1, in f', (None, None)),
    ],
)
def test_the_place_in_the_source_is_the_authors_innermost_line(
    trace: str, expected: tuple[str | None, int | None]
) -> None:
    assert author_frame(trace) == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_weight_whose_memory_is_not_aligned_is_copied(dtype: torch.dtype) -> None:
    weight = torch.arange(9).to(dtype)[1:]

    made = Importer._convert_pytorch_tensor_to_tvm(weight)

    assert torch.equal(torch.from_dlpack(made), weight)
