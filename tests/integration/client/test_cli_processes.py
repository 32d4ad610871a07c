"""``bessemer serve`` and its processes."""

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bessemer.cli.processes import ChildProcesses
from bessemer.cli.serving import LOCK
from worker.supervisor.processes import read_process

ROOT = Path(__file__).parents[3]
SLEEPER = (sys.executable, "-c", "import time; time.sleep(60)")
DEAF = (
    sys.executable,
    "-c",
    "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)",
)


READY_APP = """
import os, pathlib
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer
from bessemer.contract.sandbox import SandboxMode, SandboxStatus
from bessemer.contract.service import Readiness, Worker

worker = Worker(
    id="w", host="h", processor="p", mcpu="m", cores=1, versions={},
    sandbox=SandboxStatus(mode=SandboxMode.OFF, layers=()),
    seen_at=datetime.now(timezone.utc) + timedelta(hours=1),
)
answer = Readiness(ready=True, database=True, store=True, workers=(worker,)).model_dump_json().encode()

class Ready(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

assert os.environ["BESSEMER_PORT"] == "0"
server = HTTPServer(("127.0.0.1", 0), Ready)
(pathlib.Path(os.environ["BESSEMER_DATA"]) / "port").write_text(str(server.server_port))
print(f"app: ready at http://127.0.0.1:{server.server_port}", flush=True)
server.handle_request()
"""


def alive(pid: int) -> bool:
    process = read_process(pid)
    return process is not None and not process.zombie


def wait_until_gone(pids: list[int]) -> None:
    for _ in range(600):
        if not any(alive(pid) for pid in pids):
            return
        time.sleep(0.05)
    raise AssertionError(f"still alive: {[pid for pid in pids if alive(pid)]}")


def start(family: ChildProcesses, name: str, command: tuple[str, ...]) -> int:
    family.start(name, command, ROOT, os.environ)
    return family._children[name].pid


def test_the_others_end_when_one_ends() -> None:
    with ChildProcesses() as family:
        sleeper = start(family, "sleeper", SLEEPER)
        start(family, "short", (sys.executable, "-c", "raise SystemExit(3)"))
        assert not family.wait_until(lambda: False)
        assert family.ended() == ("short", 3)
    assert not alive(sleeper)


def test_a_signal_ends_the_wait_and_every_process() -> None:
    with ChildProcesses() as family:
        sleeper = start(family, "sleeper", SLEEPER)
        assert not family.wait_until(lambda: os.kill(os.getpid(), signal.SIGTERM) is not None)
        assert family.stopping
    assert not alive(sleeper)


def test_a_process_that_does_not_stop_is_killed() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader) as output, ChildProcesses(stop_seconds=0.2) as family:
        family.start("deaf", DEAF, ROOT, os.environ, writer)
        os.close(writer)
        assert output.readline() == "deaf\n"
        deaf = family._children["deaf"]
        assert family.ended() is None
    assert deaf.returncode == -signal.SIGKILL


def test_children_do_not_outlive_a_killed_parent() -> None:
    code = (
        "import os, sys, time; from pathlib import Path; from bessemer.cli.processes import ChildProcesses\n"
        "family = ChildProcesses()\n"
        f"family.start('sleeper', {SLEEPER!r}, Path('.'), os.environ)\n"
        "print(family._children['sleeper'].pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    wait_until_gone([child])


def serve(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bessemer.cli", "serve", *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """The package alone, as a wheel installs it, beside an unrelated package ``app``."""
    shutil.copytree(ROOT / "bessemer", tmp_path / "bessemer")
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__init__.py").touch()
    return tmp_path


def test_a_wheel_says_that_the_server_runs_from_a_checkout(wheel: Path) -> None:
    ran = serve(wheel, "--data", str(wheel / "data"))
    assert ran.returncode == 1
    assert "from a checkout or an image" in ran.stderr


def test_a_port_in_use_is_reported_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = serve(ROOT, "--data", str(tmp_path), "--port", str(port))
    assert (ran.returncode, ran.stderr) == (1, f"error: port {port} is in use; choose another with --port\n")


def test_serve_prints_the_port_assigned_to_the_app(wheel: Path) -> None:
    (wheel / "worker").mkdir()
    (wheel / "worker" / "__init__.py").touch()
    (wheel / "worker" / "__main__.py").write_text("import time; time.sleep(60)")
    (wheel / "app" / "__main__.py").write_text(READY_APP)
    ran = serve(wheel, "--data", str(wheel / "data"), "--port", "0")
    port = (wheel / "data" / "port").read_text()
    assert ran.stdout == f"Bessemer is ready at http://127.0.0.1:{port} (Ctrl-C stops it)\n"


@pytest.mark.parametrize("is_used", [False, True])
def test_serve_says_if_another_service_uses_the_folder(wheel: Path, is_used: bool) -> None:
    for program in ("app", "worker"):
        (wheel / program).mkdir(exist_ok=True)
        (wheel / program / "__init__.py").touch()
        (wheel / program / "__main__.py").write_text("raise SystemExit(7)")
    (wheel / "data").mkdir()
    with (wheel / "data" / LOCK).open("w") as lock:
        if is_used:
            fcntl.flock(lock, fcntl.LOCK_EX)
        ran = serve(wheel, "--data", str(wheel / "data"), "--port", "0")
    assert ("another `bessemer serve` already uses" in ran.stderr) is is_used


def test_when_the_app_dies_the_worker_is_stopped_and_the_status_is_1(wheel: Path) -> None:
    (wheel / "worker").mkdir()
    (wheel / "worker" / "__init__.py").touch()
    pid = wheel / "worker.pid"
    (wheel / "worker" / "__main__.py").write_text(
        f"import os, time; os.symlink(str(os.getpid()), {str(pid)!r}); time.sleep(60)"
    )
    (wheel / "app" / "__main__.py").write_text(
        f"import os, time\nwhile not os.path.islink({str(pid)!r}): time.sleep(0.05)\nraise SystemExit(7)"
    )
    ran = serve(wheel, "--data", str(wheel / "data"), "--port", "0")
    assert ran.returncode == 1
    assert "the app ended with status 7" in ran.stderr
    assert not alive(int(pid.readlink().name))
