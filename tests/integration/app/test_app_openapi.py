"""The OpenAPI document keeps its promises."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.main import create_app
from app.settings import AppSettings

PATHS = {
    "/v1/audit": {"get"},
    "/v1/tuning/cost-model": {"get"},
    "/v1/tuning/records": {"get", "post", "delete"},
    "/v1/tuning/records/export": {"get"},
    "/v1/devices": {"get", "post"},
    "/v1/devices/{device}": {"delete"},
    "/v1/devices/{device}/task": {"post"},
    "/v1/devices/{device}/tasks/{task}/bundle": {"get"},
    "/v1/devices/{device}/tasks/{task}/lease": {"post"},
    "/v1/devices/{device}/tasks/{task}/result": {"post"},
    "/v1/keys": {"get", "post"},
    "/v1/keys/{id}": {"delete"},
    "/v1/keys/{id}/rotate": {"post"},
    "/v1/models": {"post", "get"},
    "/v1/models/{digest}": {"put", "get", "head", "delete"},
    "/v1/extensions": {"get"},
    "/v1/extensions/{digest}": {"put", "get", "head", "delete"},
    "/v1/compilations": {"post", "get"},
    "/v1/compilations/{id}": {"get", "delete"},
    "/v1/compilations/{id}/events": {"get"},
    "/v1/compilations/{id}/artifacts": {"get"},
    "/v1/compilations/{id}/artifacts/{name}": {"get", "head"},
    "/v1/compilations/{id}/report": {"get"},
    "/v1/compilations/{id}/ir": {"get"},
    "/v1/compilations/{id}/logs": {"get"},
    "/v1/compilations/{id}/ir/{step}": {"get"},
    "/v1/compilations/{id}/ir/{step}/diff": {"get"},
    "/v1/compilations/{id}/code": {"get"},
    "/v1/compilations/{id}/code/{function}/{kind}": {"get"},
    "/v1/compilations/{id}/cancel": {"post"},
    "/v1/compilations/{id}/invocations": {"post", "get"},
    "/v1/compilations/{id}/invocations/{invocation}": {"get"},
    "/v1/compilations/{id}/invocations/{invocation}/cancel": {"post"},
    "/v1/compilations/{id}/invocations/{invocation}/outputs": {"get", "head"},
    "/v1/groups/{group}": {"get", "delete"},
    "/v1/groups/{group}/report": {"get"},
    "/v1/groups/{group}/cancel": {"post"},
    "/v1/targets": {"get"},
    "/v1/usage": {"get"},
    "/v1/workers": {"get"},
    "/healthz": {"get"},
    "/readyz": {"get"},
    "/metrics": {"get"},
}
STATELESS = ("/keys", "/extensions", "/devices", "/tuning/records")
"""Resources without a state."""
REQUEST_MODELS = (
    "CompilationRequest",
    "Submission",
    "InspectOptions",
    "TranslateOptions",
    "TuneOptions",
    "VerifyOptions",
    "BenchmarkOptions",
    "DimensionRange",
    "InputSpec",
    "PresetTarget",
    "ExplicitTarget",
)


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder: Path = tmp_path_factory.mktemp("openapi")
    return create_app(AppSettings(data=folder)).openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method} {path}", operation


def examples_of(content: dict[str, Any]) -> list[Any]:
    several = (example["value"] for example in content.get("examples", {}).values())
    return [content["example"]] if "example" in content else list(several)


def test_every_route_is_there(document: dict[str, Any]) -> None:
    assert {path: set(methods) for path, methods in document["paths"].items()} == PATHS


def test_every_operation_has_a_summary_a_tag_and_a_name_of_its_own(document: dict[str, Any]) -> None:
    found = dict(operations(document))
    assert [name for name, operation in found.items() if not operation.get("summary")] == []
    assert [name for name, operation in found.items() if not operation.get("tags")] == []
    assert len({operation["operationId"] for operation in found.values()}) == len(found)


def test_every_error_is_documented_as_a_problem(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        errors = {status: body for status, body in operation["responses"].items() if status >= "400"}
        assert {"500", "503"} <= set(errors), name
        if name.endswith("/readyz"):
            reference = errors.pop("503")["content"]["application/json"]["schema"]["$ref"]
            assert reference == "#/components/schemas/Readiness"
        for status, body in errors.items():
            assert list(body["content"]) == ["application/problem+json"], (name, status)
            assert body["content"]["application/problem+json"]["examples"], (name, status)


def test_every_answer_in_json_has_an_example(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        for status, body in operation["responses"].items():
            content = body.get("content", {}).get("application/json")
            if content is not None:
                assert examples_of(content) or "/report" in name, (name, status)


def test_every_document_that_can_be_asked_for_conditionally_says_so(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        answers = operation["responses"]
        if name.startswith("get /v1/") and "application/json" in answers["200"].get("content", {}):
            assert "304" in answers and "ETag" in answers["200"]["headers"], name


def test_whatever_is_accepted_says_when_to_ask_again(document: dict[str, Any]) -> None:
    accepted = {name: op["responses"]["202"] for name, op in operations(document) if "202" in op["responses"]}
    assert {name for name, answer in accepted.items() if "Retry-After" not in answer["headers"]} == set()
    assert len(accepted) == 5


def test_a_list_is_always_a_document_with_items(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for name, operation in operations(document):
        if operation["summary"].startswith("List "):
            reference = operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
            assert "items" in schemas[reference.rpartition("/")[2]]["properties"], name


def test_an_example_is_in_the_state_of_which_its_answer_tells(document: dict[str, Any]) -> None:
    states = {
        (name, status): {example["state"] for example in examples_of(body["content"]["application/json"])}
        for name, operation in operations(document)
        for status, body in operation["responses"].items()
        if "/cancel" in name or (status in ("201", "202") and not any(part in name for part in STATELESS))
        if "application/json" in body.get("content", {})
    }
    expected = {"200": "cancelled", "202": "running"}
    for (name, status), state in states.items():
        if "/cancel" in name:
            assert state == {expected[status]}, name
        else:
            assert state <= {"queued", "inspecting"}, name


def test_every_body_of_a_request_has_an_example(document: dict[str, Any]) -> None:
    bodies = {
        (name, media): content.get("examples")
        for name, operation in operations(document)
        for media, content in operation.get("requestBody", {}).get("content", {}).items()
    }
    assert [place for place, examples in bodies.items() if not examples] == []
    assert len(bodies) == 10
    assert len(bodies["post /v1/compilations", "application/json"]) == 8


def test_every_parameter_has_an_example(document: dict[str, Any]) -> None:
    parameters = [
        (name, parameter["name"], parameter["schema"].get("examples"))
        for name, operation in operations(document)
        for parameter in operation.get("parameters", ())
    ]
    assert {(name, parameter) for name, parameter, examples in parameters if not examples} == set()
    assert len(parameters) > len(PATHS)


async def test_every_example_of_a_parameter_is_admitted(
    api: httpx.AsyncClient, job: str, document: dict[str, Any]
) -> None:
    for name, operation in operations(document):
        asked = {
            p["name"]: p["schema"]["examples"][0]
            for p in operation.get("parameters", ())
            if p["in"] == "query"
        }
        method, path = name.split()
        if asked and method == "get":
            answer = await api.get(path.format(id=job, group=job), params=asked)
            assert answer.status_code == 200, (name, answer.text)


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("/v1/models", "post"),
        ("/v1/models/{digest}", "put"),
        ("/v1/compilations/{id}/invocations", "post"),
    ],
)
def test_an_upload_is_documented_as_bytes(document: dict[str, Any], path: str, method: str) -> None:
    body = document["paths"][path][method]["requestBody"]
    assert list(body["content"]) == ["application/octet-stream"]
    assert body["required"]


@pytest.mark.parametrize("model", REQUEST_MODELS)
def test_every_default_of_a_request_is_written_down(document: dict[str, Any], model: str) -> None:
    schema = document["components"]["schemas"][model]
    optional = set(schema["properties"]) - set(schema.get("required", ()))
    assert {name for name in optional if "default" not in schema["properties"][name]} == set()


def test_every_default_of_a_parameter_is_written_down(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        for parameter in operation.get("parameters", ()):
            assert parameter["required"] or "default" in parameter["schema"], (name, parameter["name"])


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(references(document)) <= known


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for child in node.values():
            yield from references(child)
    elif isinstance(node, list):
        for child in node:
            yield from references(child)
