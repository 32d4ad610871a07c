"""A request's options for rewriting."""

import pytest
from pydantic import ValidationError

from bessemer.cli.arguments import read_draft
from bessemer.contract.options import Convolutions, Fusion, OptimizeOptions


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
        ({"fusion": "some"}, "should be 'automatic', 'patterns' or 'none'"),
    ],
)
def test_contradictory_options_are_refused(options: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        OptimizeOptions.model_validate(options)
