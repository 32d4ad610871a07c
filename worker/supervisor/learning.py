"""Trains each tenant's cost model in the background, on what its searches measured."""

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bessemer.contract.access import Tenant
from bessemer.contract.base import now
from bessemer.contract.cost_model import MIN_FUNCTIONS, LearnedCostModel, MeasuredFunction
from bessemer.store.errors import StoreUnavailableError
from bessemer.store.rows.cost_models import CostModels, Progress
from worker.compiler.tuning.cost_model.trees import CostModelError, read_model
from worker.compiler.tuning.cost_model.version import FEATURES
from worker.sandbox.environment import ZYGOTE_ENVIRONMENT
from worker.settings import TurnLimits
from worker.supervisor.turns import HostTurns
from worker.supervisor.zygote_handle import CHECKOUT

CHECK_SECONDS = 15.0
TRAINING_SECONDS = 120.0
UNSEEN_SHARE = 1 / 8
"""The share of a tenant's functions that a new model must learn anew."""

_TRAINER = "worker.compiler.tuning.cost_model"

log = logging.getLogger(__name__)


class TrainingFailedError(Exception):
    """The process that trains a model failed, or took too long."""


def is_due(progress: Progress) -> bool:
    """Whether a tenant's searches have measured enough for another model."""
    return progress.functions >= MIN_FUNCTIONS and progress.unseen >= UNSEEN_SHARE * progress.functions


class Learner:
    """Trains models, one at a time, while no job of this host measures.

    Workers that share a database may train the same model; the later one takes the place of the other.
    """

    def __init__(self, models: CostModels, limits: TurnLimits) -> None:
        self._models = models
        self._limits = limits
        self._failed: dict[Tenant, Progress] = {}

    async def keep(self) -> None:
        """Look for new measurements again and again until cancelled."""
        while True:
            try:
                await self.learn()
            except StoreUnavailableError as error:
                log.warning("cannot look for measurements to learn from: %s", error)
            except Exception:
                log.exception("learning failed; retrying")
            await asyncio.sleep(CHECK_SECONDS)

    async def learn(self) -> None:
        """Train the models that are due. One that failed waits for other measurements."""
        for progress in await asyncio.to_thread(self._models.progress, FEATURES):
            if not is_due(progress) or self._failed.get(progress.tenant) == progress:
                continue
            try:
                await self._train(progress.tenant)
            except (TrainingFailedError, CostModelError) as error:
                log.warning("cannot train the cost model of %s: %s", progress.tenant, error)
                self._failed[progress.tenant] = progress

    async def _train(self, tenant: Tenant) -> None:
        lesson = await asyncio.to_thread(self._models.lesson, tenant, FEATURES)
        if lesson is None:
            return
        async with _turn(self._limits):
            text = await _trained(lesson.functions)
        model = read_model(text)
        learned = LearnedCostModel(
            version=model.version,
            trained_at=now(),
            functions=model.functions,
            plans=model.plans,
            families=model.accuracy,
        )
        await asyncio.to_thread(self._models.put, tenant, FEATURES, learned, text, lesson.until)
        used = sum(family.used for family in learned.families)
        log.info(
            "the cost model %s of %s learned from %d plans of %d functions; it ranks %d of %d kinds of plans",
            *(model.version, tenant, model.plans, model.functions, used, len(learned.families)),
        )


@asynccontextmanager
async def _turn(limits: TurnLimits) -> AsyncIterator[None]:
    """The host's turn to measure, so that training slows no measurement."""
    granted = asyncio.Event()
    turns = HostTurns(limits, granted.set)
    turns.begin()
    try:
        await granted.wait()
        yield
    finally:
        await turns.close()


async def _trained(functions: tuple[MeasuredFunction, ...]) -> bytes:
    lines = b"".join(function.model_dump_json().encode() + b"\n" for function in functions)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", _TRAINER),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=CHECKOUT,
        env=ZYGOTE_ENVIRONMENT,
    )
    try:
        output, errors = await asyncio.wait_for(process.communicate(lines), TRAINING_SECONDS)
    except TimeoutError:
        raise TrainingFailedError(f"it took more than {TRAINING_SECONDS:g} s") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await asyncio.shield(process.wait())
    if process.returncode != 0:
        last = errors.decode(errors="replace").strip().splitlines()[-1:] or [f"status {process.returncode}"]
        raise TrainingFailedError(last[0])
    return output
