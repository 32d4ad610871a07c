"""``python -m worker.device`` makes this machine a device, which verifies and measures bundles.

A device calls the service by HTTP(S), never the other way round: it registers, takes one task at a time,
downloads the bundle into a folder of its own, runs the bundle's program on the reference inputs, sends what
the program found, and deletes the folder. For a search, it downloads and times candidates in the same way.

This file needs Python 3.9 or newer under Linux and nothing else, so it can be copied to a board alone.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import errno
import fcntl
import json
import logging
import os
import platform
import re
import resource
import shlex
import signal
import socket
import ssl
import stat
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO, Any, cast

VERSION = "3"
DEFAULT_URL = "http://127.0.0.1:8000"
WAIT_SECONDS = 20
TIMEOUT_SECONDS = 10.0
FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 30.0
RENEWALS_PER_LEASE = 5
DOWNLOADS = 5
POLL_SECONDS = 0.05
COPY_BYTES = 1 << 18
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MAX_FILES = 4096
MAX_HEADER_BYTES = 1 << 20
KILL_SECONDS = 10.0
"""How long the processes that a program left behind may take to end."""
MAX_REPORT_BYTES = 1 << 19
MAX_COMMANDS_BYTES = 1 << 22
TAIL_CHARACTERS = 1500
MAX_CANDIDATES = 512
FAILURE_CHARACTERS = 300
"""The limit for each candidate, so that a result stays below the service's limit of 1 MiB."""
MAX_MILLISECONDS = 1e9
NOBODY = 65534
EMULATORS = ("qemu-", "box64", "fex")
LOOPBACK = ("127.0.0.1", "localhost", "::1")

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000

CANDIDATES = "candidates.json"
PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
ARM_PARTS = {
    "0xd03": "Cortex-A53",
    "0xd04": "Cortex-A35",
    "0xd05": "Cortex-A55",
    "0xd07": "Cortex-A57",
    "0xd08": "Cortex-A72",
    "0xd09": "Cortex-A73",
    "0xd0a": "Cortex-A75",
    "0xd0b": "Cortex-A76",
    "0xd0c": "Neoverse N1",
    "0xd40": "Neoverse V1",
    "0xd41": "Cortex-A78",
    "0xd42": "Cortex-A78AE",
    "0xd49": "Neoverse N2",
    "0xd4f": "Neoverse V2",
}

GPU_SUFFIX = "-cuda"
CUDA_LIBRARIES = (
    "libcuda.so.1",
    "/usr/local/nvidia/lib64/libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1",
)
CUDA_VERSION = Path("/sys/module/nvidia/version")
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76
PROBE = "--probe-gpus"
PROBE_SECONDS = 30.0
CUDA_VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
"""The environment variables that programs, and the search for GPUs, get."""

log = logging.getLogger("device")


class StoppedError(Exception):
    """The device cannot work; the message says why."""


class AwayError(Exception):
    """The service did not answer, or cannot now."""


class GoneError(Exception):
    """The service does not know this device, or the device no longer has its task."""


class UnfitError(Exception):
    """This machine cannot run a bundle that another may."""


class RefusedError(Exception):
    """The service refused a request."""


class BadBundleError(Exception):
    """The bundle is not one that a device unpacks."""


@dataclass(frozen=True)
class Settings:
    """The device's name, and what its programs may use.

    Attributes:
        launcher: the words before the path of a program, such as those of an emulator.
        emulated: whether an emulator runs the programs, so that their times mean nothing.
        folder: the parent of the device's own folder.
        uid: the user that runs programs if the device is root.
        gpus: the GPUs that programs use, as the service keeps them.
    """

    url: str
    key: str | None
    name: str
    platform: str
    launcher: tuple[str, ...]
    emulated: bool
    cores: int
    memory_bytes: int
    disk_bytes: int
    folder: Path
    uid: int
    once: bool
    gpus: tuple[dict[str, Any], ...] = ()


