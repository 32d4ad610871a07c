"""Every error is a problem."""

import pytest
from fastapi import FastAPI
from httpx import AsyncClient

from app.service import Service
from bessemer.contract.problem import Problem

MODEL = "/v1/models/" + "0" * 64


@pytest.mark.parametrize("path", ["/nothing", "/v1", "/v1/", "/v1/models/", "/v1/targets/", "/v2/models"])
async def test_an_unknown_address_is_a_problem(api: AsyncClient, path: str) -> None:
    response = await api.get(path)
    problem = Problem.model_validate_json(response.content)
    assert (response.status_code, problem.code.value) == (404, "not-found")
    assert response.headers["Content-Type"] == "application/problem+json"
    assert problem.type == "urn:bessemer:error:not-found"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PATCH", MODEL, "GET, HEAD, PUT, DELETE"),
        ("PATCH", "/v1/models", "GET, HEAD, POST"),
        ("PATCH", "/v1/compilations", "GET, HEAD, POST"),
        ("GET", "/v1/compilations/x/cancel", "POST"),
        ("POST", "/healthz", "GET, HEAD"),
        ("PROPFIND", "/v1/targets", "GET, HEAD"),
    ],
)
async def test_a_method_that_is_not_taken_is_answered_with_those_that_are(
    api: AsyncClient, method: str, path: str, allowed: str
) -> None:
    response = await api.request(method, path)
    assert (response.status_code, response.json()["code"]) == (405, "method-not-allowed")
    assert response.headers["Allow"] == allowed


async def test_an_unexpected_error_tells_nothing_of_the_inside(
    app: FastAPI, api: AsyncClient, front: Service
) -> None:
    app.state.service = None
    response = await api.get("/v1/compilations")
    problem = Problem.model_validate_json(response.content)
    assert (response.status_code, problem.code.value) == (500, "internal")
    assert "NoneType" not in response.text


async def test_a_database_that_is_away_is_a_problem_without_its_address(
    api: AsyncClient, front: Service
) -> None:
    folder = front.settings.folder
    folder.rename(folder.with_name("away"))
    front.store.close()
    response = await api.get("/v1/compilations")
    assert (response.status_code, response.json()["code"]) == (503, "unavailable")
    assert "sqlite" not in response.text


@pytest.mark.parametrize("limit", ["0", "201", "x", "1e3", "9" * 50])
async def test_a_parameter_that_is_not_valid_is_named(api: AsyncClient, limit: str) -> None:
    response = await api.get("/v1/compilations", params={"limit": limit})
    assert response.status_code == 422
    assert [error["field"] for error in response.json()["errors"]] == ["limit"]
