"""Quotas as settings and a file give them, and what they refuse."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.admission import priority_refusal
from app.quotas import QUEUED, STORED, WORKER, Limited, day_end, excess, retry_seconds
from bessemer.contract.usage import Quota
from bessemer.store.quotas import QuotaFileError, read_quotas
from bessemer.store.settings import StoreSettings

FILE = """
[tenants.vision]
running_jobs = 4
stored_bytes = "unlimited"

[tenants.guests]
highest_priority = 0
"""


def settings(folder: Path, text: str = FILE) -> StoreSettings:
    path = folder / "quotas.toml"
    path.write_text(text)
    return StoreSettings(quotas=path, quota_queued_jobs=9, quota_stored_bytes=10)


def test_a_tenant_has_the_settings_limits_unless_the_file_names_others(tmp_path: Path) -> None:
    quotas = read_quotas(settings(tmp_path))
    default = Quota(queued_jobs=9, uploads=16, stored_bytes=10)
    assert quotas.of("anyone") == default
    assert quotas.of("vision") == default.model_copy(update={"running_jobs": 4, "stored_bytes": None})
    assert quotas.of("guests") == default.model_copy(update={"highest_priority": 0})


def test_without_settings_only_uploads_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_quotas(StoreSettings()).of("anyone") == Quota(uploads=16)
    monkeypatch.setenv("BESSEMER_QUOTA_UPLOADS", "unlimited")
    monkeypatch.setenv("BESSEMER_QUOTA_RUNNING_JOBS", "3")
    assert read_quotas(StoreSettings()).of("anyone") == Quota(running_jobs=3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tenants.vision]\nruning_jobs = 4", "tenants.vision.runing_jobs: unknown field"),
        ("[tenants.vision]\nrunning_jobs = -1", "tenants.vision.running_jobs: expected at least"),
        ("[tenants.vision]\nrunning_jobs = '4'", "tenants.vision.running_jobs: expected a whole number"),
        ("[tenants.vision]\nqueued_jobs = 1.5", "tenants.vision.queued_jobs: expected a whole number"),
        (
            "[tenants.vision]\nuploads = 0",
            "tenants.vision.uploads: expected at least",
        ),
        ("[tenants.vision]\nhighest_priority = 101", "tenants.vision.highest_priority: expected at most"),
        ("[tenants.'Vision team']", "tenants.Vision team: expected a tenant"),
        ("[teams.vision]", "tenants: required"),
        ("tenants = 3", "tenants: expected fields with values"),
        ("[tenants", "Expected ']'"),
    ],
)
def test_a_file_with_a_mistake_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(QuotaFileError) as refused:
        read_quotas(settings(tmp_path, text))
    assert f"BESSEMER_QUOTAS: {tmp_path / 'quotas.toml'}: {said}" in str(refused.value)


def test_a_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(QuotaFileError, match="No such file"):
        read_quotas(StoreSettings(quotas=tmp_path / "none.toml"))


@pytest.mark.parametrize(
    ("name", "value"), [("uploads", "0"), ("running_jobs", "-1"), ("stored_bytes", "1G")]
)
def test_a_wrong_setting_is_refused(name: str, value: str) -> None:
    with pytest.raises(ValidationError):
        StoreSettings.model_validate({f"quota_{name}": value})


@pytest.mark.parametrize(
    ("what", "limit", "used", "more", "refused"),
    [
        (QUEUED, None, 1000, 1, False),
        (QUEUED, 3, 2, 1, False),
        (QUEUED, 3, 3, 1, True),
        (QUEUED, 0, 0, 1, True),
        (STORED, 100, 40, 60, False),
        (STORED, 100, 40, 61, True),
        (WORKER, 60, 59, 1, False),
        (WORKER, 60, 60, 1, True),
    ],
)
def test_a_request_is_refused_if_it_would_exceed_the_limit(
    what: Limited, limit: int | None, used: int, more: int, refused: bool
) -> None:
    assert (excess(what, Quota.model_validate({what.name: limit}), used, more) is not None) is refused


def test_a_refusal_names_the_quota_what_is_used_and_what_to_do() -> None:
    assert excess(STORED, Quota(stored_bytes=100), 40, 61) == (
        "The quota `stored_bytes` allows 100 stored bytes; the tenant has 40, and this request needs at "
        "least 61 more. Delete models and compilations that you do not need."
    )


@pytest.mark.parametrize(
    ("what", "seconds"), [(QUEUED, 10), (STORED, 60), (WORKER, 3600 + 1)], ids=["queued", "stored", "worker"]
)
def test_a_retry_is_advised_when_it_may_succeed(what: Limited, seconds: int) -> None:
    at = datetime(2026, 1, 31, 23, tzinfo=UTC)
    assert day_end(at) == datetime(2026, 2, 1, tzinfo=UTC)
    assert retry_seconds(what, at) == seconds
    assert at + timedelta(seconds=retry_seconds(WORKER, at)) > day_end(at)


@pytest.mark.parametrize(("priority", "refused"), [(-100, False), (0, False), (5, False), (6, True)])
def test_a_priority_above_the_tenants_highest_is_refused(priority: int, refused: bool) -> None:
    problem = priority_refusal(priority, highest=5)
    assert (problem is not None) is refused
    assert problem is None or (problem.status, problem.errors[0].field) == (422, "priority")
