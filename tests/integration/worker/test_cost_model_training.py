"""Workers train each tenant's cost model on what its searches measured, in a process of its own."""

import asyncio
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pydantic import ValidationError
from worker_samples import wait_until

from bessemer.contract.base import now
from bessemer.contract.cost_model import MIN_FUNCTIONS, MeasuredFunction, PackedPlans, packed
from bessemer.contract.records import SearchScope
from bessemer.store.rows.cost_models import Progress
from bessemer.store.settings import StoreSettings
from bessemer.store.store import Store, open_store
from worker.compiler.tuning.cost_model.trees import read_model
from worker.compiler.tuning.cost_model.version import FEATURES
from worker.settings import TurnLimits
from worker.supervisor import cost_model_training
from worker.supervisor.cost_model_training import CostModelTrainer, is_due
from worker.supervisor.turns import held_turn, make_lock_files

KIND = "x86_64 256 parallel"
SCOPE = SearchScope(target="x86_64 znver4", threads=2, compiler="tvm", tvm_target="{}")
TENANT, OTHER = "builders", "others"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(StoreSettings(data=tmp_path / "data"))
    yield opened
    opened.close()


@pytest.fixture
def limits(tmp_path: Path) -> TurnLimits:
    found = TurnLimits(lock=tmp_path / "measuring", patience_seconds=60.0, turn_seconds=60.0)
    make_lock_files(found.lock)
    return found


@pytest.fixture
def trainer(store: Store, limits: TurnLimits) -> CostModelTrainer:
    return CostModelTrainer(store.cost_models, limits)


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
    found = {str(source): packed(measured(source)) for source in sources}
    store.cost_models.add(tenant, SCOPE, FEATURES, {name: plans for name, plans in found.items() if plans})


async def test_a_model_learns_when_enough_functions_were_measured(
    store: Store, trainer: CostModelTrainer
) -> None:
    add(store, *range(MIN_FUNCTIONS - 1))
    await trainer.train_due()
    assert store.for_tenant(TENANT).cost_model.get() is None

    add(store, *range(30))
    await trainer.train_due()

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


async def test_a_model_learns_again_after_an_eighth_more(store: Store, trainer: CostModelTrainer) -> None:
    add(store, *range(16))
    await trainer.train_due()
    first = store.cost_models.get(TENANT, FEATURES)
    add(store, *range(16, 19))
    await trainer.train_due()
    assert store.cost_models.get(TENANT, FEATURES) == first
    add(store, 19)
    await trainer.train_due()
    assert store.cost_models.get(TENANT, FEATURES) != first


@pytest.mark.parametrize(
    ("functions", "unseen", "due"),
    [(7, 7, False), (8, 8, True), (8, 3, False), (8, 4, True), (80, 9, False), (80, 10, True)],
)
def test_a_model_is_due_when_an_eighth_of_the_functions_is_new(
    functions: int, unseen: int, due: bool
) -> None:
    assert is_due(Progress(TENANT, functions, unseen, now())) is due


async def test_a_training_that_fails_harms_no_other_tenant_and_is_not_repeated(
    store: Store, trainer: CostModelTrainer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    add(store, *range(9))
    monkeypatch.setattr(cost_model_training, "TRAINER", "worker.no_such_module")
    await trainer.train_due()
    assert "No module named worker.no_such_module" in caplog.text
    monkeypatch.undo()

    add(store, *range(9), tenant=OTHER)
    await trainer.train_due()
    assert store.for_tenant(OTHER).cost_model.get() is not None
    assert store.for_tenant(TENANT).cost_model.get() is None

    add(store, 9)
    await trainer.train_due()
    assert store.for_tenant(TENANT).cost_model.get() is not None


async def test_a_function_that_cannot_be_read_is_left_out(store: Store, trainer: CostModelTrainer) -> None:
    add(store, *range(10))
    store.cost_models.add(TENANT, SCOPE, FEATURES, {"odd": PackedPlans(2, zlib.compress(b"{}"))})
    await trainer.train_due()
    learned = store.for_tenant(TENANT).cost_model.get()
    assert learned is not None
    assert learned.functions == 10


async def test_no_model_is_trained_while_a_job_measures(store: Store, limits: TurnLimits) -> None:
    add(store, *range(9))
    hurried = CostModelTrainer(store.cost_models, replace(limits, patience_seconds=0.2))
    async with held_turn(limits) as is_held:
        assert is_held
        await hurried.train_due()
        assert store.for_tenant(TENANT).cost_model.get() is None
    await hurried.train_due()
    assert store.for_tenant(TENANT).cost_model.get() is not None


async def test_of_two_workers_only_one_trains_a_model(
    store: Store, limits: TurnLimits, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    add(store, *range(9))
    both = (CostModelTrainer(store.cost_models, limits) for _ in range(2))
    await asyncio.gather(*(each.train_due() for each in both))
    assert caplog.text.count("learned from 90 plans of 9 functions") == 1


def started_process(file: Path) -> Path:
    """The process that has written its id to a file."""
    wait_until(lambda: file.exists() and file.read_text() != "")
    return Path(f"/proc/{file.read_text()}")


async def test_a_cancelled_training_leaves_no_process_and_no_lock(
    store: Store, limits: TurnLimits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "started"
    (tmp_path / "endless.py").write_text(
        f"import os, time\nopen({str(started)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    monkeypatch.setattr(cost_model_training, "CHECKOUT", tmp_path)
    monkeypatch.setattr(cost_model_training, "TRAINER", "endless")
    add(store, *range(9))
    training = asyncio.create_task(CostModelTrainer(store.cost_models, limits).run())
    process = await asyncio.to_thread(started_process, started)
    training.cancel()
    with pytest.raises(asyncio.CancelledError):
        await training
    assert not process.exists()
    async with held_turn(replace(limits, patience_seconds=0.5)) as is_held:
        assert is_held


@pytest.mark.parametrize(
    "changes",
    [
        {"features": ({"width": 1e39},) * 10},
        {"features": ({"width": float("nan")},) * 10},
        {"features": ({"\N{SNOWMAN}": 1.0},) * 10},
        {"features": ({f"f{number}": 1.0 for number in range(161)},) * 10},
        {"seconds": (1e-300,) * 10},
        {"seconds": (1e300,) * 10},
        {"places": (0,) * 9},
        {"places": (-1,) * 10},
        {"kind": "x86_64"},
    ],
)
def test_numbers_that_would_break_a_training_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        MeasuredFunction.model_validate(measured(1).model_dump() | changes)


def test_a_function_that_takes_too_much_is_not_stored() -> None:
    draws = Random(0)
    features = tuple({f"f{number}": draws.random() for number in range(160)} for _ in range(10))
    assert packed(measured(1).model_copy(update={"features": features})) is None
