"""The fleet: the queue, the workers and devices and what they do, and what is stored."""

from dataclasses import dataclass
from datetime import datetime

from fastapi import APIRouter, Request, Response

from app.console.rendering import page
from app.identity.caller import CallerDep
from app.quotas import usage_of
from app.readiness import readiness
from app.service import OperatorDep, TenantService
from bessemer.contract.access import Scope
from bessemer.contract.base import now
from bessemer.contract.device import platforms_of
from bessemer.contract.fleet import offered
from bessemer.contract.job import Compilation, JobState
from bessemer.contract.listing import CompilationFilter
from bessemer.contract.target import PRESETS
from bessemer.contract.usage import Use

SHOWN_JOBS = 20
router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class Meter:
    """A part of a quota; ``share`` is how much of it is used, 0 to 100, or None without a limit."""

    name: str
    use: Use
    unit: str

    @property
    def share(self) -> float | None:
        """How full it is."""
        limit = self.use.limit
        return None if limit is None else 100.0 if not limit else min(100.0, 100.0 * self.use.used / limit)


@router.get("/console/fleet")
def show_fleet(request: Request, service: OperatorDep, caller: CallerDep) -> Response:
    """What the caller may see of the service: its tenant's part, or all of it for an administrator."""
    tenant = service.for_caller(caller)
    is_admin = caller.scope is Scope.ADMIN
    workers, devices = tenant.live_workers(), tenant.data.devices.live()
    liveness = service.settings.worker_liveness_seconds
    template = "fleet_live.html.j2" if "hx-request" in request.headers else "fleet.html.j2"
    return page(
        request,
        template,
        readiness=readiness(service),
        workers=workers if is_admin else (),
        devices=devices,
        targets=offered(PRESETS, workers, platforms_of(devices)),
        meters=_meters(tenant),
        running=_jobs(tenant, JobState.RUNNING),
        queued=_jobs(tenant, JobState.QUEUED),
        statistics=service.store.statistics(liveness) if is_admin else None,
        since=_since,
        most=SHOWN_JOBS,
    )


def _jobs(tenant: TenantService, state: JobState) -> tuple[Compilation, ...]:
    found = tenant.data.jobs.page(SHOWN_JOBS, None, CompilationFilter(state=state))
    return tuple(map(tenant.with_position, found.items))


def _meters(tenant: TenantService) -> tuple[Meter, ...]:
    usage = usage_of(tenant)
    return (
        Meter("Running compilations", usage.running_jobs, ""),
        Meter("Queued compilations", usage.queued_jobs, ""),
        Meter("Uploads in progress", usage.uploads, ""),
        Meter("Stored files", usage.stored_bytes, "bytes"),
        Meter("Tuning records", usage.record_bytes, "bytes"),
        Meter("Worker time today", usage.worker_seconds, "seconds"),
    )


def _since(moment: datetime) -> float:
    """Seconds since a time."""
    return max(0.0, (now() - moment).total_seconds())