class Service:
    """The service's API. Every request leaves this machine; none arrives."""

    def __init__(self, url: str, key: str | None) -> None:
        self._url = url.rstrip("/")
        self._headers = {"User-Agent": f"bessemer-device/{VERSION}", "Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        host = urllib.parse.urlsplit(url).hostname
        proxies: dict[str, str] | None = {} if host in LOOPBACK else None
        # without the handler of redirects, which would send the key elsewhere
        self._opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler(proxies),
            urllib.request.HTTPHandler(),
            urllib.request.HTTPSHandler(context=ssl.create_default_context()),
            urllib.request.HTTPErrorProcessor(),
            urllib.request.HTTPDefaultErrorHandler(),
        ):
            self._opener.add_handler(handler)

    def send(self, method: str, path: str, body: object = None, timeout: float = TIMEOUT_SECONDS) -> Any:
        """The document of a response; None if it is empty. Raises as ``opened``."""
        with self.opened(method, path, body, timeout) as response, _mapped():
            text = response.read()
            return json.loads(text) if text else None

    @contextlib.contextmanager
    def opened(
        self, method: str, path: str, body: object = None, timeout: float = TIMEOUT_SECONDS
    ) -> Iterator[HTTPResponse]:
        """The response to a request.

        Raises:
            AwayError: the service cannot be reached, or does not answer now.
            GoneError: it does not know the device, or the device no longer has the task.
            StoppedError: it does not accept the key.
            RefusedError: it refuses the request.
        """
        data = None if body is None else json.dumps(body, allow_nan=False).encode()
        if data is None and method == "POST":
            data = b""
        request = urllib.request.Request(f"{self._url}{path}", data, self._headers, method=method)
        with _mapped():
            response = self._opener.open(request, timeout=timeout)
        with response:
            yield response


