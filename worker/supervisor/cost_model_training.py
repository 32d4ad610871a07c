"""Trains each tenant's cost model in the background, on what its searches measured."""

import asyncio
import contextlib
import logging
import sys
from base64 import b64encode
from collections.abc import Sequence

from bessemer.contract.access import Tenant
from bessemer.contract.base import now
from bessemer.contract.cost_model import MIN_FUNCTIONS, LearnedCostModel
from bessemer.store.errors import StoreUnavailableError
from bessemer.store.rows.cost_models import CostModels, Progress
from worker.compiler.tuning.cost_model.trees import read_model
from worker.compiler.tuning.cost_model.version import FEATURES
from worker.errors import TrainingFailedError
from worker.sandbox.environment import ZYGOTE_ENVIRONMENT
from worker.settings import TurnLimits
from worker.supervisor.turns import held_turn
from worker.supervisor.zygote_handle import CHECKOUT

CHECK_SECONDS = 15.0
TRAINING_SECONDS = 60.0
UNSEEN_SHARE = 1 / 8
"""The share of a tenant's functions that must be new, or measured again, for another model."""

MIN_UNSEEN = 4
TRAINER = "worker.compiler.tuning.cost_model"

log = logging.getLogger(__name__)


def is_due(progress: Progress) -> bool:
    """Whether a tenant's searches have measured enough for another model."""
    least = max(MIN_UNSEEN, UNSEEN_SHARE * progress.functions)
    return progress.functions >= MIN_FUNCTIONS and progress.unseen >= least


class CostModelTrainer:
    """Trains models, one at a time, while no job of this host measures.

    Workers that share a database train in turns. A model never takes the place of one that has seen more.
    """

    def __init__(self, models: CostModels, limits: TurnLimits) -> None:
        self._models = models
        self._limits = limits
        self._failed: dict[Tenant, Progress] = {}

    async def run(self) -> None:
        """Look for new measurements again and again until cancelled."""
        while True:
            try:
                await self.train_due()
            except StoreUnavailableError as error:
                log.warning("cannot look for measured plans: %s", error)
            except Exception:
                log.exception("looking for measured plans failed; retrying")
            await asyncio.sleep(CHECK_SECONDS)

    async def train_due(self) -> None:
        """Train the models that are due. One that failed waits for other measurements.

        Raises:
            StoreUnavailableError: the database is away.
        """
        for progress in await self._due():
            if self._failed.get(progress.tenant) == progress:
                continue
            try:
                await self._train_in_turn(progress.tenant)
            except StoreUnavailableError:
                raise
            except Exception as error:
                log.warning("cannot train the cost model of %s: %s", progress.tenant, error)
                self._failed[progress.tenant] = progress

    async def _due(self) -> list[Progress]:
        found = await asyncio.to_thread(self._models.progress, FEATURES)
        return [progress for progress in found if is_due(progress)]

    async def _train_in_turn(self, tenant: Tenant) -> None:
        async with held_turn(self._limits) as is_held:
            # another worker may have trained the model in the meantime
            if is_held and tenant in [progress.tenant for progress in await self._due()]:
                await self._train(tenant)

    async def _train(self, tenant: Tenant) -> None:
        training = await asyncio.to_thread(self._models.training_set, tenant, FEATURES)
        text = await _train_in_process(training.packed, min(TRAINING_SECONDS, self._limits.turn_seconds))
        model = read_model(text)
        learned = LearnedCostModel(
            version=model.version,
            trained_at=now(),
            functions=model.functions,
            plans=model.plans,
            families=model.accuracy,
        )
        await asyncio.to_thread(self._models.put, tenant, FEATURES, learned, text, training.newest_at)
        used = sum(family.used for family in learned.families)
        log.info(
            "the cost model %s of %s learned from %d plans of %d functions; it ranks %d of %d kinds of plans",
            *(model.version, tenant, model.plans, model.functions, used, len(learned.families)),
        )


async def _train_in_process(packed: Sequence[bytes], limit_seconds: float) -> bytes:
    """The model as a file, from measured functions as they are stored.

    Raises:
        TrainingFailedError: the process failed, or took too long.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", TRAINER),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=CHECKOUT,
        env=ZYGOTE_ENVIRONMENT,
        start_new_session=True,
    )
    try:
        lines = b"".join(b64encode(each) + b"\n" for each in packed)
        output, errors = await asyncio.wait_for(process.communicate(lines), limit_seconds)
    except TimeoutError:
        raise TrainingFailedError(f"it took more than {limit_seconds:g} s") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await asyncio.shield(process.wait())
    if process.returncode != 0:
        last = errors.decode(errors="replace").strip().splitlines()[-1:] or [f"status {process.returncode}"]
        raise TrainingFailedError(last[0])
    return output
