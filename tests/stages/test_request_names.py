"""Names in a request that this worker does not know."""

from typing import Any

import pytest
from stage_samples import TARGET

from bessemer.contract.problem import ErrorCode
from bessemer.contract.request import CompilationRequest
from worker.compiler.target import compile_target
from worker.errors import JobError
from worker.job.compilation import check_names


def request(**fields: Any) -> CompilationRequest:
    return CompilationRequest.model_validate({"model": "0" * 64, "target": "host", **fields})


@pytest.mark.parametrize(
    ("fields", "code", "hint"),
    [
        ({"optimize": {"enable": ["gelu_er"]}}, ErrorCode.REWRITE_UNKNOWN, "'gelu_erf'"),
        ({"optimize": {"disable": ["attentions"]}}, ErrorCode.REWRITE_UNKNOWN, "'attention'"),
        ({"kernels": {"linear": "openbls"}}, ErrorCode.KERNEL_UNKNOWN, "'openblas'"),
        ({"kernels": {"linaer": "auto"}}, ErrorCode.KERNEL_UNKNOWN, "'linear'"),
        ({"tune": {"strategy": "replay-trac"}}, ErrorCode.STRATEGY_UNKNOWN, "'replay-trace'"),
        ({"tune": {"trials": 1, "spaces": {"*": "plan"}}}, ErrorCode.SPACE_UNKNOWN, "'plans'"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(
    fields: dict[str, Any], code: ErrorCode, hint: str
) -> None:
    with pytest.raises(JobError, match=f"did you mean {hint}") as caught:
        check_names(request(**fields), compile_target(TARGET))
    assert caught.value.code is code


def test_known_names_pass() -> None:
    check_names(
        request(
            optimize={"enable": ["ewise_fma"], "disable": ["gelu_erf"]},
            kernels={"linear": "auto", "relu": "none"},
        ),
        compile_target(TARGET),
    )