@contextlib.contextmanager
def _mapped() -> Iterator[None]:
    try:
        yield
    except urllib.error.HTTPError as error:
        text = _problem(error)
        if error.code in (404, 409):
            raise GoneError(text) from error
        if error.code in (401, 403):
            raise StoppedError(text) from error
        if error.code == 429 or error.code >= 500:
            raise AwayError(text) from error
        raise RefusedError(text) from error
    except ssl.SSLCertVerificationError as error:
        raise StoppedError(f"the certificate is not valid: {error}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise AwayError(str(error) or type(error).__name__) from error


def _problem(error: urllib.error.HTTPError) -> str:
    """What the service said, in one line."""
    try:
        with error:
            detail = json.loads(error.read(COPY_BYTES))["detail"]
    except Exception:
        detail = error.reason
    return f"{error.code}: {detail}"


def main(arguments: list[str] | None = None) -> int:
    """Work until SIGINT or SIGTERM."""
    if (sys.argv[1:] if arguments is None else arguments) == [PROBE]:
        sys.stdout.write(json.dumps(driver_gpus()))
        return 0
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    try:
        settings = read_settings(arguments)
        _prctl(PR_SET_DUMPABLE, 0)  # programs run as this user must not read the key in this process
        _prctl(PR_SET_CHILD_SUBREAPER, 1)  # what a program leaves behind becomes a child of this process
        signal.signal(signal.SIGTERM, _interrupt)
        with own_folder(settings) as folder:
            run_device(Service(settings.url, settings.key), settings, folder)
    except StoppedError as error:
        sys.stderr.write(f"the device stopped: {error}\n")
        return 1
    except KeyboardInterrupt:
        log.info("stopped")
    return 0


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def read_settings(arguments: list[str] | None = None) -> Settings:
    """The settings of the command line and the environment, from which the key is removed.

    Raises:
        StoppedError: the key's file cannot be read.
    """
    parser = argparse.ArgumentParser(
        prog="python -m worker.device",
        description="Verify and measure bundles on this machine for a Bessemer service.",
        epilog="BESSEMER_API_KEY, or the file BESSEMER_API_KEY_FILE, has a key of the scope `device`.",
    )
    add = parser.add_argument
    url = os.environ.get("BESSEMER_URL", DEFAULT_URL)
    add("--url", default=url, help="the service (BESSEMER_URL)")
    add("--name", default=_default_name(), help="the device's name; the host name if left out")
    add("--platform", help="such as aarch64 or x86_64-musl; this machine's if left out")
    add("--launcher", default="", help="words before a program, such as an emulator's or 'taskset -c 2,3'")
    add("--emulated", action="store_true", help="an emulator runs the programs, so times mean nothing")
    add("--cores", type=int, default=len(os.sched_getaffinity(0)), help="threads of a program")
    add("--memory-bytes", type=int, default=_memory_bytes() // 2, help="memory of a program")
    add("--disk-bytes", type=int, default=16 << 30, help="the largest bundle, unpacked")
    add("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where bundles are unpacked")
    add("--uid", type=int, default=NOBODY, help="the user that runs programs, if this one is root")
    add("--gpu", action="store_true", help="run libraries for NVIDIA GPUs on this machine's first GPU")
    add("--once", action="store_true", help="stop after one task")
    given = parser.parse_args(arguments)
    if NAME.fullmatch(given.name) is None:
        raise StoppedError(f"'{given.name}' is not a name of up to 64 letters, digits, '.', '_' and '-'")
    if urllib.parse.urlsplit(given.url).scheme not in ("http", "https"):
        raise StoppedError(f"'{given.url}' is not a URL such as {DEFAULT_URL}")
    launcher = tuple(shlex.split(given.launcher))
    platform_name = given.platform or _platform()
    gpus = found_gpus() if given.gpu or platform_name.endswith(GPU_SUFFIX) else ()
    return Settings(
        url=given.url,
        key=_take_key(),
        name=given.name,
        platform=platform_name.removesuffix(GPU_SUFFIX) + (GPU_SUFFIX if gpus else ""),
        launcher=launcher,
        emulated=given.emulated or _is_emulated() or any(map(_is_emulator, launcher)),
        cores=max(1, given.cores),
        memory_bytes=given.memory_bytes,
        disk_bytes=given.disk_bytes,
        folder=given.folder.absolute(),
        uid=given.uid,
        once=given.once,
        gpus=gpus,
    )


def _take_key() -> str | None:
    key = os.environ.pop("BESSEMER_API_KEY", None)
    path = os.environ.pop("BESSEMER_API_KEY_FILE", None)
    if key or not path:
        return key
    try:
        return Path(path).expanduser().read_text(encoding="utf-8").strip()
    except OSError as error:
        raise StoppedError(f"BESSEMER_API_KEY_FILE cannot be read: {error}") from error


def _default_name() -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).lstrip("._-")[:64] or "device"


def run_device(service: Service, settings: Settings, folder: Path) -> None:
    """Register and do tasks until interrupted. The service may go away and come back."""
    while True:
        device = _register(service, settings)
        path = f"/v1/devices/{device['id']}"
        shown = f"{settings.platform}, {settings.cores} cores{', emulated' if settings.emulated else ''}"
        log.info("registered as %s (%s) at %s", settings.name, shown, settings.url)
        try:
            while not (_do_next(service, settings, path, folder, device["lease_seconds"]) and settings.once):
                pass
            _leave(service, path)
            return
        except GoneError as error:
            log.warning("registering again; does another device have the same name? %s", error)
            time.sleep(FIRST_RETRY_SECONDS)
        except (KeyboardInterrupt, StoppedError):
            _leave(service, path)
            raise


def _register(service: Service, settings: Settings) -> Any:
    for seconds in _waits():
        try:
            return service.send("POST", "/v1/devices", describe(settings))
        except AwayError as error:
            log.warning("%s does not answer; retrying in %.0f s: %s", settings.url, seconds, error)
        except (GoneError, RefusedError) as error:
            raise StoppedError(str(error)) from error
        time.sleep(seconds)
    raise AssertionError("the waits are endless")


def _leave(service: Service, path: str) -> None:
    with contextlib.suppress(AwayError, GoneError, RefusedError, StoppedError):
        service.send("DELETE", path, timeout=3.0)


def _waits() -> Iterator[float]:
    seconds = FIRST_RETRY_SECONDS
    while True:
        yield seconds
        seconds = min(2 * seconds, LONGEST_RETRY_SECONDS)


def _do_next(service: Service, settings: Settings, path: str, folder: Path, lease_seconds: float) -> bool:
    """Wait for a task and do it; return whether there was one.

    Raises:
        GoneError: the service does not know this device.
    """
    task = _take(service, path)
    if task is None:
        return False
    began = time.monotonic()
    bundle = Path(tempfile.mkdtemp(prefix="task-", dir=folder))
    try:
        result = _finish(
            service, path, task["id"], _done(service, settings, path, task, bundle, lease_seconds)
        )
        log.info("task %s: %s in %.1f s", task["id"], _words(result), time.monotonic() - began)
    except GoneError as error:
        log.warning("task %s is no longer this device's: %s", task["id"], error)
        time.sleep(FIRST_RETRY_SECONDS)
    finally:
        remove(bundle)
    return True


def _take(service: Service, path: str) -> Any:
    for seconds in _waits():
        try:
            return service.send("POST", f"{path}/task?wait={WAIT_SECONDS}", timeout=WAIT_SECONDS + 10)
        except (AwayError, RefusedError) as error:
            log.warning("the service does not answer; retrying in %.0f s: %s", seconds, error)
        time.sleep(seconds)
    raise AssertionError("the waits are endless")


def _finish(service: Service, path: str, task: str, result: dict[str, Any]) -> dict[str, Any]:
    """Send the result, and return what the service accepted: that, or that it refused it.

    Raises:
        GoneError: the device no longer has the task.
    """
    for seconds in _waits():
        try:
            service.send("POST", f"{path}/tasks/{task}/result", result)
            return result
        except AwayError as error:
            log.warning("the result waits; retrying in %.0f s: %s", seconds, error)
        except RefusedError as error:
            log.warning("the service refused the result: %s", error)
            if "entries" not in result and "candidates" not in result:
                raise GoneError(str(error)) from error
            result = {"failure": f"the service refused what the program reported: {error}"[:TAIL_CHARACTERS]}
        time.sleep(seconds)
    raise AssertionError("the waits are endless")


def _words(result: dict[str, Any]) -> str:
    if result.get("failure"):
        return f"failed: {result['failure']}"
    if "candidates" in result:
        failed = sum(bool(candidate["failure"]) for candidate in result["candidates"])
        return f"{len(result['candidates'])} candidates measured, {failed} of them failed"
    wrong = sum(output["mismatches"] for entry in result["entries"] for output in entry["outputs"])
    return f"{wrong} elements differ" if wrong else "verified"


def _done(
    service: Service,
    settings: Settings,
    path: str,
    task: Any,
    bundle: Path,
    lease_seconds: float,
) -> dict[str, Any]:
    """The result of a task.

    Raises:
        GoneError: the device no longer has the task.
    """
    lease = Lease(service, f"{path}/tasks/{task['id']}/lease", lease_seconds)
    try:
        _fetch(service, f"{path}/tasks/{task['id']}/bundle", task, settings, bundle, lease)
        run = run_candidates if task["kind"] == "measure" else run_program
        return run(bundle, task, settings, lease)
    except UnfitError as error:
        return {"failure": str(error)[:TAIL_CHARACTERS], "unfit": True}
    except (AwayError, RefusedError, BadBundleError) as error:
        return {"failure": f"the bundle could not be fetched: {error}"[:TAIL_CHARACTERS]}
    except (GoneError, StoppedError):
        raise
    except Exception as error:  # what a job has written must not end the device
        log.exception("the task failed")
        return {"failure": f"the device failed: {type(error).__name__}"}


def _fetch(service: Service, path: str, task: Any, settings: Settings, bundle: Path, lease: Lease) -> None:
    """Download and unpack a bundle, a few times if the connection breaks."""
    most_bytes = min(task["disk_bytes"], settings.disk_bytes)
    for number in range(1, DOWNLOADS + 1):
        try:
            with service.opened("GET", path, timeout=lease.seconds / 2) as stream:
                unpack(stream, bundle, most_bytes, lease)
            return
        except AwayError as error:
            if number == DOWNLOADS:
                raise
            log.warning("the bundle did not arrive whole; trying again: %s", error)
        for left in bundle.iterdir():
            remove(left) if left.is_dir() else left.unlink()
        time.sleep(FIRST_RETRY_SECONDS)
        lease.renew()


class Lease:
    """The lease of a task, renewed between the parts of a download, and by a thread while a program runs."""

    def __init__(self, service: Service, path: str, seconds: float) -> None:
        self._service = service
        self._path = path
        self.seconds = seconds
        self._every_seconds = seconds / RENEWALS_PER_LEASE
        self._renewed = time.monotonic()
        self._stop = threading.Event()
        self.lost = threading.Event()

    def renew(self) -> None:
        """Renew the lease if it is time; nothing happens if the service is away.

        Raises:
            GoneError: the device no longer has the task.
        """
        if time.monotonic() - self._renewed < self._every_seconds:
            return
        with contextlib.suppress(AwayError, RefusedError, StoppedError):
            self._service.send("POST", self._path)
        self._renewed = time.monotonic()

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Renew the lease in a thread; ``lost`` is set if the device no longer has the task."""
        self._stop.clear()
        thread = threading.Thread(target=self._keep, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _keep(self) -> None:
        while not self._stop.wait(self._every_seconds):
            try:
                self.renew()
            except GoneError:
                self.lost.set()
                return


def unpack(stream: IO[bytes], folder: Path, most_bytes: int, lease: Lease) -> None:
    """Unpack a bundle: only files and folders, with plain paths.

    Raises:
        UnfitError: it does not fit on this machine's disk.
        BadBundleError: it has a path that is not plain.
        AwayError: it is not an archive, or it ends early.
        GoneError: the device no longer has the task.
    """
    total, count = 0, 0
    source = _Forward(stream)
    try:
        with _mapped(), tarfile.open(fileobj=cast("tarfile._Fileobj", source), mode="r:") as archive:
            for member in archive:
                total, count = total + member.size, count + 1
                if total > most_bytes or count > MAX_FILES:
                    raise UnfitError(f"the bundle has more than {most_bytes} bytes or {MAX_FILES} files")
                source.allow(member.offset_data + member.size)
                if not member.isreg():
                    continue
                if PATH.fullmatch(member.name) is None:
                    raise BadBundleError(f"the bundle has the unsafe path {member.name!r}")
                _write(archive, member, folder / member.name, lease)
    except tarfile.TarError as error:
        raise AwayError(f"the bundle is damaged: {error}") from error


class _Forward:
    """A stream that tarfile takes for a file, since nothing seeks backward. It bounds the headers' size."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._position = 0
        self._end = MAX_HEADER_BYTES

    def allow(self, position: int) -> None:
        """Let the stream be read to the end of a file's content, and of the header after it."""
        self._end = position + MAX_HEADER_BYTES

    def tell(self) -> int:
        return self._position

    def seek(self, position: int) -> int:
        if position < self._position:
            raise tarfile.ReadError("an entry lies before the one that was read")
        while self._position < position and self.read(min(position - self._position, COPY_BYTES)):
            pass
        return self._position

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes, and fewer only at the end.

        Raises:
            tarfile.ReadError: no header of a bundle is as long.
        """
        if self._position + size > self._end:
            raise tarfile.ReadError(f"a header of more than {MAX_HEADER_BYTES} bytes")
        pieces = []
        while size and (piece := self._stream.read(size)):
            pieces.append(piece)
            size -= len(piece)
            self._position += len(piece)
        return b"".join(pieces)


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path, lease: Lease) -> None:
    source = archive.extractfile(member)
    assert source is not None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("xb")
    except OSError as error:
        raise UnfitError(f"the bundle cannot be written: {error}") from error
    with source, file:
        while part := source.read(COPY_BYTES):
            lease.renew()
            try:
                file.write(part)
            except OSError as error:
                raise UnfitError(f"the bundle cannot be written: {error}") from error
    path.chmod(0o755 if member.mode & stat.S_IXUSR else 0o644)


def run_program(bundle: Path, task: Any, settings: Settings, lease: Lease) -> dict[str, Any]:
    """Run the bundle's program on the reference inputs, and return what it found.

    Raises:
        UnfitError: this machine cannot run it.
        GoneError: the device no longer has the task, and the program was killed.
    """
    program = _program(bundle)
    machine = Machine(bundle, task, settings, lease)
    repeat = 0 if settings.emulated else task["repeat"]
    ran = machine.run([str(program)], bundle, repeat)
    return _result(ran, task["timeout_seconds"], machine)


@dataclass(frozen=True)
class Ran:
    """How a program ran.

    Attributes:
        status: its exit status, negative for a signal; None if it took too long.
        printed: the end of what it printed.
        report: the file of its report.
    """

    status: int | None
    printed: str
    report: Path


class Machine:
    """Runs the programs of one task, one at a time."""

    def __init__(self, folder: Path, task: Any, settings: Settings, lease: Lease) -> None:
        self.threads = min(task["threads"] or settings.cores, settings.cores)
        self.memory_bytes = min(task["memory_bytes"], settings.memory_bytes)
        self._folder = folder
        self._task = task
        self._settings = settings
        self._lease = lease
        uid = settings.uid if os.geteuid() == 0 else None
        self._confine = Confinement(self.memory_bytes, settings.disk_bytes, uid)
        self._confine.give(folder)

    def run(self, words: list[str], cwd: Path, repeat: int, number: int = 0) -> Ran:
        """Run a program to its end.

        Args:
            words: its path, and its arguments besides the ones that every program gets.
            cwd: the folder where it starts.
            repeat: the most runs of the model, or times of the kernel, after the first.
            number: tells the run from the task's others.

        Raises:
            UnfitError: this machine cannot start it.
            GoneError: the device no longer has the task, and the program was killed.
        """
        report = self._folder / f"report-{number}.json"
        command = [
            *self._settings.launcher,
            *words,
            *("--threads", str(self.threads)),
            *("--repeat", str(repeat)),
            *("--seconds", str(self._task["repeat_seconds"])),
            *("--report", str(report)),
        ]
        # a file without a name: an earlier program can put no link in its place
        with tempfile.TemporaryFile(dir=self._folder.parent) as printed:
            process = self._start(command, cwd, printed)
            try:
                with self._lease.kept():
                    status = _wait(process, self._task["timeout_seconds"], self._lease)
            finally:
                _kill(process)
            return Ran(status, _tail(printed), report)

    def _start(self, command: list[str], cwd: Path, printed: IO[bytes]) -> subprocess.Popen[bytes]:
        try:
            # no other thread runs yet: a fork beside one could deadlock
            return subprocess.Popen(
                command,
                cwd=cwd,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=self._confine,
            )
        except (OSError, ValueError) as error:
            raise UnfitError(f"the program cannot be started: {error}") from error
        except subprocess.SubprocessError as error:
            raise StoppedError(f"cannot run programs as user {self._settings.uid}: choose a --uid") from error


def run_candidates(folder: Path, task: Any, settings: Settings, lease: Lease) -> dict[str, Any]:
    """Time this device's share of a search's candidates in turns, so that other load slows all alike.

    A candidate that fails costs only itself, and is not run again.

    Raises:
        UnfitError: this machine cannot run any of them.
        GoneError: the device no longer has the task.
    """
    first, count = task.get("first", 0), task.get("count")
    commands = _commands(folder)[first : None if count is None else first + count]
    machine = Machine(folder, task, settings, lease)
    rounds: list[list[list[float]]] = [[] for _ in commands]
    failures = [""] * len(commands)
    statuses: set[int | None] = set()
    for turn in range(task["rounds"]):
        for index, (program, *arguments) in enumerate(commands):
            if failures[index]:
                continue
            lease.renew()
            words = [str(folder / program), *arguments]
            ran = machine.run(words, folder, task["repeat"], turn * len(commands) + index)
            statuses.add(ran.status)
            times = _times(ran, task["repeat"])
            if times:
                rounds[index].append(times)
            else:
                failures[index] = _failure(ran, task["timeout_seconds"])[:FAILURE_CHARACTERS]
    if statuses == {-signal.SIGILL}:
        raise UnfitError("the candidates need instructions that this processor lacks (SIGILL)")
    found = [
        {"rounds_ms": [] if failure else rounds[index], "failure": failure}
        for index, failure in enumerate(failures)
    ]
    return {"candidates": found, "threads": machine.threads}


def _commands(folder: Path) -> list[list[str]]:
    """The commands of the candidates: each the path of a program and its arguments.

    Raises:
        UnfitError: they cannot be read.
    """
    path = folder / CANDIDATES
    try:
        if path.stat().st_size > MAX_COMMANDS_BYTES:
            raise ValueError("it is too large")
        commands = json.loads(path.read_text(encoding="utf-8"))["candidates"]
        if not isinstance(commands, list) or len(commands) > MAX_CANDIDATES:
            raise ValueError(f"it must list at most {MAX_CANDIDATES} commands")
        for words in commands:
            if not (words and all(_is_argument(word) for word in words) and PATH.fullmatch(words[0])):
                raise ValueError(f"{words!r} is not a command")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UnfitError(f"{CANDIDATES} cannot be read: {error}"[:TAIL_CHARACTERS]) from error
    return [list(words) for words in commands]


def _is_argument(word: Any) -> bool:
    """Whether a word is printable text, which any program can take as an argument."""
    return isinstance(word, str) and word.isprintable()


def _times(ran: Ran, most: int) -> list[float]:
    """The times in a program's report, in milliseconds; empty if it failed or they are not plausible."""
    found = _read_report(ran.report) if ran.status == 0 else None
    try:
        times = [] if found is None else [float(time) for time in found["entries"][0]["times_ms"]]
    except (KeyError, IndexError, TypeError, ValueError, OverflowError):
        return []
    return times if len(times) <= most and all(0 < time <= MAX_MILLISECONDS for time in times) else []


def _program(bundle: Path) -> Path:
    try:
        name = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))["program"]
        if name is not None and PATH.fullmatch(name):
            return bundle / name
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnfitError(f"the bundle's manifest cannot be read: {error}") from error
    raise UnfitError("the bundle has no program")


