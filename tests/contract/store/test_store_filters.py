"""Lists of jobs by what they have in common."""

from datetime import timedelta
from typing import Any

import pytest
from store_samples import DIGEST, a_request

from bessemer.contract.job import JobState
from bessemer.contract.listing import CompilationFilter
from bessemer.contract.target import PresetTarget
from bessemer.store.rows.tenant_jobs import TenantJobs
from bessemer.store.store import Store
from tests.tenant_data import own

OTHER = "f" * 64
FIRST, SECOND, THIRD = (f"job-{number:08}" for number in range(3))


@pytest.fixture
def kept(store: Store) -> TenantJobs:
    """Three jobs: a team's two, of which one is cancelled, and another's of another model and target."""
    explicit = a_request()
    preset = explicit.model_copy(update={"target": PresetTarget(preset="x86-64-v3"), "model": OTHER})
    vision = {"team": "vision", "ci.example/branch": "main"}
    own(store).jobs.submit(FIRST, explicit.model_copy(update={"labels": vision}))
    own(store).jobs.submit(SECOND, explicit.model_copy(update={"labels": {"team": "vision"}}))
    own(store).jobs.submit(THIRD, preset.model_copy(update={"labels": {"team": "speech = text"}}))
    own(store).jobs.request_cancel(SECOND)
    return own(store).jobs


def listed(jobs: TenantJobs, **fields: Any) -> list[str]:
    return [job.id for job in jobs.page(10, None, CompilationFilter(**fields)).items]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, [THIRD, SECOND, FIRST]),
        ({"label": ("team=vision",)}, [SECOND, FIRST]),
        ({"label": ("team",)}, [THIRD, SECOND, FIRST]),
        ({"label": ("team=speech = text",)}, [THIRD]),
        ({"label": ("team=vision", "ci.example/branch")}, [FIRST]),
        ({"label": ("team=",)}, []),
        ({"label": ("branch",)}, []),
        ({"label": ("team=vision",), "state": JobState.CANCELLED}, [SECOND]),
        ({"model": OTHER}, [THIRD]),
        ({"model": DIGEST, "state": JobState.QUEUED}, [FIRST]),
        ({"target": "x86-64-v3"}, [THIRD]),
        ({"target": "znver4"}, [SECOND, FIRST]),
    ],
)
def test_a_list_holds_what_is_all_that_is_asked(
    kept: TenantJobs, fields: dict[str, Any], expected: list[str]
) -> None:
    assert listed(kept, **fields) == expected


def test_a_list_is_bounded_in_time(kept: TenantJobs) -> None:
    middle = kept.get(SECOND)
    assert middle is not None
    moment = middle.created_at
    assert listed(kept, created_after=moment) == [THIRD]
    assert listed(kept, created_before=moment) == [FIRST]
    assert listed(kept, created_after=moment - timedelta(days=1), created_before=moment) == [FIRST]


def test_a_cursor_goes_on_where_it_was_under_a_filter(kept: TenantJobs) -> None:
    wanted = CompilationFilter(label=("team=vision",))
    first = kept.page(1, None, wanted)
    kept.submit("job-later", a_request().model_copy(update={"labels": {"team": "vision"}}))
    second = kept.page(1, first.next, wanted)
    assert [job.id for job in (*first.items, *second.items)] == [SECOND, FIRST]
    assert second.next is None
