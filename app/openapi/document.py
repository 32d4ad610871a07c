"""The OpenAPI document: examples, and the problems of each route."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from app.http.problems import PROBLEM_MEDIA_TYPE
from app.identity.scopes import required_scope
from bessemer.contract.capability import Capability
from bessemer.contract.code import CodeCall, CodeFunction, CodeListing, CodeOperator
from bessemer.contract.device import Device, DeviceRequest
from bessemer.contract.extension import Extension, ExtensionPage
from bessemer.contract.group import Group, group_of
from bessemer.contract.invocation import OUTPUTS, Invocation, InvocationPage
from bessemer.contract.ir import IrCounts, IrListing, IrStep, IrText
from bessemer.contract.job import Artifact, Compilation, CompilationPage, JobState
from bessemer.contract.model import Inspection, Model, ModelFormat, ModelPage, ModelState, Signature
from bessemer.contract.offers import Offers
from bessemer.contract.options import STRATEGIES, TuneOptions
from bessemer.contract.problem import ERRORS, ErrorCode, FieldError, Problem, SourcePlace, make_problem
from bessemer.contract.queue import QueueName, QueuePlace, TaskKind
from bessemer.contract.report import Latency
from bessemer.contract.request import CompilationRequest
from bessemer.contract.sandbox import SandboxMode, SandboxStatus
from bessemer.contract.service import RunningTask, Worker, WorkerList
from bessemer.contract.stage import Stage
from bessemer.contract.target import PresetTarget
from bessemer.contract.tensor import DType, TensorSpec
from bessemer.contract.usage import Usage, Use

Responses = dict[int | str, dict[str, Any]]

_DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
OTHER_DIGEST = "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"
_AT = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
_IMAGE = TensorSpec(name="x", shape=(1, 784), dtype=DType.FLOAT32)

REQUEST = CompilationRequest(
    model=_DIGEST, target=PresetTarget(preset="x86-64-v3"), inputs=(_IMAGE,), tune=TuneOptions(trials=64)
)
COMPILATION = Compilation(
    id="2c26b46b68ffc68ff99b453c1d304134",
    state=JobState.QUEUED,
    request=REQUEST,
    queue=QueuePlace(
        name=QueueName.COMPILE,
        position=4,
        ahead=3,
        workers=2,
        estimated_start_seconds=21.5,
        explanation="estimate: 3 ahead, 2 workers, and the last 50 took, in the median, 12.4 s",
        waiting_for=None,
    ),
    created_at=_AT,
)
CACHED = COMPILATION.model_copy(
    update={
        "id": "fb2fa3a0b4bb4f5f8a0d2d8a5c1c7a11",
        "state": JobState.SUCCEEDED,
        "queue": None,
        "cached": True,
        "original": COMPILATION.id,
        "verified": True,
        "finished_at": _AT,
    }
)
GROUP_ID = "b51c5a3f0f3e4d0b8a2f6c1d7e9a0b4c"
CANCELLED = COMPILATION.model_copy(
    update={"state": JobState.CANCELLED, "queue": None, "finished_at": _AT + timedelta(seconds=2)}
)
_TAKEN = {"attempt": 1, "worker": "build-1-3f2a9c1e", "started_at": _AT + timedelta(seconds=1)}
RUNNING = COMPILATION.model_copy(
    update={"state": JobState.RUNNING, "queue": None, "stage": Stage.TUNE, **_TAKEN}
)
IR = IrListing(
    items=(
        IrStep(
            step=0,
            stage=Stage.TRANSLATE,
            phase="translate",
            name="translate",
            seconds=0.21,
            changed=True,
            counts=IrCounts(
                functions=1,
                kernels=0,
                operators=6,
                calls=0,
                blocks=0,
                loops=0,
                constants=4,
                constant_bytes=407_080,
            ),
            text=IrText(offset=0, packed_bytes=672, text_bytes=2199),
            diff=IrText(offset=0, packed_bytes=0, text_bytes=0),
        ),
    )
)
CODE = CodeListing(
    functions=(
        CodeFunction(
            name="fused_linear_relu",
            operators=(0, 1),
            llvm_ir=IrText(offset=0, packed_bytes=2310, text_bytes=11_482),
            assembly=IrText(offset=2310, packed_bytes=1871, text_bytes=8_204),
        ),
    ),
    calls=(CodeCall(function="fused_linear_relu", inputs=(), operators=(0, 1)),),
    operators=(
        CodeOperator(
            name="linear",
            place=SourcePlace(
                operator="aten.linear.default", module_path="layers.0", file="/models/mlp.py", line=17
            ),
            value="float32[1, 128]",
        ),
        CodeOperator(
            name="relu",
            place=SourcePlace(
                operator="aten.relu.default", module_path="layers.1", file="/models/mlp.py", line=17
            ),
            value="float32[1, 128]",
            inputs=(0,),
        ),
    ),
)
PAGE = CompilationPage(items=(COMPILATION,))


def _group(job: Compilation) -> Group:
    """A group of two compilations like this one."""
    members = ((job.id, "host"), ("9a271f2a916b0b6ee6cecb2426f0b320", "aarch64"))
    requests = (job.request.model_copy(update={"target": PresetTarget(preset=name)}) for _, name in members)
    return group_of(
        tuple(
            job.model_copy(update={"id": job_id, "group": GROUP_ID, "request": request})
            for (job_id, _), request in zip(members, requests, strict=True)
        )
    )


GROUP, RUNNING_GROUP, CANCELLED_GROUP, CACHED_GROUP = map(_group, (COMPILATION, RUNNING, CANCELLED, CACHED))
NEW_INVOCATION = Invocation(
    id="fcde2b2edba56bf408601fb721fe9b5c",
    compilation=COMPILATION.id,
    state=JobState.QUEUED,
    inputs=_DIGEST,
    inputs_bytes=3386,
    runs=10,
    created_at=_AT,
)
RUNNING_INVOCATION = NEW_INVOCATION.model_copy(update={"state": JobState.RUNNING, **_TAKEN})
CANCELLED_INVOCATION = NEW_INVOCATION.model_copy(
    update={"state": JobState.CANCELLED, "finished_at": _AT + timedelta(seconds=2)}
)
INVOCATION = RUNNING_INVOCATION.model_copy(
    update={
        "state": JobState.SUCCEEDED,
        "threads": 2,
        "latency": Latency(
            runs=10, min_ms=0.008, p50_ms=0.009, p90_ms=0.01, p99_ms=0.012, mean_ms=0.0092, stddev_ms=0.001
        ),
        "outputs": (TensorSpec(name="output", shape=(1, 10), dtype=DType.FLOAT32),),
        "artifact": Artifact(name=OUTPUTS, digest=_DIGEST, size_bytes=296, media_type="application/zip"),
        "finished_at": _AT + timedelta(seconds=2),
    }
)
INVOCATIONS = InvocationPage(items=(INVOCATION,))
MODEL = Model(
    digest=_DIGEST,
    size_bytes=408_576,
    state=ModelState.READY,
    inspection=Inspection(
        format=ModelFormat.PT2,
        signature=Signature(inputs=(_IMAGE,), input_names=("x",), parameters=101_770),
    ),
    created_at=_AT,
)
NEW_MODEL = MODEL.model_copy(update={"state": ModelState.INSPECTING, "inspection": None})
MODELS = ModelPage(items=(MODEL,))
EXTENSION = Extension(digest=OTHER_DIGEST, name="my_rewrites.py", size_bytes=612, created_at=_AT)
EXTENSIONS = ExtensionPage(items=(EXTENSION,))
DEVICE_REQUEST = DeviceRequest(
    name="pi-4",
    platform="aarch64",
    processor="ARM Cortex-A72 (Raspberry Pi 4 Model B)",
    features=("fp", "asimd", "crc32"),
    cores=4,
    memory_bytes=8_589_934_592,
    libc="glibc 2.36",
)
DEVICE = Device(
    **DEVICE_REQUEST.model_dump(),
    id="8277e0910d750195b448797616e091ad",
    shared=False,
    registered_at=_AT,
    seen_at=_AT,
    lease_seconds=30.0,
)
WORKERS = WorkerList(
    items=(
        Worker(
            id="build-1-3f2a9c1e",
            host="build-1",
            processor="AMD EPYC 9R14",
            mcpu="znver4",
            cores=8,
            limit_seconds=1800.0,
            versions={"bessemer": "0.1.0", "torch": "2.13.0", "apache-tvm": "0.27.0.post1"},
            sandbox=SandboxStatus(mode=SandboxMode.REQUIRED, layers=()),
            running=(
                RunningTask(
                    kind=TaskKind.COMPILE,
                    id=COMPILATION.id,
                    began_at=_AT,
                    stage=Stage.TUNE,
                    stage_began_at=_AT + timedelta(seconds=4),
                ),
            ),
            capability=Capability(
                architecture="x86_64",
                preset="znver4",
                foreign=("aarch64", "riscv64"),
                programs=("aarch64", "riscv64"),
                processors={"sapphirerapids": ("amx-bf16", "amx-int8", "amx-tile", "avx512fp16")},
                lacking=("amx-bf16", "amx-int8", "amx-tile", "avx512fp16"),
                dependents={"amx-tile": ("amx-bf16", "amx-int8")},
            ),
            offers=Offers(
                rewrites=("gelu_erf", "layer_norm", "attention"),
                strategies=STRATEGIES,
                spaces=("plans", "metaschedule"),
                kernels={"linear": ("openblas",)},
            ),
            seen_at=_AT + timedelta(seconds=9),
        ),
    )
)

USAGE = Usage(
    tenant="vision",
    running_jobs=Use(used=2, limit=4),
    queued_jobs=Use(used=17, limit=1000),
    uploads=Use(used=0, limit=16),
    stored_bytes=Use(used=73_400_320, limit=10_737_418_240),
    record_bytes=Use(used=2_621_440, limit=268_435_456),
    worker_seconds=Use(used=5120, limit=None),
    highest_priority=100,
    day_ends_at=datetime(2026, 1, 2, tzinfo=UTC),
)


EXAMPLE_URL = "http://127.0.0.1:8000"
"""The service's address in commands. A page that the service itself shows has its own address instead."""


