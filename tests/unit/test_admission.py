"""Whether a request for a compilation can be accepted."""

import pytest
from tensor_samples import tensor

from app.admission import offers_refusal, refusal, time_refusal
from bessemer.contract.base import now
from bessemer.contract.dynamic import DimensionRange, DynamicAxis, DynamicDimension, DynamicShapes
from bessemer.contract.model import ConstantSpec, Inspection, Model, ModelFormat, ModelState, Signature
from bessemer.contract.offers import Offers
from bessemer.contract.problem import ErrorCode, Problem, make_problem
from bessemer.contract.queue import QueueName
from bessemer.contract.request import CompilationRequest, Entry
from bessemer.contract.service import Worker
from bessemer.contract.structure import ArgumentStructure, CallStructure
from bessemer.contract.target import PresetTarget
from bessemer.contract.tensor import parse_input_spec
from tests.workers import some_worker

DIGEST, OTHER = "0" * 64, "1" * 64
KNOWN = Signature(
    inputs=(tensor("ids=1x64:int64"), tensor("mask=1x64:bool")),
    input_names=("ids", "mask"),
    parameters=1,
)
NAMES_ONLY = Signature(input_names=("x", "mask"), parameters=1)
CONTAINERS = Signature(
    input_names=("images",),
    constants=(ConstantSpec(name="sizes", type="List[int]", required=True),),
    call=CallStructure(
        arguments=(
            ArgumentStructure(name="images", type="List[Tensor]"),
            ArgumentStructure(name="sizes", type="List[int]"),
        )
    ),
    parameters=1,
)
NO_INPUTS = Signature(input_names=(), parameters=1)


def ready_model(signature: Signature, format: ModelFormat = ModelFormat.PT2) -> Model:
    return Model(
        digest=DIGEST,
        size_bytes=1,
        state=ModelState.READY,
        inspection=Inspection(format=format, signature=signature),
        created_at=now(),
    )


def request(*inputs: str) -> CompilationRequest:
    specs = tuple(parse_input_spec(text) for text in inputs)
    named = {name: DimensionRange(maximum=8) for spec in specs for name in spec.named_axes.values()}
    return CompilationRequest(
        model=DIGEST, target=PresetTarget(preset="host"), inputs=specs, dimensions=named
    )


def code(problem: Problem | None) -> ErrorCode | None:
    return None if problem is None else problem.code


@pytest.mark.parametrize(
    ("signature", "inputs", "expected"),
    [
        (KNOWN, (), None),
        (KNOWN, ("ids=1x64:int64", "mask=1x64:bool"), None),
        (KNOWN, ("ids=4x32:int64", "mask=4x32:bool"), ErrorCode.INPUTS_MISMATCH),
        (KNOWN, ("ids=1x64:int64",), ErrorCode.INPUTS_MISMATCH),
        (KNOWN, ("mask=1x64:bool", "ids=1x64:int64"), None),
        (KNOWN, ("ids=64:int64", "mask=1x64:bool"), ErrorCode.INPUTS_MISMATCH),
        (KNOWN, ("ids=1x64", "mask=1x64"), None),
        (KNOWN, ("ids=1x64:float32", "mask=1x64:bool"), ErrorCode.INPUTS_MISMATCH),
        (NAMES_ONLY, (), ErrorCode.INPUTS_MISSING),
        (NAMES_ONLY, ("x=1x3",), None),
        (NAMES_ONLY, ("x=1x3", "mask=3:bool"), None),
        (NAMES_ONLY, ("y=1x3",), ErrorCode.INPUTS_MISMATCH),
        (NAMES_ONLY, ("x=1", "mask=1", "more=1"), ErrorCode.INPUTS_MISMATCH),
        (NO_INPUTS, (), None),
        (NO_INPUTS, ("x=1",), ErrorCode.INPUTS_MISMATCH),
    ],
)
def test_inputs_are_checked_against_the_known_signature(
    signature: Signature, inputs: tuple[str, ...], expected: ErrorCode | None
) -> None:
    assert code(refusal(request(*inputs), ready_model(signature))) is expected


