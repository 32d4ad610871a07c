import pytest

from bessemer.contract.problem import SourcePlace
from worker.compiler.codegen.origin import agree


@pytest.mark.parametrize(
    ("function", "operators", "agrees"),
    [
        ("fused_linear_add_relu", ("aten.linear.default", "aten.relu.default"), True),
        ("fused_conv2d_add_relu", ("aten.convolution.default", "aten.relu.default"), True),
        ("fused_conv2d_winograd1_add3", ("aten.convolution.default",), True),
        ("take", ("aten.embedding.default",), True),
        ("max_pool", ("aten.max_pool2d_with_indices.default",), True),
        ("fused_add_multiply", ("aten.add.Tensor", "aten.mul.Tensor"), True),
        ("attention", ("aten.matmul.default", "aten._softmax.default", "aten.view.default"), True),
        ("attention", ("aten.scaled_dot_product_attention.default",), True),
        ("fused_linear_add", ("aten.embedding.default", "aten.add.Tensor"), False),
        ("fused_linear_add", ("aten.add.Tensor",), False),
        ("fused_add_add1", ("aten.linear.default", "aten.add.Tensor"), False),
        ("reshape", ("aten.convolution.default", "aten.view.default"), False),
        ("layer_norm", ("aten.native_layer_norm.default",), True),
        ("layer_norm", (), False),
    ],
)
def test_operators_agree_with_the_name_of_their_function(
    function: str, operators: tuple[str, ...], agrees: bool
) -> None:
    places = tuple(SourcePlace(operator=name) for name in operators)

    assert agree(function, places) == agrees
