"""Models and compilations have names, and ids are found by their first characters."""

import pytest
from store_samples import DIGEST, a_request

from bessemer.contract.listing import CompilationFilter, ModelFilter
from bessemer.store.errors import IdempotencyConflictError
from bessemer.store.store import Store
from tests.tenant_data import own

JOB = "2c26b46b68ffc68ff99b453c1d304134"
NEAR = "2c26b46b" + "0" * 24
OTHER = "f" * 32


def names(store: Store) -> list[str | None]:
    return [job.name for job in own(store).jobs.page(10).items]


def test_a_compilation_has_its_own_name_or_its_models(store: Store) -> None:
    own(store).models.add(DIGEST, 7, name="mlp")
    own(store).jobs.submit(JOB, a_request())
    own(store).jobs.submit(OTHER, a_request().model_copy(update={"name": "nightly"}))
    assert names(store) == ["nightly", "mlp"]
    assert [job.id for job in own(store).jobs.page(10, None, CompilationFilter(name="mlp")).items] == [JOB]


def test_without_any_name_there_is_none(store: Store) -> None:
    own(store).models.add(DIGEST, 7)
    own(store).jobs.submit(JOB, a_request())
    assert names(store) == [None]


def test_a_model_keeps_its_first_name(store: Store) -> None:
    given = [own(store).models.add(DIGEST, 7, name=name).name for name in (None, "first", "second", None)]
    assert given == [None, "first", "first", "first"]
    assert [model.digest for model in own(store).models.page(10, None, ModelFilter(name="first")).items] == [
        DIGEST
    ]
    assert own(store).models.page(10, None, ModelFilter(name="second")).items == ()


def test_the_name_belongs_to_what_a_key_stands_for(store: Store) -> None:
    named = a_request().model_copy(update={"name": "mlp"})
    assert own(store).jobs.submit(JOB, named) == own(store).jobs.submit(JOB, named)
    with pytest.raises(IdempotencyConflictError):
        own(store).jobs.submit(JOB, a_request())


def test_ids_are_found_by_their_start(store: Store) -> None:
    for job_id in (JOB, NEAR, OTHER):
        own(store).jobs.submit(job_id, a_request())
    assert own(store).jobs.starting("2c26b46b", 5) == (NEAR, JOB)
    assert own(store).jobs.starting("2c26b46b", 1) == (NEAR,)
    assert own(store).jobs.starting("2c26b46b6", 5) == (JOB,)
    assert own(store).jobs.starting(OTHER, 5) == (OTHER,)
    assert own(store).jobs.starting("ffff_", 5) == own(store).jobs.starting("2C26", 5) == ()


def test_models_and_invocations_are_found_by_their_start(store: Store) -> None:
    own(store).models.add(DIGEST, 7)
    assert own(store).models.starting(DIGEST[:4], 5) == own(store).models.starting(DIGEST, 5) == (DIGEST,)
    for job_id in (JOB, NEAR):
        own(store).jobs.submit(job_id, a_request())
    own(store).invocations.submit(OTHER, JOB, DIGEST, 7, 0, None)
    assert own(store).invocations.starting(JOB, "ffff", 5) == (OTHER,)
    assert own(store).invocations.starting(NEAR, "ffff", 5) == ()


def test_jobs_are_listed_by_the_start_of_their_models_digest(store: Store) -> None:
    own(store).jobs.submit(JOB, a_request())
    found = [
        own(store).jobs.page(10, None, CompilationFilter(model=start)).items
        for start in ("0123", DIGEST, "0124")
    ]
    assert [len(items) for items in found] == [1, 1, 0]