def file_upload(description: str, file: str, address: str, method: str = "POST") -> dict[str, Any]:
    """The body of a route that takes a file, with the command that sends one.

    Args:
        description: describes the file.
        file: an example of its name.
        address: the route's path.
        method: the route's method.
    """
    sent = f"--upload-file {file}" if method == "PUT" else f"--data-binary @{file}"
    command = f"curl {sent} {EXAMPLE_URL}{address}"
    example = {"summary": f"`{command}`", "value": f"(the bytes of {file})"}
    content = {"schema": {"type": "string", "format": "binary"}, "examples": {file: example}}
    return {
        "requestBody": {
            "required": True,
            "description": description,
            "content": {"application/octet-stream": content},
        }
    }


ACCEPTED = 202
NOT_MODIFIED = {"description": "The client has this version: `If-None-Match` matches."}
LOOKUP = (ErrorCode.NOT_FOUND, ErrorCode.ID_AMBIGUOUS, ErrorCode.REQUEST_INVALID)
"""The errors of a route with an id in its path."""

EVERYWHERE = (ErrorCode.INTERNAL, ErrorCode.UNAVAILABLE)


def problems(*codes: ErrorCode) -> Responses:
    """The problem responses of a route by status, including the ones that every route has."""
    by_status: dict[int, list[ErrorCode]] = {}
    for code in (*codes, *EVERYWHERE):
        by_status.setdefault(ERRORS[code].status, []).append(code)
    return {status: _problem_response(tuple(group)) for status, group in by_status.items()}