def test_values_of_containers_are_accepted_by_name() -> None:
    asked = request("images.0=3x8x8").model_copy(update={"constants": {"sizes.0": 8}})
    assert refusal(asked, ready_model(CONTAINERS)) is None
    assert code(refusal(request("images.0=3"), ready_model(CONTAINERS))) is ErrorCode.CONSTANTS_MISSING
    another = request("images.0=3").model_copy(update={"constants": {"images.1": 8}})
    assert code(refusal(another, ready_model(CONTAINERS))) is ErrorCode.CONSTANTS_MISSING
    unknown = request("image.0=3").model_copy(update={"constants": {"sizes.0": 8}})
    assert code(refusal(unknown, ready_model(CONTAINERS))) is ErrorCode.INPUTS_MISMATCH


def test_a_mismatch_names_the_expected_inputs() -> None:
    problem = refusal(request("ids=64:int8", "mask=1x64:bool"), ready_model(KNOWN))
    assert problem is not None
    assert [error.field for error in problem.errors] == ["inputs[0].shape", "inputs[0].dtype"]
    assert "ids=1x64:int64, mask=1x64:bool" in problem.detail


def test_a_model_that_was_never_uploaded_is_missing() -> None:
    assert code(refusal(request(), None)) is ErrorCode.MODEL_MISSING


def rejected(reason: ErrorCode) -> Model:
    problem = make_problem(reason, "why")
    return Model(digest=DIGEST, size_bytes=1, state=ModelState.REJECTED, problem=problem, created_at=now())


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ({}, ErrorCode.MODEL_MISSING),
        ({OTHER: None}, ErrorCode.MODEL_MISSING),
        ({OTHER: rejected(ErrorCode.MODEL_DAMAGED)}, ErrorCode.MODEL_DAMAGED),
        ({OTHER: ready_model(KNOWN)}, None),
    ],
)
def test_the_model_of_an_entry_is_checked_too(
    others: dict[str, Model | None], expected: ErrorCode | None
) -> None:
    entries = {"prefill": Entry(), "decode": Entry(model=OTHER)}
    wanted = request().model_copy(update={"entries": entries})
    assert code(refusal(wanted, ready_model(KNOWN), others)) is expected


def test_a_model_under_inspection_is_accepted() -> None:
    model = Model(digest=DIGEST, size_bytes=1, state=ModelState.INSPECTING, created_at=now())
    assert refusal(request(), model) is None


def test_a_defective_model_is_refused_with_the_reason_of_its_rejection() -> None:
    problem = refusal(request(), rejected(ErrorCode.MODEL_DAMAGED))
    assert problem is not None
    assert (problem.code, problem.status, problem.detail) == (ErrorCode.MODEL_DAMAGED, 422, "why")


@pytest.mark.parametrize("reason", [ErrorCode.WORKER_LOST, ErrorCode.INTERNAL, ErrorCode.LIMIT_MEMORY])
def test_a_model_whose_inspection_failed_transiently_is_accepted(reason: ErrorCode) -> None:
    assert refusal(request(), rejected(reason)) is None


OPEN = Signature(
    inputs=(tensor("x=4x8"),),
    input_names=("x",),
    parameters=1,
    dynamic=DynamicShapes(
        dimensions=(DynamicDimension(name="x_0", minimum=1, maximum=64),),
        inputs=(DynamicAxis(tensor="x", axis=0, dimension="x_0"),),
    ),
)


@pytest.mark.parametrize(
    ("format", "text", "expected"),
    [
        (ModelFormat.PT2, "x=batchx8", None),
        (ModelFormat.PT2, "x=9x8", None),
        (ModelFormat.PT2, "x=4xwidth", ErrorCode.DYNAMIC_SHAPES_UNSUPPORTED),
        (ModelFormat.PT2, "x=4x9", ErrorCode.INPUTS_MISMATCH),
        (ModelFormat.TORCHSCRIPT, "x=4xwidth", None),
        (ModelFormat.TORCHSCRIPT, "x=4x9", None),
    ],
)
def test_only_an_exported_program_keeps_its_sizes(
    format: ModelFormat, text: str, expected: ErrorCode | None
) -> None:
    assert code(refusal(request(text), ready_model(OPEN, format))) is expected


