"""Workers train each tenant's cost model on what its searches measured, in a process of its own."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from bessemer.contract.cost_model import MIN_FUNCTIONS, MeasuredFunction
from bessemer.contract.records import SearchScope
from bessemer.store.rows.cost_models import Progress
from bessemer.store.settings import StoreSettings
from bessemer.store.store import Store, open_store
from worker.compiler.tuning.cost_model.trees import read_model
from worker.compiler.tuning.cost_model.version import FEATURES
from worker.settings import TurnLimits
from worker.supervisor import learning
from worker.supervisor.learning import Learner, is_due
from worker.supervisor.turns import make_lock_files

KIND = "x86_64 256 parallel"
SCOPE = SearchScope(target="x86_64 znver4", threads=2, compiler="tvm", tvm_target="{}")
TENANT, OTHER = "builders", "others"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(StoreSettings(data=tmp_path / "data"))
    yield opened
    opened.close()


@pytest.fixture
def learner(store: Store, tmp_path: Path) -> Learner:
    limits = TurnLimits(lock=tmp_path / "measuring", patience_seconds=60.0, turn_seconds=60.0)
    make_lock_files(limits.lock)
    return Learner(store.cost_models, limits)


def measured(source: int) -> MeasuredFunction:
    """A function whose fastest plans are wide, which the family's own order does not know."""
    draws = Random(source)
    widths = [float(draws.randrange(1, 9)) for _ in range(10)]
    return MeasuredFunction(
        source=str(source),
        family="matmul",
        kind=KIND,
        features=tuple({"width": width} for width in widths),
        places=tuple(range(10)),
        seconds=tuple(1.0 / width for width in widths),
    )


def add(store: Store, *sources: int, tenant: str = TENANT) -> None:
    store.cost_models.add(tenant, SCOPE, FEATURES, [measured(source) for source in sources])


async def test_a_model_learns_when_enough_functions_were_measured(store: Store, learner: Learner) -> None:
    add(store, *range(MIN_FUNCTIONS - 1))
    await learner.learn()
    assert store.for_tenant(TENANT).cost_model.get() is None

    add(store, *range(30))
    await learner.learn()

    learned = store.for_tenant(TENANT).cost_model.get()
    assert learned is not None
    assert (learned.functions, learned.plans) == (30, 300)
    (family,) = learned.families
    assert (family.family, family.kind, family.used) == ("matmul", KIND, True)
    assert family.accuracy > 0.9 > family.analytic_accuracy
    text = store.cost_models.get(TENANT, FEATURES)
    assert text is not None
    model = read_model(text)
    assert model.version == learned.version
    assert model.of("matmul", KIND) is not None
    assert store.for_tenant(OTHER).cost_model.get() is None


async def test_a_model_learns_again_after_an_eighth_more(store: Store, learner: Learner) -> None:
    add(store, *range(16))
    await learner.learn()
    first = store.cost_models.get(TENANT, FEATURES)
    add(store, 16)
    await learner.learn()
    assert store.cost_models.get(TENANT, FEATURES) == first
    add(store, *range(17, 20))
    await learner.learn()
    assert store.cost_models.get(TENANT, FEATURES) != first


@pytest.mark.parametrize(
    ("functions", "unseen", "due"),
    [(7, 7, False), (8, 8, True), (8, 1, True), (80, 9, False), (80, 10, True), (80, 0, False)],
)
def test_a_model_is_due_when_an_eighth_of_the_functions_is_new(
    functions: int, unseen: int, due: bool
) -> None:
    assert is_due(Progress(TENANT, functions, unseen)) is due


async def test_a_training_that_fails_harms_no_other_tenant_and_is_not_repeated(
    store: Store, learner: Learner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    add(store, *range(9))
    monkeypatch.setattr(learning, "_TRAINER", "worker.no_such_module")
    await learner.learn()
    assert "No module named worker.no_such_module" in caplog.text
    monkeypatch.undo()

    add(store, *range(9), tenant=OTHER)
    await learner.learn()
    assert store.for_tenant(OTHER).cost_model.get() is not None
    assert store.for_tenant(TENANT).cost_model.get() is None

    add(store, 9)
    await learner.learn()
    assert store.for_tenant(TENANT).cost_model.get() is not None