def answer(status: int, description: str, example: BaseModel, location: str | None = None) -> Responses:
    """A successful response, with an example."""
    document: dict[str, Any] = {
        "description": description,
        "content": {"application/json": {"example": example.model_dump(mode="json")}},
        "model": type(example),
    }
    if location is not None:
        document["headers"] = {"Location": _header(location)}
    if status == ACCEPTED:
        document.setdefault("headers", {})["Retry-After"] = _header("Seconds to wait before polling.")
    return {status: document}


def one_of(
    status: int, description: str, examples: Mapping[str, BaseModel], location: str, model: Any = None
) -> Responses:
    """A response that is one of several documents, with an example of each.

    ``model`` is their union; None for the route's main response, to which FastAPI adds it.
    """
    document = answer(status, description, next(iter(examples.values())), location)[status]
    shown = {name: {"value": example.model_dump(mode="json")} for name, example in examples.items()}
    content = {"content": {"application/json": {"examples": shown}}}
    given = {} if model is None else {"model": model}
    return {status: {name: part for name, part in document.items() if name != "model"} | content | given}


def described(status: int, description: str, content: dict[str, Any] | None = None) -> Responses:
    """A response without a document: a stream, a file, or an empty body."""
    return {status: {"description": description} | ({"content": content} if content else {})}