def _wait(process: subprocess.Popen[bytes], timeout_seconds: float, lease: Lease) -> int | None:
    """The exit status, negative for a signal; None if the program took too long.

    Raises:
        GoneError: the device no longer has the task.
    """
    deadline = time.monotonic() + timeout_seconds
    while process.poll() is None:
        if lease.lost.is_set():
            raise GoneError("the lease ended while the program ran")
        if time.monotonic() > deadline:
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(POLL_SECONDS)
    return process.returncode


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the program and all that it started, in other sessions, too.

    Raises:
        StoppedError: it starts processes faster than they can be killed.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + KILL_SECONDS
    while children := _children():
        if time.monotonic() > deadline:
            raise StoppedError("a program starts processes without end: kill them and restart the device")
        for pid in children:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _children() -> list[int]:
    """The processes whose parent is this one."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if int(fields[1]) == os.getpid():
                found.append(int(path.parent.name))
    return found


def _result(ran: Ran, timeout_seconds: float, machine: Machine) -> dict[str, Any]:
    if ran.status == -signal.SIGILL:
        raise UnfitError("the program needs instructions that this processor lacks (SIGILL)")
    found = None if ran.status is None or ran.status < 0 else _read_report(ran.report)
    if found is not None and (found["entries"] or ran.status == 0):
        return {**found, "threads": machine.threads}
    if ran.status is not None and ran.status >= 0 and "out of memory" in ran.printed:
        raise UnfitError(f"the program needs more than {machine.memory_bytes} bytes of memory")
    return {"failure": _failure(ran, timeout_seconds)[:TAIL_CHARACTERS]}


def _failure(ran: Ran, timeout_seconds: float) -> str:
    """Why a program did not run to its end, in words."""
    if ran.status is None:
        return f"the program did not end within {timeout_seconds:g} s"
    if ran.status < 0:
        return f"the program was killed by {_signal_name(-ran.status)}: {ran.printed}".rstrip(": ")
    return f"the program ended with status {ran.status}: {ran.printed}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _read_report(path: Path) -> dict[str, Any] | None:
    """What the program wrote; None if it did not get that far."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode) or path.lstat().st_size > MAX_REPORT_BYTES:
            return None
        found = json.loads(path.read_text(encoding="utf-8"))
        json.dumps(found, allow_nan=False)
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and "entries" in found else None