@pytest.mark.parametrize("size", ["width", "9"])
def test_a_size_that_was_exported_fixed_is_named(size: str) -> None:
    problem = refusal(request(f"x=4x{size}"), ready_model(OPEN))
    assert problem is not None
    assert [error.field for error in problem.errors] == ["inputs[0].shape[1]"]
    assert f"expected 8, not {size}: the export fixed axis 1 of 'x'" in problem.detail


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        (OPEN, "the model has no dimension 'x_1', only 'x_0' (1 to 64); did you mean 'x_0'?"),
        (KNOWN, "the model has no dimension 'x_1': its sizes are fixed. Name sizes in `inputs`"),
    ],
    ids=["dynamic", "fixed"],
)
def test_an_unknown_dimension_is_an_inputs_mismatch(signature: Signature, message: str) -> None:
    asked = request().model_copy(update={"dimensions": {"x_1": DimensionRange(maximum=8)}})
    problem = refusal(asked, ready_model(signature))
    assert problem is not None
    assert problem.code is ErrorCode.INPUTS_MISMATCH
    assert [(error.field, error.message) for error in problem.errors] == [("dimensions", message)]


def worker(limit_seconds: float | None, *queues: QueueName) -> Worker:
    return some_worker(id=str(limit_seconds), limit_seconds=limit_seconds, queues=queues or tuple(QueueName))


@pytest.mark.parametrize(
    ("search_seconds", "workers", "expected"),
    [
        (7200.0, (), None),
        (7200.0, (worker(1800.0),), ErrorCode.REQUEST_INVALID),
        (1800.0, (worker(1800.0),), ErrorCode.REQUEST_INVALID),
        (600.0, (worker(1800.0),), None),
        (7200.0, (worker(1800.0), worker(21600.0)), None),
        (7200.0, (worker(1800.0), worker(None)), None),
        (7200.0, (worker(1800.0), worker(21600.0, QueueName.QUICK)), ErrorCode.REQUEST_INVALID),
    ],
    ids=["no worker", "longer", "as long", "shorter", "one has time", "one has no limit", "other queue"],
)
def test_a_search_longer_than_every_worker_allows_is_refused(
    search_seconds: float, workers: tuple[Worker, ...], expected: ErrorCode | None
) -> None:
    problem = time_refusal(search_seconds, workers)
    assert code(problem) is expected
    assert problem is None or ("1800 s" in problem.detail and problem.errors[0].field == "tune.seconds")


HERE = Offers(
    rewrites=("gelu_erf", "attention"),
    strategies=("evolutionary", "replay-trace"),
    spaces=("course-matmul", "plans"),
    kernels={"linear": ("openblas",), "relu": ("c",)},
)
ELSEWHERE = HERE.model_copy(update={"rewrites": ("mine",)})


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        (
            {"optimize": {"enable": ["attention", "gelu"]}},
            "optimize.enable[1]",
            "unknown rewrite 'gelu'; did you mean 'gelu_erf'? (known: attention, gelu_erf)",
        ),
        (
            {"optimize": {"disable": ["nope"]}},
            "optimize.disable[0]",
            "unknown rewrite 'nope' (known: attention, gelu_erf)",
        ),
        (
            {"tune": {"strategy": "foo"}},
            "tune.strategy",
            "unknown strategy 'foo' (known: evolutionary, replay-trace)",
        ),
        (
            {"tune": {"trials": 8, "spaces": {"*": "plans", "linear": "course"}}},
            "tune.spaces.linear",
            "unknown space 'course'; did you mean 'course-matmul'? (known: course-matmul, plans)",
        ),
        (
            {"kernels": {"relu": "auto", "linear[1x2,2x3,3]": "openbla"}},
            "kernels.linear[1x2,2x3,3]",
            "unknown kernel 'openbla' for 'linear'; did you mean 'openblas'? "
            "(known: linear: openblas; relu: c)",
        ),
        (
            {"kernels": {"conv2d": "none"}},
            "kernels.conv2d",
            "unknown kernel 'none' for 'conv2d' (known: linear: openblas; relu: c)",
        ),
    ],
)
def test_a_name_that_no_worker_knows_is_refused_at_its_field(
    fields: dict[str, object], field: str, message: str
) -> None:
    asked = CompilationRequest.model_validate({"model": DIGEST, "target": "host", **fields})
    problem = offers_refusal(asked, [worker(None).model_copy(update={"offers": HERE})])
    assert problem is not None
    assert [(each.field, each.message) for each in problem.errors] == [(field, message)]


