"""The app: its routes, and the lifespan of its store and queue."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib.metadata import version

import httpx
from fastapi import Depends, FastAPI, Request
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from app import console
from app.event_broadcaster import EventBroadcaster
from app.http import problems
from app.http.conditional import Conditional
from app.http.query_parameters import refuse_unknown_parameters
from app.http.request_ids import RequestIds
from app.http.security_headers import SecurityHeaders
from app.identity.authentication import Access, Authentication
from app.identity.login import Login
from app.identity.oidc import TokenVerifier, read_policy
from app.identity.origins import Origins
from app.observability.log_fields import name_subjects
from app.observability.metrics import AppMetrics
from app.observability.request_log import Metering
from app.observability.tracing import Tracing
from app.openapi import document as documentation
from app.openapi import page as reference
from app.queue_position import QueuePositions
from app.routes import (
    artifacts,
    audit,
    code,
    compilations,
    cost_model,
    devices,
    events,
    extensions,
    groups,
    health,
    invocations,
    ir,
    keys,
    metrics,
    models,
    records,
    submissions,
    targets,
    usage,
    workers,
)
from app.service import Service
from app.settings import AppSettings
from app.sweeper import run_sweeps
from bessemer.contract.access import Scope
from bessemer.contract.keys import KeyRequest
from bessemer.store.queue.dbos_queue import open_queue
from bessemer.store.quotas import Quotas, read_quotas
from bessemer.store.store import Store, open_store
from bessemer.telemetry.traces import open_tracer

DESCRIPTION = """Upload a PyTorch model, choose a target, and get a verified and benchmarked library.

Errors are RFC 9457 problems with a stable `code`, advice, and whether a retry can help."""
ADMIN_KEY_NAME = "BESSEMER_ADMIN_KEY"
ID_SECRET = "resource-ids"
"""The name of the secret that makes ids from idempotency keys."""

TAGS = [
    {"name": "models", "description": "Uploading models."},
    {"name": "extensions", "description": "Uploading Python files that add to the compiler."},
    {"name": "compilations", "description": "Compiling a model to a library."},
    {"name": "groups", "description": "Compiling a model for several targets at once."},
    {"name": "artifacts", "description": "The files of a compilation."},
    {"name": "invocations", "description": "Running a compiled library."},
    {"name": "usage", "description": "What your tenant uses, and its limits."},
    {"name": "targets", "description": "The targets to compile for."},
    {"name": "workers", "description": "The processes that compile."},
    {"name": "devices", "description": "The machines that verify and measure libraries for other platforms."},
    {"name": "tuning records", "description": "What searches measured, which serves later compilations."},
    {"name": "keys", "description": "API keys and the audit log, for administrators."},
    {"name": "health", "description": "Health and metrics of the service."},
]

ROUTES = (
    models,
    extensions,
    submissions,
    compilations,
    groups,
    events,
    artifacts,
    code,
    ir,
    invocations,
    targets,
    usage,
    workers,
    devices,
    records,
    cost_model,
    keys,
    audit,
    health,
    metrics,
)
"""The modules of routes, in the order of the OpenAPI document."""


def create_app(settings: AppSettings | None = None) -> FastAPI:
    """Create the app; its lifespan opens the store and the queue.

    Args:
        settings: by default, read from the environment.

    Raises:
        QuotaFileError: the file of quotas cannot be used.
    """
    app = FastAPI(
        title="Bessemer",
        version=version("bessemer"),
        summary="PyTorch models in, verified and measured libraries out.",
        description=DESCRIPTION,
        openapi_tags=TAGS,
        lifespan=_lifespan,
        docs_url=None,  # FastAPI's own pages load their scripts from another host
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=_operation_id,
        dependencies=[Depends(name_subjects), Depends(refuse_unknown_parameters)],
    )
    app.state.settings = settings or AppSettings()
    app.state.quotas = read_quotas(app.state.settings)
    app.state.stopping = asyncio.Event()
    app.state.metrics = AppMetrics()
    app.state.tracer = open_tracer("app")
    _add_middlewares(app)
    problems.install(app)
    for module in ROUTES:
        app.include_router(module.router)
    app.add_api_route("/", _root, methods=["GET", "HEAD"], include_in_schema=False)
    documentation.install(app)
    reference.install(app)
    return app


def _add_middlewares(app: FastAPI) -> None:
    """Add the middlewares; the one that is added last runs first."""
    app.add_middleware(Conditional)
    app.add_middleware(Authentication)
    app.add_middleware(Metering, metrics=app.state.metrics)
    app.add_middleware(Tracing, tracer=app.state.tracer)
    app.add_middleware(Origins)
    if app.state.settings.console:
        console.install(app)
    app.add_middleware(SecurityHeaders)
    app.add_middleware(RequestIds)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: AppSettings = app.state.settings
    store = await run_in_threadpool(open_store, settings)
    try:
        queue = await run_in_threadpool(open_queue, settings)
        try:
            quotas: Quotas = app.state.quotas
            positions = QueuePositions(
                store, queue, settings.worker_liveness_seconds, lambda tenant: quotas.of(tenant).running_jobs
            )
            broadcaster = EventBroadcaster(
                store.jobs,
                app.state.stopping,
                settings.events_poll_seconds,
                settings.events_quiet_poll_seconds,
            )
            service = Service(
                settings=settings,
                store=store,
                queue=queue,
                queue_positions=positions,
                broadcaster=broadcaster,
                stopping=app.state.stopping,
                metrics=app.state.metrics,
                id_secret=await run_in_threadpool(store.secret, ID_SECRET),
                quotas=quotas,
            )
            app.state.service = service
            async with _open_access(settings, store) as app.state.access, _working(service):
                yield
        finally:
            await run_in_threadpool(queue.close)
    finally:
        await run_in_threadpool(store.close)
        await run_in_threadpool(app.state.tracer.close)


@asynccontextmanager
async def _open_access(settings: AppSettings, store: Store) -> AsyncIterator[Access]:
    if settings.admin_key is not None:
        request = KeyRequest(scope=Scope.ADMIN, name=ADMIN_KEY_NAME)
        await run_in_threadpool(store.keys.ensure, settings.admin_key.get_secret_value(), request)
    async with AsyncExitStack() as stack:
        tokens = None
        if settings.oidc_policy is not None:
            client = await stack.enter_async_context(httpx.AsyncClient())
            tokens = TokenVerifier(read_policy(settings.oidc_policy), client)
        login = Login(settings, store.keys, tokens)
        await login.asks_for_keys()  # remembers that keys exist in case the database becomes unavailable
        yield Access(login, store.audit)


@asynccontextmanager
async def _working(service: Service) -> AsyncIterator[None]:
    sweeping = asyncio.create_task(run_sweeps(service))
    looking = asyncio.create_task(service.broadcaster.run())
    try:
        yield
    finally:
        service.stopping.set()
        sweeping.cancel()
        with suppress(asyncio.CancelledError):
            await sweeping
        await looking


async def _root(request: Request) -> RedirectResponse:
    settings: AppSettings = request.app.state.settings
    return RedirectResponse(console.HOME if settings.console else "/docs")


def _operation_id(route: APIRoute) -> str:
    return route.name