def _tail(file: IO[bytes]) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_CHARACTERS))
    return file.read(TAIL_CHARACTERS).decode(errors="replace").strip()


class Confinement:
    """What a program gets after the fork: limits, another user, no network, and death with the device.

    It is not a sandbox: run devices in a container, or as a user that owns nothing.
    """

    def __init__(self, memory_bytes: int, file_bytes: int, uid: int | None) -> None:
        self._limits = (
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_DATA, memory_bytes),
            (resource.RLIMIT_FSIZE, file_bytes),
            (resource.RLIMIT_NOFILE, 256),
        )
        self._uid = uid

    def give(self, folder: Path) -> None:
        """Let the program's user own a folder."""
        if self._uid is not None:
            for parent, folders, files in os.walk(folder):
                for name in (".", *folders, *files):
                    os.chown(Path(parent, name), self._uid, self._uid, follow_symlinks=False)

    def __call__(self) -> None:
        """Confine this process, which is to become the program."""
        _unshare(CLONE_NEWNET if self._uid is not None else CLONE_NEWUSER | CLONE_NEWNET)
        if self._uid is not None:
            os.setgroups([])
            os.setgid(self._uid)
            os.setuid(self._uid)
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        _prctl(PR_SET_NO_NEW_PRIVS, 1)
        for kind, most in self._limits:
            _, hard = resource.getrlimit(kind)
            value = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (value, value))


