"""The front end's policies: polling, job ids, validation, readiness, and the tables behind them."""

import pytest
from pydantic import ValidationError

from app.event_broadcaster import wait_seconds
from app.http.idempotency import resource_id
from app.http.problems import STORE_CODES, invalid_problem, store_problem
from app.http.validation import MAX_ERRORS, field_errors
from app.observability.log_fields import is_job_id
from app.readiness import NO_WORKER, warnings
from app.settings import AppSettings
from bessemer.contract.problem import ERRORS, ErrorCode, FieldError
from bessemer.contract.request import CompilationRequest
from bessemer.store.errors import StoreError, StoreUnavailableError

SECRET = b"the service's own"


def every_subclass(kind: type[StoreError]) -> set[type[StoreError]]:
    return {kind_ for child in kind.__subclasses__() for kind_ in {child, *every_subclass(child)}}


def errors_of(document: object) -> dict[str, str]:
    with pytest.raises(ValidationError) as caught:
        CompilationRequest.model_validate(document)
    details = [{**detail, "loc": ("body", *detail["loc"])} for detail in caught.value.errors()]
    return {error.field: error.message for error in field_errors(details)}


@pytest.mark.parametrize(
    ("quiet_seconds", "expected_seconds"), [(0, 0.05), (1, 0.05), (2, 0.1), (10, 0.5), (3600, 1)]
)
def test_a_quiet_job_is_polled_less_often(quiet_seconds: float, expected_seconds: float) -> None:
    assert wait_seconds(quiet_seconds, 0.05, 1.0) == pytest.approx(expected_seconds)


def test_a_key_gives_one_id_per_tenant() -> None:
    assert resource_id(SECRET, "k", "a") == resource_id(SECRET, "k", "a")
    assert resource_id(SECRET, None, "a") != resource_id(SECRET, None, "a")
    differ = [(SECRET, "k", "a"), (SECRET, "k", "b"), (SECRET, "l", "a"), (b"other", "k", "a")]
    differ += [(SECRET, "k", "a", "job"), (SECRET, "job", "a", "k"), (SECRET, "k", "job", "a")]
    assert len({resource_id(*given) for given in differ}) == len(differ)


def test_every_generated_id_is_recognized_as_an_id() -> None:
    assert is_job_id(resource_id(SECRET, "k", "a"))
    assert is_job_id(resource_id(SECRET, None, "a"))


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"preset": 5}, {"target.preset"}),
        ({"prset": "host"}, {"target.preset", "target.prset"}),
        ({"mcpu": "znver4", "tripel": "x"}, {"target.tripel"}),
        ({"preset": "host", "mcpu": "znver4"}, {"target.mcpu"}),
        ({"mcpu": "znver4", "cores": 0}, {"target.cores"}),
        ({}, {"target.preset"}),
        (5, {"target"}),
        ("nothing", {"target"}),
    ],
)
def test_only_the_most_likely_of_several_forms_is_reported(target: object, expected: set[str]) -> None:
    assert set(errors_of({"model": "0" * 64, "target": target})) == expected


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"target": {"preset": "host", "mcpu": "znver4"}}, "target.mcpu", "another form"),
        ({"target": 5}, "target", "expected a JSON object"),
        ({"target": "nope\n"}, "target", "unknown target"),
        ({"labels": []}, "labels", "expected a JSON object"),
        ({"labels": {"Team": "x"}}, "labels.Team.[key]", "lower-case letters"),
        ({"labels": {f"l{number}": "" for number in range(33)}}, "labels", "32 entries at most"),
        ({"labels": {"team": "\ud800"}}, "labels.team", "Unicode"),
        ({"inputs": {}}, "inputs", "expected a list"),
    ],
)
def test_expected_types_are_named_in_json_terms(fields: dict[str, object], field: str, message: str) -> None:
    assert message in errors_of({"model": "0" * 64, "target": "host", **fields})[field]


def test_a_word_unlike_any_other_gets_no_hint() -> None:
    found = errors_of({"model": "0" * 64, "target": "host", "zzzzzz": 1, "x" * 5000: 1})
    assert set(found.values()) == {"unknown field"}


def test_the_number_of_errors_is_bounded() -> None:
    assert len(errors_of({f"unknown{index}": 1 for index in range(1000)})) == MAX_ERRORS


def test_the_detail_of_many_errors_stays_short() -> None:
    problem = invalid_problem(tuple(FieldError(field=f"f{index}", message="no") for index in range(9)))
    assert problem.detail == "f0: no; f1: no; f2: no; and 6 more"


def test_every_error_of_the_store_has_a_code() -> None:
    assert set(STORE_CODES) == every_subclass(StoreError)


@pytest.mark.parametrize(
    ("said", "is_named"),
    [
        ("the database cannot be used: (sqlite3.OperationalError) database or disk is full", True),
        ("the artifact store cannot be used: No space left on device (os error 28)", True),
        ("the artifact store cannot be used: connection refused", False),
    ],
)
def test_a_full_disk_is_named(said: str, is_named: bool) -> None:
    problem = store_problem(StoreUnavailableError(said))
    assert ("is full" in problem.detail) is is_named


def test_internal_details_of_store_errors_stay_private() -> None:
    problem = store_problem(StoreUnavailableError("postgresql://user:secret@host"))
    assert (problem.code, "secret" in problem.detail) == (ErrorCode.UNAVAILABLE, False)


def test_a_service_without_workers_reports_it() -> None:
    assert warnings(()) == (NO_WORKER,)


def test_every_setting_is_described() -> None:
    fields = AppSettings.model_fields
    assert [name for name, field in fields.items() if not field.description] == []


def test_only_a_defect_and_an_outage_are_the_servers_fault() -> None:
    server_side = {code for code in STORE_CODES.values() if ERRORS[code].status >= 500}
    assert server_side == {ErrorCode.INTERNAL, ErrorCode.UNAVAILABLE}


@pytest.mark.parametrize(
    ("dimensions", "field", "message"),
    [
        ({}, "dimensions", "names 'batch', which has no range"),
        ({"batch": {"max": 64}}, "dimensions.batch.max", "unknown field; did you mean 'maximum'?"),
        ({"batch": {"minimum": 4, "maximum": 4}}, "dimensions.batch", "write a fixed size as a number"),
        ({"batch": {"maximum": 4, "example": 8}}, "dimensions.batch", "the nearest size is 4"),
        ({"batch": {"maximum": 1 << 40}}, "dimensions.batch.maximum", "at most 2147483648"),
        ({"batch": {}, "length": {}}, "dimensions", "no shape in `inputs` names 'length'"),
    ],
)
def test_an_invalid_dimension_is_refused_by_field(dimensions: object, field: str, message: str) -> None:
    inputs = [{"name": "x", "shape": ["batch", 784]}]
    found = errors_of({"model": "0" * 64, "target": "host", "inputs": inputs, "dimensions": dimensions})
    assert list(found) == [field]
    assert message in found[field]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("retention_days", "1000000"),
        ("model_retention_days", "1e308"),
        ("sweep_age_seconds", "inf"),
        ("worker_lost_seconds", "nan"),
    ],
)
def test_an_impossible_date_is_refused(name: str, text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        AppSettings.model_validate({name: text})
    assert [error["loc"] for error in caught.value.errors()] == [(name,)]
