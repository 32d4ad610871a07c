"""A request's options for rewriting."""

import pytest
from pydantic import ValidationError

from bessemer.cli.arguments import read_draft
from bessemer.contract.options import Convolutions, Float32Products, Fusion, OptimizeOptions, VerifyOptions
from bessemer.contract.request import CompilationRequest
from bessemer.contract.tensor import DType


def test_the_command_line_names_rewrites_and_fusion() -> None:
    options = (
        "optimize.enable=linear,ewise_fma", "disable=attention", "fusion=patterns", "convolutions=direct"
    )  # fmt: skip

    request = read_draft(None, (), options).request

    assert request.optimize == OptimizeOptions(
        enable=("linear", "ewise_fma"),
        disable=("attention",),
        fusion=Fusion.PATTERNS,
        convolutions=Convolutions.DIRECT,
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"enable": ("linear",), "disable": ("linear",)}, "in both `enable` and `disable`: linear"),
        ({"enable": ("Not a name",)}, "should match pattern"),
        ({"convolutions": "fast"}, "should be 'automatic' or 'direct'"),
        ({"float32_products": "fast"}, "should be 'exact' or 'tf32'"),
        ({"fusion": "some"}, "should be 'automatic', 'patterns' or 'none'"),
    ],
)
def test_contradictory_options_are_refused(options: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        OptimizeOptions.model_validate(options)


def request_for(target: str, **fields: object) -> CompilationRequest:
    return CompilationRequest.model_validate({"model": "0" * 64, "target": target, **fields})


def test_only_gpus_with_tf32_round_products() -> None:
    rounded = {"float32_products": "tf32"}

    request_for("cuda-sm_90", optimize=rounded)
    with pytest.raises(ValidationError, match="must be `exact` for the target 'host', which is not a GPU"):
        request_for("host", optimize=rounded)
    for target in ("cuda", "cuda-sm_75"):
        with pytest.raises(
            ValidationError, match=f"the target '{target}', which serves sm_75: that has no tf32"
        ):
            request_for(target, optimize=rounded)


@pytest.mark.parametrize(
    ("dtype", "products", "given", "relative"),
    [
        (DType.FLOAT32, Float32Products.EXACT, None, 1e-4),
        (DType.FLOAT32, Float32Products.TF32, None, 1e-2),
        (DType.FLOAT32, Float32Products.TF32, 1e-5, 1e-5),
        (DType.COMPLEX64, Float32Products.TF32, None, 1e-2),
        (DType.FLOAT64, Float32Products.TF32, None, 1e-9),
        (DType.BFLOAT16, Float32Products.TF32, None, 4e-2),
        (DType.INT32, Float32Products.TF32, None, 0),
    ],
)
def test_rounded_products_widen_the_default_tolerance_of_float32(
    dtype: DType, products: Float32Products, given: float | None, relative: float
) -> None:
    request = request_for(
        "cuda-sm_90", optimize={"float32_products": products}, verify=VerifyOptions(relative=given)
    )

    assert request.tolerance(dtype).relative == relative
