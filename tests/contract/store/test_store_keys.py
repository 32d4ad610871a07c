"""API keys and the audit log on both databases."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from bessemer.contract.access import Scope
from bessemer.contract.keys import KeyRequest
from bessemer.store.rows.keys import is_valid
from bessemer.store.store import Store

REQUEST = KeyRequest(tenant="vision", scope=Scope.READ, name="ci", expires_days=90)
CHOSEN, OTHER = (f"bsm_00000000000{digit}_{digit * 43}" for digit in "ab")


def valid_ids(store: Store) -> set[str]:
    return {key.id for key in store.keys.list() if is_valid(key, key.created_at)}


def test_a_rotated_key_is_replaced_by_one_of_the_same_kind(store: Store) -> None:
    old = store.keys.create(REQUEST)
    new = store.keys.rotate(old.id)
    assert new is not None
    assert (new.tenant, new.scope, new.name) == (old.tenant, old.scope, old.name)
    assert old.expires_at is not None
    assert new.expires_at is not None
    assert new.expires_at - new.created_at == old.expires_at - old.created_at
    assert store.keys.find(new.key) == store.keys.get(new.id)
    assert valid_ids(store) == {new.id}


def test_of_two_rotations_at_once_one_succeeds(store: Store) -> None:
    old = store.keys.create(REQUEST)
    with ThreadPoolExecutor(4) as threads:
        created = [key for key in threads.map(store.keys.rotate, [old.id] * 4) if key is not None]
    assert valid_ids(store) == {key.id for key in created}
    assert len(created) == 1


def test_apps_that_start_at_once_insert_the_operators_key_once(store: Store) -> None:
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: store.keys.ensure(CHOSEN, REQUEST), range(4)))
    assert valid_ids(store) == {"00000000000a"}
    store.keys.ensure(OTHER, REQUEST)
    assert valid_ids(store) == {"00000000000b"}


@pytest.mark.parametrize("path", ["/v1/models/a\0b", "/v1/models/\ud800", "/v1/models/é"])
def test_the_audit_log_stores_any_text(path: str, store: Store) -> None:
    store.audit.record("unknown", None, f"DELETE {path}", path, 404)
    (entry,) = store.audit.page(10).items
    assert entry.resource == path.replace("\0", "?").replace("\ud800", "?")
