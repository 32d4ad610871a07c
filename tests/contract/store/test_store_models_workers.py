"""Models and workers."""

from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta

import pytest
import sqlalchemy as sa
from store_samples import DIGEST, INSPECTION, a_problem, a_worker

from bessemer.contract.base import now
from bessemer.contract.model import ModelState
from bessemer.contract.problem import ErrorCode, make_problem
from bessemer.store.errors import FencedError, StoreUnavailableError
from bessemer.store.rows.tables import WORKERS
from bessemer.store.store import Store
from tests.inspections import inspected
from tests.tenant_data import inspection_of, own, started


def test_a_new_model_is_to_be_inspected(store: Store) -> None:
    model = own(store).models.add(DIGEST, 1 << 40)
    assert (model.state, model.size_bytes) == (ModelState.INSPECTING, 1 << 40)
    assert own(store).models.get(DIGEST) == model


def test_an_unknown_model_is_none(store: Store) -> None:
    assert own(store).models.get(DIGEST) is None


def test_a_model_that_is_there_stays_as_it_is(store: Store) -> None:
    own(store).models.add(DIGEST, 1)
    inspected(store, DIGEST, INSPECTION)
    again = own(store).models.add(DIGEST, 1)
    assert (again.state, again.inspection) == (ModelState.READY, INSPECTION)


def test_uploads_at_the_same_moment_make_one_model(store: Store) -> None:
    with ThreadPoolExecutor(4) as pool:
        models = list(pool.map(lambda _: own(store).models.add(DIGEST, 1), range(8)))
    assert len({model.created_at for model in models}) == 1


def test_a_model_that_fails_its_inspection_is_rejected(store: Store) -> None:
    own(store).models.add(DIGEST, 1)
    inspected(store, DIGEST, a_problem())
    model = own(store).models.get(DIGEST)
    assert model is not None
    assert (model.state, model.problem, model.inspection) == (ModelState.REJECTED, a_problem(), None)


@pytest.mark.parametrize(
    ("code", "again"),
    [(ErrorCode.WORKER_LOST, True), (ErrorCode.LIMIT_MEMORY, True), (ErrorCode.MODEL_DAMAGED, False)],
)
def test_only_a_model_without_a_defect_of_its_own_is_inspected_again(
    store: Store, code: ErrorCode, again: bool
) -> None:
    own(store).models.add(DIGEST, 1)
    task = inspection_of(store, DIGEST)
    store.models.mark_enqueued(task.id)
    assert not own(store).models.inspect_again(DIGEST)
    inspected(store, DIGEST, make_problem(code, "no"))
    assert own(store).models.inspect_again(DIGEST) is again
    assert store.models.unenqueued(0) == ((task,) if again else ())
    assert not own(store).models.inspect_again(DIGEST)


def test_an_inspection_that_ended_does_not_own_the_next_one(store: Store) -> None:
    own(store).models.add(DIGEST, 1)
    model_id = inspection_of(store, DIGEST).id
    _, attempt = (started(store.models, model_id) for _ in range(2))
    assert (attempt.number, store.models.lost_attempts(model_id, attempt)) == (2, 1)
    store.models.finish_inspection(model_id, attempt, make_problem(ErrorCode.WORKER_LOST, "no"))
    assert own(store).models.inspect_again(DIGEST)
    with pytest.raises(FencedError):
        store.models.finish_inspection(model_id, attempt, INSPECTION)
    assert store.models.lost_attempts(model_id, started(store.models, model_id)) == 0


def test_a_model_that_is_unknown_or_ready_is_not_inspected_again(store: Store) -> None:
    assert not own(store).models.inspect_again(DIGEST)
    own(store).models.add(DIGEST, 1)
    inspected(store, DIGEST, INSPECTION)
    assert not own(store).models.inspect_again(DIGEST)


def make_silent(store: Store, worker_id: str) -> None:
    """As if the worker's last heartbeat had been a minute ago."""
    with store.database.write() as connection:
        known = connection.execute(sa.select(WORKERS.c.seen_at).where(WORKERS.c.id == worker_id)).scalar_one()
        before = {"seen_at": known - timedelta(minutes=1)}
        connection.execute(sa.update(WORKERS).where(WORKERS.c.id == worker_id).values(before))


def test_a_worker_lives_while_it_is_seen(store: Store) -> None:
    for worker_id in ("a", "b"):
        store.workers.beat(a_worker(worker_id))
    make_silent(store, "a")
    assert [worker.id for worker in store.workers.live(30)] == ["b"]
    store.workers.beat(a_worker("a"))
    assert [worker.id for worker in store.workers.live(30)] == ["a", "b"]


def test_when_a_worker_was_seen_is_told_by_the_databases_clock(store: Store) -> None:
    astray = a_worker("a").model_copy(update={"seen_at": now() - timedelta(days=400)})
    store.workers.beat(astray)
    (shown,) = store.workers.live(30)
    assert abs(shown.seen_at - now()) < timedelta(minutes=1)
    assert store.workers.beats() == {"a": shown.seen_at}


def test_a_worker_is_forgotten_by_one_of_several_and_only_while_it_is_silent(store: Store) -> None:
    store.workers.beat(a_worker("a"))
    early = store.workers.beats()["a"]
    make_silent(store, "a")
    with store.workers.removing("a", early) as is_ours:
        assert not is_ours
    with store.workers.removing("a", store.workers.beats()["a"]) as is_ours:
        assert is_ours
    with store.workers.removing("a", early) as is_ours:
        assert not is_ours
    assert store.workers.beats() == {}


def test_a_worker_without_a_row_stays_away_while_its_tasks_are_handed_over(store: Store) -> None:
    with ThreadPoolExecutor(1) as pool:
        with store.workers.holding_absent("a") as is_away:
            assert is_away
            beating = pool.submit(store.workers.beat, a_worker("a"))
            assert wait((beating,), timeout=0.2).not_done
        beating.result()
    with store.workers.holding_absent("a") as is_away:
        assert not is_away


def test_a_worker_whose_tasks_could_not_be_handed_over_is_not_forgotten(store: Store) -> None:
    store.workers.beat(a_worker("a"))
    with pytest.raises(StoreUnavailableError), store.workers.removing("a", store.workers.beats()["a"]):
        raise StoreUnavailableError("away")
    assert [*store.workers.beats()] == ["a"]


def test_the_database_answers(store: Store) -> None:
    assert store.ping()
