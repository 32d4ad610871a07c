"""Lists of models: newest first, by keyset, and by what they have in common."""

from datetime import timedelta
from typing import Any

import pytest
from store_samples import INSPECTION, a_problem

from bessemer.contract.listing import ModelFilter
from bessemer.contract.model import ModelFormat, ModelState
from bessemer.store.errors import CursorInvalidError
from bessemer.store.rows.tenant_models import TenantModels
from bessemer.store.store import Store
from tests.inspections import inspected
from tests.tenant_data import own

FIRST, SECOND, THIRD = ("0" * 64, "2" * 64, "1" * 64)


@pytest.fixture
def kept(store: Store) -> TenantModels:
    """A model that is ready, one that was rejected, and one that waits."""
    for digest in (FIRST, SECOND, THIRD):
        own(store).models.add(digest, 1)
    inspected(store, FIRST, INSPECTION)
    inspected(store, SECOND, a_problem())
    return own(store).models


def listed(models: TenantModels, **fields: Any) -> list[str]:
    return [model.digest for model in models.page(10, None, ModelFilter(**fields)).items]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, [THIRD, SECOND, FIRST]),
        ({"state": ModelState.REJECTED}, [SECOND]),
        ({"format": ModelFormat.PT2}, [FIRST]),
        ({"format": ModelFormat.FX}, []),
        ({"state": ModelState.INSPECTING, "format": ModelFormat.PT2}, []),
    ],
)
def test_a_list_holds_what_is_all_that_is_asked(
    kept: TenantModels, fields: dict[str, Any], expected: list[str]
) -> None:
    assert listed(kept, **fields) == expected


def test_a_nul_in_an_inspection_spoils_no_list(store: Store, kept: TenantModels) -> None:
    named = INSPECTION.signature.model_copy(update={"input_names": ("a\0b",)})
    inspected(store, THIRD, INSPECTION.model_copy(update={"signature": named}))
    assert listed(kept, format=ModelFormat.PT2) == [THIRD, FIRST]
    found = kept.get(THIRD)
    assert found is not None and found.inspection is not None
    assert found.inspection.signature.input_names == ("a\N{REPLACEMENT CHARACTER}b",)


def test_a_list_is_bounded_in_time(kept: TenantModels) -> None:
    middle = kept.get(SECOND)
    assert middle is not None
    moment = middle.created_at
    assert listed(kept, created_after=moment) == [THIRD]
    assert listed(kept, created_after=moment - timedelta(days=1), created_before=moment) == [FIRST]


def test_pages_go_on_where_they_ended_whatever_arrives_or_goes(kept: TenantModels) -> None:
    first = kept.page(2)
    kept.add("3" * 64, 1)
    second = kept.page(2, first.next)
    assert [model.digest for model in (*first.items, *second.items)] == [THIRD, SECOND, FIRST]
    assert second.next is None


def test_a_foreign_cursor_is_refused(kept: TenantModels) -> None:
    with pytest.raises(CursorInvalidError):
        kept.page(2, "x")