_LIBC = ctypes.CDLL(None)


def _prctl(option: int, value: int) -> None:
    _LIBC.prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def _unshare(flags: int) -> None:
    """Leave the network, where the kernel lets this user."""
    _LIBC.unshare(flags)


@contextlib.contextmanager
def own_folder(settings: Settings) -> Iterator[Path]:
    """The device's folder, empty, which exists while the context lasts.

    What a device that was killed left in it is deleted.

    Raises:
        StoppedError: the folder cannot be used, or a device of this name runs already.
    """
    folder = settings.folder / f"bessemer-device-{os.geteuid()}-{settings.name}"
    with _locked(folder):
        for left in folder.glob("task-*"):
            log.info("removing what an earlier device left: %s", left)
            remove(left)
        try:
            yield folder
        finally:
            remove(folder)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(mode=0o711, parents=True, exist_ok=True)
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                raise StoppedError(f"{folder} belongs to another user")
            lock = stack.enter_context((folder / "lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno == errno.EWOULDBLOCK:
                raise StoppedError(f"another device works in {folder}: choose another --name") from error
            raise StoppedError(f"{folder} cannot be used: {error}") from error
        yield


def remove(folder: Path) -> None:
    """Remove a folder and everything that a program left in it. Links are not followed.

    Inner folders move to the top first: a path thousands of folders deep is too long for any call.
    """
    try:
        top = os.open(folder, OPEN_FOLDER)
        try:
            _empty(top)
        finally:
            os.close(top)
        folder.rmdir()
    except OSError as error:
        log.warning("cannot remove %s: %s", folder, error)


def _empty(top: int) -> None:
    count = 0
    while entries := _entries(top):
        for name, is_folder in entries:
            if not is_folder:
                os.unlink(name, dir_fd=top)
                continue
            _open_up(top, name)
            inner = os.open(name, OPEN_FOLDER, dir_fd=top)
            try:
                for child, is_inner_folder in _entries(inner):
                    if is_inner_folder:
                        _open_up(inner, child)
                    count += 1
                    os.rename(child, f"{os.urandom(8).hex()}-{count}", src_dir_fd=inner, dst_dir_fd=top)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=top)


def _open_up(folder: int, name: str) -> None:
    with contextlib.suppress(PermissionError):
        os.chmod(name, 0o700, dir_fd=folder)


def _entries(folder: int) -> list[tuple[str, bool]]:
    with os.scandir(folder) as entries:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]


