"""The app's process: serves the API until SIGINT or SIGTERM."""

import asyncio
import signal
import socket
import sys
from types import FrameType

import uvicorn
from fastapi import FastAPI

from app.http.protocol import protocol
from app.identity.oidc import PolicyError
from app.identity.start_check import OpenServiceError, require_access_control
from app.main import create_app
from app.settings import AppSettings
from bessemer.store.errors import StoreUnavailableError
from bessemer.store.privacy import keep_private
from bessemer.store.quotas import QuotaFileError
from bessemer.store.settings import read_settings
from bessemer.telemetry.logs import LogSettings, set_up_logs
from bessemer.telemetry.traces import TelemetryMissingError

KEEP_ALIVE_SECONDS = 60
CANNOT_START = (
    OpenServiceError,
    PolicyError,
    QuotaFileError,
    StoreUnavailableError,
    TelemetryMissingError,
)


class Server(uvicorn.Server):
    """Reports readiness, and ends open event streams before it waits for connections to close."""

    def __init__(self, config: uvicorn.Config, stopping: asyncio.Event) -> None:
        super().__init__(config)
        self._stopping = stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then print a line that a parent process can wait for."""
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            sys.stdout.write(f"app: ready at http://{shown}:{port}\n")
            sys.stdout.flush()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the event streams, then stop."""
        self._stopping.set()
        await super().shutdown(sockets)


def main() -> None:
    """Serve until a signal; then exit with 0."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _exit)
    settings = read_settings(AppSettings)
    set_up_logs(read_settings(LogSettings))
    keep_private(settings.folder)
    try:
        require_access_control(settings)
        app = create_app(settings)
    except CANNOT_START as error:
        sys.exit(f"the app cannot start: {error}")
    Server(server_config(app, settings), app.state.stopping).run()


def server_config(app: FastAPI, settings: AppSettings) -> uvicorn.Config:
    """Configure uvicorn. Only trusted proxies may name the client's address."""
    return uvicorn.Config(
        app,
        http=protocol(settings.request_head_seconds),
        host=settings.host,
        port=settings.port,
        log_config=None,  # uvicorn's loggers use our handler
        access_log=False,  # uvicorn logs query strings; the app has its own access log
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        timeout_graceful_shutdown=settings.stop_seconds,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
    )


def _exit(_signal: int, _frame: FrameType | None) -> None:
    """Exit with 0 when uvicorn, after it has stopped, raises the signal again."""
    sys.exit(0)