def _header(description: str, kind: str = "string") -> dict[str, Any]:
    return {"description": description, "schema": {"type": kind}}


def _problem_response(codes: tuple[ErrorCode, ...]) -> dict[str, Any]:
    examples = {
        code.value: {
            "summary": ERRORS[code].title,
            "value": _example(code).model_dump(mode="json"),
        }
        for code in codes
    }
    return {
        "description": "; ".join(ERRORS[code].title for code in codes),
        "content": {
            PROBLEM_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}, "examples": examples}
        },
    }


def _example(code: ErrorCode) -> Problem:
    if code is not ErrorCode.REQUEST_INVALID:
        return make_problem(code, "What is wrong, and where.")
    wrong = FieldError(field="tune.trial", message="unknown field; did you mean 'trials'?")
    return make_problem(code, f"{wrong.field}: {wrong.message}", errors=(wrong,))


def install(app: FastAPI) -> None:
    """Add defaults, entity tags and the license to the app's OpenAPI document."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(
                title=app.title,
                version=app.version,
                summary=app.summary,
                description=app.description,
                tags=app.openapi_tags,
                routes=app.routes,
                license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
            )
            app.openapi_schema = _with_access(_with_conditions(_with_null_defaults(document)))
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _with_null_defaults(document: dict[str, Any]) -> dict[str, Any]:
    """Restore null as the default of optional fields, which FastAPI omits."""
    for schema in document["components"]["schemas"].values():
        for name, field in schema.get("properties", {}).items():
            if name not in schema.get("required", ()):
                field.setdefault("default", None)
    for path in document["paths"].values():
        for operation in path.values():
            for parameter in operation.get("parameters", ()):
                if not parameter.get("required", False):
                    parameter["schema"].setdefault("default", None)
    return document


def _with_conditions(document: dict[str, Any]) -> dict[str, Any]:
    """Document the entity tags that ``app.http.conditional`` adds."""
    for path, operations in document["paths"].items():
        answers = operations.get("get", {}).get("responses", {})
        if path.startswith("/v1/") and "application/json" in answers.get("200", {}).get("content", {}):
            answers["200"].setdefault("headers", {})["ETag"] = _header("For `If-None-Match`.")
            answers.setdefault("304", NOT_MODIFIED)
    return document


def _with_access(document: dict[str, Any]) -> dict[str, Any]:
    """Document the key that ``app.identity`` asks for, and its refusals."""
    document["components"]["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "An API key, or a CI system's token."}
    }
    refusals = problems(
        ErrorCode.UNAUTHENTICATED, ErrorCode.FORBIDDEN, ErrorCode.QUOTA_EXCEEDED, ErrorCode.LOGINS_LIMITED
    )
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            scope = required_scope(method.upper(), path)
            if scope is None:
                operation["security"] = []
                continue
            operation["security"] = [{"key": []}]
            operation["description"] += f"\n\nNeeds the scope `{scope}`."
            for status, refusal in refusals.items():
                operation["responses"].setdefault(str(status), refusal)
    return document
