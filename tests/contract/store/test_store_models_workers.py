"""Models and workers."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from store_samples import DIGEST, INSPECTION, a_problem, a_worker

from bessemer.contract.model import ModelState
from bessemer.contract.problem import ErrorCode, make_problem
from bessemer.store.store import Store


def test_a_new_model_is_to_be_inspected(store: Store) -> None:
    model = store.models.add(DIGEST, 1 << 40)
    assert (model.state, model.size_bytes) == (ModelState.INSPECTING, 1 << 40)
    assert store.models.get(DIGEST) == model


def test_an_unknown_model_is_none(store: Store) -> None:
    assert store.models.get(DIGEST) is None


def test_a_model_that_is_there_stays_as_it_is(store: Store) -> None:
    store.models.add(DIGEST, 1)
    store.models.finish_inspection(DIGEST, INSPECTION)
    again = store.models.add(DIGEST, 1)
    assert (again.state, again.inspection) == (ModelState.READY, INSPECTION)


def test_uploads_at_the_same_moment_make_one_model(store: Store) -> None:
    with ThreadPoolExecutor(4) as pool:
        models = list(pool.map(lambda _: store.models.add(DIGEST, 1), range(8)))
    assert len({model.created_at for model in models}) == 1


def test_a_model_that_fails_its_inspection_is_rejected(store: Store) -> None:
    store.models.add(DIGEST, 1)
    store.models.finish_inspection(DIGEST, a_problem())
    model = store.models.get(DIGEST)
    assert model is not None
    assert (model.state, model.problem, model.inspection) == (ModelState.REJECTED, a_problem(), None)


def test_the_first_inspection_stays(store: Store) -> None:
    store.models.add(DIGEST, 1)
    store.models.finish_inspection(DIGEST, INSPECTION)
    store.models.finish_inspection(DIGEST, a_problem())
    model = store.models.get(DIGEST)
    assert model is not None and model.state is ModelState.READY


def test_tenants_do_not_see_each_others_models(store: Store) -> None:
    store.models.add(DIGEST, 1, tenant="one")
    assert store.models.get(DIGEST, tenant="two") is None


def test_only_models_that_no_queue_has_are_swept(store: Store) -> None:
    other, inspected = "1" * 64, "2" * 64
    for digest in (DIGEST, other, inspected):
        store.models.add(digest, 1)
    store.models.mark_enqueued(other)
    store.models.finish_inspection(inspected, INSPECTION)
    assert store.models.unenqueued(0) == (DIGEST,)
    assert store.models.unenqueued(3600) == ()


def test_models_that_the_queue_has_are_known_until_they_are_inspected(store: Store) -> None:
    for digest in (DIGEST, "1" * 64, "2" * 64):
        store.models.add(digest, 1)
    store.models.mark_enqueued(DIGEST)
    store.models.mark_enqueued("2" * 64)
    store.models.finish_inspection("2" * 64, INSPECTION)
    assert store.models.enqueued(0) == (DIGEST,)
    assert store.models.enqueued(3600) == ()


@pytest.mark.parametrize(
    ("code", "again"),
    [(ErrorCode.WORKER_LOST, True), (ErrorCode.LIMIT_MEMORY, True), (ErrorCode.MODEL_DAMAGED, False)],
)
def test_only_a_model_without_a_defect_of_its_own_is_inspected_again(
    store: Store, code: ErrorCode, again: bool
) -> None:
    store.models.add(DIGEST, 1)
    store.models.mark_enqueued(DIGEST)
    assert not store.models.inspect_again(DIGEST)
    store.models.finish_inspection(DIGEST, make_problem(code, "no"))
    assert store.models.inspect_again(DIGEST) is again
    assert store.models.unenqueued(0) == ((DIGEST,) if again else ())
    assert not store.models.inspect_again(DIGEST)


def test_a_model_that_is_unknown_or_ready_is_not_inspected_again(store: Store) -> None:
    assert not store.models.inspect_again(DIGEST)
    store.models.add(DIGEST, 1)
    store.models.finish_inspection(DIGEST, INSPECTION)
    assert not store.models.inspect_again(DIGEST)


def test_a_worker_that_is_not_seen_for_long_is_lost_until_it_returns_or_leaves(store: Store) -> None:
    for worker_id in ("a", "b"):
        silent = a_worker(worker_id)
        store.workers.beat(silent.model_copy(update={"seen_at": silent.seen_at - timedelta(minutes=1)}))
    store.workers.beat(a_worker("c"))
    assert (store.workers.lost(30), store.workers.lost(3600)) == (("a", "b"), ())
    store.workers.beat(a_worker("a"))
    store.workers.leave("b")
    assert store.workers.lost(30) == ()


def test_a_worker_lives_while_it_is_seen(store: Store) -> None:
    lost = a_worker("a")
    store.workers.beat(lost.model_copy(update={"seen_at": lost.seen_at - timedelta(minutes=1)}))
    store.workers.beat(a_worker("b"))
    assert [worker.id for worker in store.workers.live(30)] == ["b"]
    store.workers.beat(a_worker("a"))
    assert [worker.id for worker in store.workers.live(30)] == ["a", "b"]


def test_a_worker_that_leaves_is_forgotten(store: Store) -> None:
    store.workers.beat(a_worker("a"))
    store.workers.leave("a")
    store.workers.leave("never seen")
    assert store.workers.live(3600) == ()


def test_the_database_answers(store: Store) -> None:
    assert store.ping()