def describe(settings: Settings) -> dict[str, Any]:
    """What this machine is, as the service keeps it."""
    return {
        "name": settings.name,
        "platform": settings.platform,
        "processor": "" if settings.emulated else _processor(),
        "features": [] if settings.emulated else _features(),
        "cores": min(settings.cores, 1024),
        "memory_bytes": _memory_bytes(),
        "libc": "" if settings.emulated else " ".join(platform.libc_ver()).strip(),
        "emulated": settings.emulated,
        "version": VERSION,
        **({"gpus": list(settings.gpus)} if settings.gpus else {}),
    }


def found_gpus() -> tuple[dict[str, Any], ...]:
    """This machine's GPUs, found by a process of its own: a broken driver can crash or hang it.

    Raises:
        StoppedError: there is none, or the driver cannot be used.
    """
    command = [sys.executable, "-I", str(Path(__file__).absolute()), PROBE]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
            env=_environment(),
        )
    except subprocess.TimeoutExpired:
        raise StoppedError(f"the GPU's driver did not answer within {PROBE_SECONDS:g} s") from None
    if done.returncode:
        words = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise StoppedError(f"the GPU's driver cannot be used: {words}")
    gpus = tuple(json.loads(done.stdout))
    if not gpus:
        raise StoppedError("--gpu: this machine has no NVIDIA GPU, or no driver (libcuda.so.1)")
    return gpus


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in CUDA_VARIABLES if name in os.environ}