@pytest.mark.parametrize(
    ("offers", "fields"),
    [
        ((), {}),
        ((None,), {}),
        ((HERE, None), {}),
        ((HERE, ELSEWHERE), {}),
        ((HERE,), {"extensions": [OTHER]}),
    ],
    ids=[
        "no worker",
        "a worker that reports no names",
        "one of them",
        "another worker knows it",
        "extensions",
    ],
)
def test_a_name_that_may_be_known_is_accepted(
    offers: tuple[Offers | None, ...], fields: dict[str, object]
) -> None:
    enabled = {"optimize": {"enable": ["mine"]}, **fields}
    asked = CompilationRequest.model_validate({"model": DIGEST, "target": "host", **enabled})
    workers = [worker(None).model_copy(update={"offers": each}) for each in offers]
    assert offers_refusal(asked, workers) is None


@pytest.mark.parametrize(
    ("entries", "field"),
    [
        ({"decode": {"inputs": [{"name": "x", "shape": [1]}]}, "encode": {}}, None),
        ({"forward": {"inputs": [{"name": "y", "shape": [1]}]}}, "inputs[0].name"),
        ({"decode": {}, "other": {}}, "inputs"),
        ({"decode": {}, "other": {"method": "encod"}}, "entries.other.method"),
    ],
)
def test_each_entry_is_checked_against_the_method_that_was_inspected(
    entries: dict[str, object], field: str | None
) -> None:
    model = ready_model(NAMES_ONLY, ModelFormat.TORCHSCRIPT)
    assert model.inspection is not None
    inspection = model.inspection.model_copy(update={"other_methods": ("decode", "encode")})
    asked = CompilationRequest.model_validate({"model": DIGEST, "target": "host", "entries": entries})
    problem = refusal(asked, model.model_copy(update={"inspection": inspection}))
    assert (None if problem is None else problem.errors[0].field) == field


@pytest.mark.parametrize(("name", "refused"), [("encod", True), ("small", False), ("forwar", False)])
def test_an_entry_with_a_name_close_to_a_methods_is_refused(name: str, refused: bool) -> None:
    model = ready_model(NAMES_ONLY, ModelFormat.TORCHSCRIPT)
    assert model.inspection is not None
    inspection = model.inspection.model_copy(update={"other_methods": ("decode", "encode")})
    entries = {name: {"inputs": [{"name": "x", "shape": [1]}]}}
    asked = CompilationRequest.model_validate({"model": DIGEST, "target": "host", "entries": entries})
    problem = refusal(asked, model.model_copy(update={"inspection": inspection}))
    assert (code(problem) is ErrorCode.METHOD_MISSING) is refused
    if problem is not None and refused:
        assert "did you mean 'encode'? encod=forward runs 'forward'" in problem.detail


def test_an_unknown_constant_is_named_with_the_known_ones() -> None:
    asked = request("images.0=3").model_copy(update={"constants": {"size": 8}})
    problem = refusal(asked, ready_model(CONTAINERS))
    assert problem is not None
    assert "The model has no constant size; it has sizes." in problem.detail
