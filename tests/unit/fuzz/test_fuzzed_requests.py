"""Any JSON is a request, which stays the same when it is written and read, or has errors for its fields."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_values import VALUES, edited
from mutations import mutated
from pydantic import TypeAdapter, ValidationError

from app.http.json_bodies import read_json
from app.http.problems import RefusalError, invalid_problem
from app.http.validation import MAX_ERRORS, field_errors, not_json
from bessemer.contract.dynamic import parse_dimension
from bessemer.contract.group import shown_target
from bessemer.contract.keys import KeyRequest
from bessemer.contract.names import Name, as_name, file_stem, name_of_file
from bessemer.contract.request import CompilationRequest, Submission
from bessemer.contract.target import WORD_PATTERN, target_name
from bessemer.contract.target_names import unknown_part
from bessemer.contract.tensor import parse_input_spec

pytestmark = pytest.mark.fuzz

FULL: dict[str, Any] = {
    "model": "0" * 64,
    "target": {"kind": "llvm", "mcpu": "znver4", "features": ["+avx512vnni"], "cores": 2},
    "inputs": [{"name": "x", "shape": ["batch", 784], "dtype": "float32"}],
    "dimensions": {"batch": {"minimum": 1, "maximum": 64, "example": 8}},
    "translate": {},
    "optimize": {"enable": ["gelu"], "disable": []},
    "parameters": "separate",
    "kernels": {"linear[1x784,784x128,128]": "auto"},
    "tune": {"trials": 16, "seconds": 1.5},
    "verify": {"relative": 1e-3, "absolute": 0, "seed": 3},
    "benchmark": {"seconds": 0.4, "baselines": ["torch-eager"]},
    "inspect": {"ir": True},
    "stop_after": "verify",
    "name": "a model",
    "labels": {"team": "vision"},
    "priority": 5,
    "timeout_seconds": 60,
}
SHORT = {"model": "0" * 64, "target": "host"}
SEVERAL = {"model": "0" * 64, "target": ["host", {"preset": "host", "cores": 4}, "aarch64"]}
REQUESTS = edited(st.sampled_from([FULL, SHORT, SEVERAL]))
WORDS = st.sampled_from(
    [
        *("host", "x86-64-v3", "skylake-avx512", "native", "-", "", "\ud800", "\0"),
        *(
            "cuda",
            "cuda-sm_90",
            "sm_70",
            "nvidia/a10g",
            "rocm",
            "aarch64",
            "riscv64-linux",
            "gnux32",
            "x86_64-unknown-linux-gnu",
        ),
        *("llvm", "llvm -mtriple=", "llvm -mcpu=znver4 -num-cores 4"),
    ]
)
TEXTS = st.text(max_size=80) | st.lists(WORDS | st.text(max_size=4), max_size=3).map("".join)
TARGETS = (
    TEXTS
    | VALUES
    | st.fixed_dictionaries(
        {},
        optional={
            "preset": TEXTS | VALUES,
            "kind": TEXTS,
            "mcpu": TEXTS,
            "triple": TEXTS,
            "features": st.lists(TEXTS.map("+{}".format) | VALUES, max_size=3) | VALUES,
            "cores": VALUES | st.just(4),
        },
    )
)
NAME: TypeAdapter[str] = TypeAdapter(Name)


def parsed(document: object) -> Submission | None:
    """The request; None if the answer is a problem with errors for its fields."""
    try:
        return Submission.model_validate(document)
    except ValidationError as refusal:
        details = [{**detail, "loc": ("body", *detail["loc"])} for detail in refusal.errors()]
    errors = field_errors(details)
    assert 0 < len(errors) <= MAX_ERRORS
    assert len(invalid_problem(errors).model_dump_json().encode()) < 1 << 20
    return None


def assert_stays_the_same(submission: Submission) -> None:
    """Whether the client, the database and a job's order carry it unchanged."""
    sent = submission.model_dump_json(exclude_unset=True)
    assert Submission.model_validate_json(sent) == submission
    for request in submission.for_each_target():
        assert_is_kept(request)


def assert_is_kept(request: CompilationRequest) -> None:
    assert CompilationRequest.model_validate_json(request.model_dump_json()) == request
    stored = json.dumps(request.model_dump(mode="json", exclude_unset=True), allow_nan=False).encode()
    assert CompilationRequest.read(json.loads(stored)) == request


@given(REQUESTS)
def test_a_request_stays_the_same_or_has_errors(document: object) -> None:
    request = parsed(document)
    if request is not None:
        assert_stays_the_same(request)


@given(TARGETS | st.lists(TARGETS | st.sampled_from(["host", "aarch64", "znver4"]), max_size=20))
def test_a_target_is_known_or_has_an_error(target: object) -> None:
    request = parsed({**SHORT, "target": target})
    if request is not None:
        assert_stays_the_same(request)
        for each in request.targets:
            assert target_name(each) and shown_target(each)
            unknown_part(each)


@given(mutated(REQUESTS.map(lambda document: json.dumps(document).encode())) | st.binary())
def test_a_body_is_json_or_has_a_reason(body: bytes) -> None:
    try:
        parsed(read_json(body))
    except (ValueError, RecursionError) as error:
        not_json(error).encode()
    except RefusalError as refusal:
        refusal.problem.model_dump_json()


@given(edited(st.just({"tenant": "vision", "scope": "compile", "name": "ci", "expires_days": 30})))
def test_a_request_for_a_key_stays_the_same_or_is_refused(document: object) -> None:
    try:
        request = KeyRequest.model_validate(document)
    except ValidationError:
        return
    assert KeyRequest.model_validate_json(request.model_dump_json()) == request


@given(st.text() | mutated(st.just(b"x=batchx[index]x3:float32")).map(lambda text: text.decode("latin-1")))
def test_an_input_of_the_command_line_is_written_as_it_is_read(text: str) -> None:
    try:
        spec = parse_input_spec(text)
    except ValueError:
        return
    assert parse_input_spec(str(spec)) == spec


@given(st.text() | mutated(st.just(b"batch=1..64@8")).map(lambda text: text.decode("latin-1")))
def test_a_dimension_of_the_command_line_is_written_as_it_is_read(text: str) -> None:
    try:
        name, dimension = parse_dimension(text)
    except ValueError:
        return
    assert parse_dimension(f"{name}={dimension}") == (name, dimension)


@given(st.text() | TEXTS, st.from_regex(WORD_PATTERN))
def test_a_file_name_becomes_a_name_and_a_name_becomes_a_file_name(text: str, target: str) -> None:
    for name in (name_of_file(text), as_name(text)):
        if name is not None:
            assert NAME.validate_python(name) == name
            stem = file_stem(name, target)
            assert (
                "/" not in stem and "\\" not in stem and len(stem.encode()) <= 120 + 1 + len(target.encode())
            )
