"""Attacks on resources of others: each succeeds without the sandbox and fails inside it."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from worker.sandbox.identity import has_capability
from worker.sandbox.libc import CAP_DAC_READ_SEARCH
from worker.supervisor.processes import read_process

Rig = Any


@pytest.fixture
def victim() -> Iterator["subprocess.Popen[bytes]"]:
    """A process of the supervisor's user, with a secret in its environment."""
    sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(sleeper, env={"SECRET": "of the supervisor"}) as process:
        yield process
        process.kill()


@contextmanager
def listener(family: socket.AddressFamily, address: Any) -> Iterator[Any]:
    """A server that answers every connection."""
    with socket.socket(family) as server:
        server.bind(address)
        server.listen()
        server.settimeout(300)
        thread = threading.Thread(target=lambda: server.accept()[0].close(), daemon=True)
        thread.start()
        yield server.getsockname()


def test_a_pickle_cannot_write_outside_its_folder(rig: Rig, open_folder: Path) -> None:
    target = open_folder / "planted"
    attack = f"return open({str(target)!r}, 'w').write('planted')"
    assert rig.unconfined(attack).did == 7
    target.unlink()
    assert rig.confined(attack).error == "PermissionError"
    assert not target.exists()


@pytest.mark.parametrize("mode", [0o644, 0o600])
def test_a_pickle_cannot_read_a_secret(rig: Rig, open_folder: Path, mode: int) -> None:
    secret = open_folder / "secret"
    secret.write_text("the key")
    secret.chmod(mode)
    attack = f"return open({str(secret)!r}).read()"
    assert rig.unconfined(attack).did == "the key"
    assert rig.confined(attack).error == "PermissionError"


def test_a_file_handle_does_not_get_around_landlock(rig: Rig, open_folder: Path) -> None:
    secret = open_folder / "secret"
    secret.write_text("the key")
    attack = f"""
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        handle = ctypes.create_string_buffer((128).to_bytes(4, "little") + bytes(132))
        mount = ctypes.c_int()
        if libc.name_to_handle_at(-100, {str(secret).encode()!r}, handle, ctypes.byref(mount), 0):
            raise OSError(ctypes.get_errno(), "name_to_handle_at")
        root = os.open("/", os.O_RDONLY)
        descriptor = libc.open_by_handle_at(root, handle, os.O_RDONLY)
        if descriptor < 0:
            raise OSError(ctypes.get_errno(), "open_by_handle_at")
        return os.read(descriptor, 100).decode()
    """
    if has_capability(CAP_DAC_READ_SEARCH):
        assert rig.unconfined(attack).did == "the key"
    assert rig.confined(attack).error == "PermissionError"


def test_a_pickle_cannot_read_the_environment_of_the_supervisor(
    rig: Rig, victim: "subprocess.Popen[bytes]"
) -> None:
    attack = f"return open('/proc/{victim.pid}/environ').read()"
    assert "of the supervisor" in rig.unconfined(attack).did
    assert rig.confined(attack).error == "PermissionError"


def test_a_pickle_finds_no_secret_in_its_own_environment(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BESSEMER_DATABASE_URL", "postgresql://user:password@host/name")
    look = "return sorted(os.environ)"
    expected = {
        "GOMP_SPINCOUNT",
        "HOME",
        "LANG",
        "OPENBLAS_NUM_THREADS",
        "PATH",
        "TMPDIR",
        "TVM_NUM_THREADS",
        "TVM_THREAD_POOL_SPIN_COUNT",
        "USER",
    }
    assert set(rig.confined(look).did) <= expected


def test_a_pickle_cannot_see_other_jobs(rig: Rig) -> None:
    other = rig.place.jobs / "another-job"
    other.mkdir(mode=0o755)
    (other / "model").write_text("another's model")
    try:
        attack = f"return os.listdir({str(rig.place.jobs)!r})"
        assert "another-job" in rig.unconfined(attack).did
        assert rig.confined(attack).error == "PermissionError"
        read = f"return open({str(other / 'model')!r}).read()"
        assert rig.unconfined(read).did == "another's model"
        assert rig.confined(read).error == "PermissionError"
    finally:
        (other / "model").unlink()
        other.rmdir()


def test_a_pickle_cannot_list_processes(rig: Rig) -> None:
    attack = "return len([name for name in os.listdir('/proc') if name.isdigit()])"
    assert rig.unconfined(attack).did > 1
    assert rig.confined(attack).error == "PermissionError"


def test_a_pickle_cannot_change_its_own_upload(rig: Rig) -> None:
    attack = "os.chmod('../model', 0o600)\nreturn open('../model', 'a').write('x')"
    assert rig.unconfined(attack).did == 1
    assert rig.confined(attack).error == "PermissionError"


def test_a_pickle_cannot_connect(rig: Rig) -> None:
    with listener(socket.AF_INET, ("127.0.0.1", 0)) as (host, port):
        attack = f"import socket\nsocket.create_connection(({host!r}, {port}), 5)\nreturn 'connected'"
        assert rig.unconfined(attack).did == "connected"
        assert rig.confined(attack).error == "PermissionError"


def test_a_pickle_cannot_reach_a_unix_socket(rig: Rig, open_folder: Path) -> None:
    path = str(open_folder / "socket")
    with listener(socket.AF_UNIX, path):
        attack = f"import socket\nsocket.socket(socket.AF_UNIX).connect({path!r})\nreturn 'connected'"
        assert rig.unconfined(attack).did == "connected"
        assert rig.confined(attack).error == "PermissionError"


def test_a_pickle_cannot_kill_the_supervisor(rig: Rig, victim: "subprocess.Popen[bytes]") -> None:
    attack = f"os.kill({victim.pid}, {int(signal.SIGKILL)})\nreturn 'killed'"
    assert rig.confined(attack).error == "PermissionError"
    assert victim.poll() is None
    assert rig.unconfined(attack).did == "killed"
    assert victim.wait(60) == -signal.SIGKILL


def test_a_pickle_cannot_leave_its_process_group(rig: Rig) -> None:
    attack = """
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
            except PermissionError:
                os._exit(1)
            os.write(writer, b"escaped")
            import time
            time.sleep(60)
        os.close(writer)
        return [pid, 0 if os.read(reader, 7) else os.waitpid(pid, 0)[1]]
    """
    escaped, _ = rig.unconfined(attack).did
    assert read_process(escaped) is not None, "the control escaped"
    os.kill(escaped, signal.SIGKILL)
    outcome = rig.confined(attack)
    assert outcome.did[1] >> 8 == 1
    assert outcome.left_running == ()


def test_processes_left_by_a_job_are_ended(rig: Rig) -> None:
    attack = """
        pids = []
        for _ in range(10):
            pid = os.fork()
            if pid == 0:
                if os.fork():
                    os._exit(0)
                import time
                time.sleep(60)
            pids.append(pid)
        return len(pids)
    """
    outcome = rig.confined(attack)
    assert outcome.did == 10
    assert outcome.left_running == ()


def test_a_child_that_sends_nonsense_is_ended(rig: Rig) -> None:
    attack = """
        for descriptor in range(3, 64):
            try:
                os.write(descriptor, b"this is no message\\n")
            except OSError:
                pass
        import time
        time.sleep(60)
    """
    outcome = rig.confined(attack)
    assert "malformed message" in outcome.misbehaved
    assert outcome.exit.signal == signal.SIGKILL
