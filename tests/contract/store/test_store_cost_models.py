"""What searches measured of plans is kept for each tenant, and says whose cost model is due."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from store_samples import A_COST_MODEL, PACKED, SCOPE, a_request, a_trial

from bessemer.contract.access import DEFAULT_TENANT
from bessemer.contract.cost_model import MeasuredFunction, packed, unpacked
from bessemer.contract.records import RecordFilter
from bessemer.store.rows import cost_models
from bessemer.store.rows.tuning_records import Batch
from bessemer.store.store import Store
from tests.tenant_data import own, started

VERSION = "1.1"
OTHER = "another"


def measured(source: str, plans: int = 2) -> MeasuredFunction:
    return MeasuredFunction(
        source=source,
        family="matmul",
        kind="x86_64 256 parallel",
        features=tuple({"rank": float(place)} for place in range(plans)),
        places=tuple(range(plans)),
        seconds=tuple(1.0 + place for place in range(plans)),
    )


def add(
    store: Store, *functions: MeasuredFunction, tenant: str = DEFAULT_TENANT, version: str = VERSION
) -> None:
    measured = {each.source: plans for each in functions if (plans := packed(each)) is not None}
    store.cost_models.add(tenant, SCOPE, version, measured)


def sources(store: Store, tenant: str = DEFAULT_TENANT, version: str = VERSION) -> Sequence[tuple[str, int]]:
    if tenant not in [progress.tenant for progress in store.cost_models.progress(version)]:
        return []
    functions = map(unpacked, store.cost_models.training_set(tenant, version).packed)
    return sorted((each.source, len(each.seconds)) for each in functions)


def unseen(store: Store, version: str = VERSION) -> dict[str, tuple[int, int]]:
    return {each.tenant: (each.functions, each.unseen) for each in store.cost_models.progress(version)}


def learn(store: Store, tenant: str = DEFAULT_TENANT, version: str = VERSION) -> None:
    newest_at = store.cost_models.training_set(tenant, version).newest_at
    store.cost_models.put(tenant, version, A_COST_MODEL, b"model", newest_at)


def record(store: Store, *workloads: str, job: str = "job-00000001") -> None:
    own(store).jobs.submit(job, a_request())
    attempt = started(store.jobs, job)
    trials = tuple(a_trial("fast", 1.0).model_copy(update={"workload": each}) for each in workloads)
    batch = Batch(0, trials, dict.fromkeys(workloads, PACKED), elapsed_seconds=1.0, shared=False)
    store.records.add(job, attempt, SCOPE, batch)


def test_a_tenants_functions_are_what_its_model_learns_from(store: Store) -> None:
    add(store, measured("1"), measured("2"))
    add(store, measured("3"), tenant=OTHER)
    add(store, measured("4"), version="1.0")

    assert sources(store) == [("1", 2), ("2", 2)]
    assert sources(store, OTHER) == [("3", 2)]
    assert sources(store, "nobody") == []


def test_a_function_keeps_what_the_most_plans_say(store: Store) -> None:
    add(store, measured("1", 5), measured("2", 2), measured("3", 3))
    add(store, measured("1", 2), measured("2", 4), measured("3", 3))

    assert sources(store) == [("1", 5), ("2", 4), ("3", 3)]


def test_a_function_that_was_measured_again_is_unseen(store: Store) -> None:
    add(store, measured("1", 5))
    learn(store)
    assert unseen(store) == {}
    add(store, measured("1", 2))
    assert unseen(store) == {DEFAULT_TENANT: (1, 1)}
    assert sources(store) == [("1", 5)]


def test_releases_with_other_features_do_not_see_each_others(store: Store) -> None:
    add(store, measured("1", 5), version="1.0")
    add(store, measured("1", 2))
    learn(store)

    assert sources(store, version="1.0") == [("1", 5)]
    assert unseen(store) == {}
    assert unseen(store, "1.0") == {DEFAULT_TENANT: (1, 1)}
    assert store.cost_models.get(DEFAULT_TENANT, "1.0") is None


def test_only_the_functions_that_were_measured_last_are_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost_models, "MAX_FUNCTIONS", 2)
    for source in "123":
        add(store, measured(source))
    add(store, measured("9"), tenant=OTHER)

    assert sources(store) == [("2", 2), ("3", 2)]
    assert sources(store, OTHER) == [("9", 2)]


def test_a_model_has_seen_what_was_measured_before_it(store: Store) -> None:
    assert unseen(store) == {}
    add(store, measured("1"), measured("2"))
    add(store, measured("9"), tenant=OTHER)
    assert unseen(store) == {OTHER: (1, 1), DEFAULT_TENANT: (2, 2)}
    learn(store)
    assert unseen(store) == {OTHER: (1, 1)}
    add(store, measured("3"))
    assert unseen(store)[DEFAULT_TENANT] == (3, 1)


def test_a_model_takes_the_place_of_one_that_has_seen_less(store: Store) -> None:
    until = A_COST_MODEL.trained_at
    for text, seconds in ((b"first", 1), (b"second", 2), (b"late", 0)):
        seen = until + timedelta(seconds=seconds)
        store.cost_models.put(DEFAULT_TENANT, VERSION, A_COST_MODEL, text, seen)

    assert store.cost_models.get(DEFAULT_TENANT, VERSION) == b"second"
    assert store.cost_models.get(DEFAULT_TENANT, "2.0") is None
    assert store.cost_models.get(OTHER, VERSION) is None
    assert own(store).cost_model.get() == A_COST_MODEL


def test_what_was_measured_goes_with_the_records_of_its_function(store: Store) -> None:
    record(store, "1", "2")
    add(store, measured("1"), measured("2"))
    store.cost_models.delete_unused()
    assert sources(store) == [("1", 2), ("2", 2)]

    own(store).records.delete(RecordFilter(workload="1"))
    assert sources(store) == [("2", 2)]
    learn(store)
    assert own(store).cost_model.get() == A_COST_MODEL

    own(store).records.delete()
    assert sources(store) == []
    assert own(store).cost_model.get() is None
