"""Models and compilations have names, and ids are found by their first characters."""

import pytest
from store_samples import DIGEST, a_request

from bessemer.contract.listing import CompilationFilter, ModelFilter
from bessemer.store.errors import IdempotencyConflictError
from bessemer.store.store import Store

JOB = "2c26b46b68ffc68ff99b453c1d304134"
NEAR = "2c26b46b" + "0" * 24
OTHER = "f" * 32


def names(store: Store) -> list[str | None]:
    return [job.name for job in store.jobs.page(10).items]


def test_a_compilation_has_its_own_name_or_its_models(store: Store) -> None:
    store.models.add(DIGEST, 7, name="mlp")
    store.jobs.submit(JOB, a_request())
    store.jobs.submit(OTHER, a_request().model_copy(update={"name": "nightly"}))
    assert names(store) == ["nightly", "mlp"]
    assert [job.id for job in store.jobs.page(10, None, CompilationFilter(name="mlp")).items] == [JOB]


def test_without_any_name_there_is_none(store: Store) -> None:
    store.models.add(DIGEST, 7)
    store.jobs.submit(JOB, a_request())
    assert names(store) == [None]


def test_a_model_keeps_its_first_name(store: Store) -> None:
    given = [store.models.add(DIGEST, 7, name=name).name for name in (None, "first", "second", None)]
    assert given == [None, "first", "first", "first"]
    assert [model.digest for model in store.models.page(10, None, ModelFilter(name="first")).items] == [
        DIGEST
    ]
    assert store.models.page(10, None, ModelFilter(name="second")).items == ()


def test_the_name_belongs_to_what_a_key_stands_for(store: Store) -> None:
    named = a_request().model_copy(update={"name": "mlp"})
    assert store.jobs.submit(JOB, named) == store.jobs.submit(JOB, named)
    with pytest.raises(IdempotencyConflictError):
        store.jobs.submit(JOB, a_request())


def test_ids_are_found_by_their_start(store: Store) -> None:
    for job_id in (JOB, NEAR, OTHER):
        store.jobs.submit(job_id, a_request())
    assert store.jobs.starting("2c26b46b", 5) == (NEAR, JOB)
    assert store.jobs.starting("2c26b46b", 1) == (NEAR,)
    assert store.jobs.starting("2c26b46b6", 5) == (JOB,)
    assert store.jobs.starting(OTHER, 5) == (OTHER,)
    assert store.jobs.starting("ffff_", 5) == store.jobs.starting("2C26", 5) == ()


def test_models_and_invocations_are_found_by_their_start(store: Store) -> None:
    store.models.add(DIGEST, 7)
    assert store.models.starting(DIGEST[:4], 5) == store.models.starting(DIGEST, 5) == (DIGEST,)
    for job_id in (JOB, NEAR):
        store.jobs.submit(job_id, a_request())
    store.invocations.submit(OTHER, JOB, DIGEST, 7, 0, None)
    assert store.invocations.starting(JOB, "ffff", 5) == (OTHER,)
    assert store.invocations.starting(NEAR, "ffff", 5) == ()


def test_jobs_are_listed_by_the_start_of_their_models_digest(store: Store) -> None:
    store.jobs.submit(JOB, a_request())
    found = [
        store.jobs.page(10, None, CompilationFilter(model=start)).items for start in ("0123", DIGEST, "0124")
    ]
    assert [len(items) for items in found] == [1, 1, 0]