def driver_gpus() -> list[dict[str, Any]]:
    """The GPUs that the driver offers to this process; empty without a driver.

    Raises:
        OSError: a call of the driver failed.
    """
    driver = _driver()
    if driver is None:
        return []
    _cuda(driver, "cuInit", 0)
    version, count = ctypes.c_int(), ctypes.c_int()
    _cuda(driver, "cuDriverGetVersion", ctypes.byref(version))
    _cuda(driver, "cuDeviceGetCount", ctypes.byref(count))
    cuda = f"{version.value // 1000}.{version.value % 1000 // 10}"
    release = CUDA_VERSION.read_text(encoding="utf-8").strip() if CUDA_VERSION.exists() else ""
    return [{**_gpu(driver, index), "cuda": cuda, "driver": release} for index in range(count.value)]


def _driver() -> ctypes.CDLL | None:
    for path in CUDA_LIBRARIES:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(path)
    return None


def _gpu(driver: ctypes.CDLL, index: int) -> dict[str, Any]:
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    name, memory = ctypes.create_string_buffer(256), ctypes.c_size_t()
    _cuda(driver, "cuDeviceGet", ctypes.byref(device), index)
    _cuda(driver, "cuDeviceGetName", name, len(name), device)
    _cuda(driver, "cuDeviceGetAttribute", ctypes.byref(major), CAPABILITY_MAJOR, device)
    _cuda(driver, "cuDeviceGetAttribute", ctypes.byref(minor), CAPABILITY_MINOR, device)
    _cuda(driver, "cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    return {
        "name": name.value.decode(errors="replace"),
        "arch": f"sm_{major.value}{minor.value}",
        "memory_bytes": memory.value,
    }


def _cuda(driver: ctypes.CDLL, name: str, *arguments: Any) -> None:
    code = getattr(driver, name)(*arguments)
    if code != 0:
        raise OSError(f"{name} failed with error {code}")


def _platform() -> str:
    is_musl = any(Path("/lib").glob("ld-musl-*")) and not platform.libc_ver()[0]
    return f"{platform.machine()}-musl" if is_musl else platform.machine()


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _cpuinfo() -> dict[str, str]:
    """The first processor's lines of ``/proc/cpuinfo``."""
    found: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            found.setdefault(key.strip(), value.strip())
    return found


def _processor() -> str:
    found = _cpuinfo()
    core = found.get("model name") or ARM_PARTS.get(found.get("CPU part", ""), "") or found.get("uarch", "")
    board = ""
    with contextlib.suppress(OSError):
        board = Path("/proc/device-tree/model").read_text(encoding="utf-8", errors="replace").strip("\0 \n")
    text = f"{core} ({board})" if core and board else core or board or platform.machine()
    return "".join(letter if letter.isprintable() else " " for letter in text)[:200]


def _features() -> list[str]:
    found = _cpuinfo()
    words = (found.get("Features") or found.get("flags") or found.get("isa", "").replace("_", " ")).split()
    return [word for word in words if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}", word)][:1024]


def _is_emulator(word: str) -> bool:
    return Path(word).name.lower().startswith(EMULATORS)


def _is_emulated() -> bool:
    """Whether qemu's user mode runs this very process: it hides behind ``/proc/self``, not here."""
    try:
        return _is_emulator(str(Path("/proc/thread-self/exe").readlink()))
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
