"""A device's program: what it runs, what it refuses, and what it leaves behind."""

import io
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from bessemer.contract.device import DeviceRequest, DeviceResult
from worker import device
from worker.device import (
    AwayError,
    BadBundleError,
    GoneError,
    Lease,
    Service,
    Settings,
    StoppedError,
    UnfitError,
)

PROGRAM = "#!/bin/sh\n"
REPORT = {
    "entries": [
        {
            "name": "main",
            "outputs": [{"name": "y", "elements": 2, "mismatches": 0, "max_absolute_error": 1e-7}],
            "open_ms": 1.5,
            "first_ms": 0.5,
            "times_ms": [0.25, 0.5],
        }
    ],
    "peak_memory_bytes": 4096,
}
WRITES_REPORT = f"{PROGRAM}for last; do :; done\necho '{json.dumps(REPORT)}' > \"$last\"\n"
TASK: dict[str, Any] = {
    "id": "0" * 32,
    "threads": None,
    "repeat": 10,
    "repeat_seconds": 1.0,
    "timeout_seconds": 20.0,
    "memory_bytes": 1 << 30,
    "disk_bytes": 1 << 30,
}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        url="http://127.0.0.1:9",
        key=None,
        name="board",
        platform="aarch64",
        launcher=(),
        emulated=False,
        cores=2,
        memory_bytes=1 << 30,
        disk_bytes=1 << 30,
        folder=tmp_path,
        uid=os.geteuid(),
        once=False,
    )


class HeldLease(Lease):
    """A lease of no service: it holds, or is lost at once."""

    def __init__(self, lost: bool = False) -> None:
        super().__init__(Service("http://127.0.0.1:9", None), "/", 0.05)
        self._is_lost = lost

    def renew(self) -> None:
        if self._is_lost:
            raise GoneError("another has it")


def a_bundle(folder: Path, script: str) -> Path:
    folder.mkdir()
    (folder / "manifest.json").write_text('{"program": "run"}')
    (folder / "run").write_text(script)
    (folder / "run").chmod(0o755)
    return folder


def ran(tmp_path: Path, script: str, settings: Settings, **task: Any) -> dict[str, Any]:
    bundle = a_bundle(tmp_path / "bundle", script)
    return device.run_program(bundle, TASK | task, settings, HeldLease())


RUNS = """#!/bin/sh
for report; do :; done
echo "$*" >> calls.txt
case $0 in
*bad*) exit 3 ;;
*ill*) kill -ILL $$ ;;
*slow*) sleep 60 ;;
*mute*) exit 0 ;;
esac
echo '{"entries": [{"times_ms": [1.5, 2.5]}]}' > "$report"
"""


def timed(tmp_path: Path, settings: Settings, *names: str, lost: bool = False, **task: Any) -> dict[str, Any]:
    """What a device finds of candidates with these names."""
    folder = tmp_path / "batch"
    folder.mkdir()
    folder.chmod(0o777)
    for name in names:
        (folder / name).mkdir()
        (folder / name / "candidate").write_text(RUNS)
        (folder / name / "candidate").chmod(0o755)
    commands = [[f"{name}/candidate", "float32:8"] for name in names]
    (folder / "candidates.json").write_text(json.dumps({"candidates": commands}))
    return device.run_candidates(folder, TASK | {"rounds": 2} | task, settings, HeldLease(lost))


def archive(*members: tuple[str, bytes, int] | tarfile.TarInfo) -> io.BytesIO:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
                continue
            name, content, mode = member
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    made.seek(0)
    return made


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """The URL of a service that answers one connection with fixed bytes."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def test_what_the_program_reports_is_the_result(tmp_path: Path, settings: Settings) -> None:
    found = ran(tmp_path, WRITES_REPORT, settings)
    assert found == {**REPORT, "threads": 2}
    assert DeviceResult.model_validate(found).failure == ""


def test_the_program_sees_neither_the_environment_nor_an_input(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BESSEMER_API_KEY", "secret")
    script = f'{PROGRAM}/usr/bin/env; echo "$*"; read line || echo no input; exit 3\n'
    failure = ran(tmp_path, script, settings, threads=1)["failure"]
    assert "secret" not in failure
    assert "BESSEMER" not in failure
    assert "--threads 1 --repeat 10 --seconds 1.0 --report" in failure
    assert failure.endswith("no input")


@pytest.mark.parametrize(
    ("script", "failure"),
    [
        ("echo the model failed; exit 1\n", "the program ended with status 1: the model failed"),
        ("kill -SEGV $$\n", "the program was killed by SIGSEGV"),
        ("echo '{' > \"$last\"; exit 1\n", "the program ended with status 1: "),
        ('echo \'{"entries": NaN}\' > "$last"\n', "the program ended with status 0: "),
        ("echo '[1]' > \"$last\"\n", "the program ended with status 0: "),
        ('ln -s /etc/passwd "$last"\n', "the program ended with status 0: "),
    ],
)
def test_a_program_that_fails_says_why(tmp_path: Path, settings: Settings, script: str, failure: str) -> None:
    assert ran(tmp_path, f"{PROGRAM}for last; do :; done\n{script}", settings) == {"failure": failure}


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (f"{PROGRAM}kill -ILL $$\n", "instructions that this processor lacks"),
        (f"{PROGRAM}echo 'run: out of memory'; exit 1\n", "more than 1073741824 bytes of memory"),
        ("\x7fELF not for this machine", "cannot be started"),
        ("#!/missing/loader\n", "cannot be started"),
    ],
)
def test_what_this_machine_cannot_run_is_for_another(
    tmp_path: Path, settings: Settings, script: str, why: str
) -> None:
    with pytest.raises(UnfitError, match=why):
        ran(tmp_path, script, settings)


def test_a_program_that_takes_too_long_ends(tmp_path: Path, settings: Settings) -> None:
    found = ran(tmp_path, f"{PROGRAM}sleep infinity\n", settings, timeout_seconds=0.3)
    assert found == {"failure": "the program did not end within 0.3 s"}


def test_a_program_whose_task_is_anothers_now_ends(tmp_path: Path, settings: Settings) -> None:
    bundle = a_bundle(tmp_path / "bundle", f"{PROGRAM}sleep infinity\n")
    with pytest.raises(GoneError):
        device.run_program(bundle, TASK, settings, HeldLease(lost=True))


def test_what_a_program_leaves_running_ends_with_it(tmp_path: Path, settings: Settings) -> None:
    device._prctl(device.PR_SET_CHILD_SUBREAPER, 1)
    pids = tmp_path / "pids"
    script = (
        f"{PROGRAM}/usr/bin/setsid /bin/sh -c 'echo $$ > {pids}; exec sleep 60' &\n"
        f"while [ ! -s {pids} ]; do sleep 0.05; done\n"
    )
    try:
        ran(tmp_path, script, settings)
    finally:
        device._prctl(device.PR_SET_CHILD_SUBREAPER, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pids.read_text()), 0)


def test_a_device_stops_if_a_program_starts_processes_without_end(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "KILL_SECONDS", 0.05)
    monkeypatch.setattr(device, "_children", lambda: [1 << 30])
    with pytest.raises(StoppedError, match="starts processes without end"):
        ran(tmp_path, "#!/bin/sh\n", settings)


def test_an_emulated_device_times_nothing(tmp_path: Path, settings: Settings) -> None:
    emulated = Settings(**(vars(settings) | {"emulated": True, "launcher": ("/bin/sh",)}))
    failure = ran(tmp_path, f'{PROGRAM}echo "$*"; exit 1\n', emulated)["failure"]
    assert "--repeat 0" in failure


def test_candidates_are_timed_in_turns_and_one_that_fails_costs_only_itself(
    tmp_path: Path, settings: Settings
) -> None:
    found = timed(tmp_path, settings, "0", "bad", "slow", "mute", "1", timeout_seconds=1)
    times = [candidate["rounds_ms"] for candidate in found["candidates"]]
    failures = [candidate["failure"] for candidate in found["candidates"]]
    assert times == [[[1.5, 2.5], [1.5, 2.5]], [], [], [], [[1.5, 2.5], [1.5, 2.5]]]
    assert failures == [
        "",
        "the program ended with status 3: ",
        "the program did not end within 1 s",
        "the program ended with status 0: ",
        "",
    ]
    assert len((tmp_path / "batch" / "calls.txt").read_text().splitlines()) == 7
    assert DeviceResult.model_validate(found).threads == found["threads"]


def test_candidates_that_all_lack_instructions_are_for_another_device(
    tmp_path: Path, settings: Settings
) -> None:
    with pytest.raises(device.UnfitError, match="SIGILL"):
        timed(tmp_path, settings, "ill", "ill2")


def test_a_candidate_that_stops_at_a_trap_costs_only_itself(tmp_path: Path, settings: Settings) -> None:
    found = timed(tmp_path, settings, "ill", "0")
    assert [bool(candidate["failure"]) for candidate in found["candidates"]] == [True, False]


@pytest.mark.parametrize(
    "text", ["[]", '{"candidates": [["../run"]]}', '{"candidates": [[]]}', "{", '{"candidates": 3}']
)
def test_commands_that_cannot_be_read_are_a_failure(tmp_path: Path, settings: Settings, text: str) -> None:
    (tmp_path / "candidates.json").write_text(text)
    with pytest.raises(device.UnfitError, match=r"candidates\.json cannot be read"):
        device.run_candidates(tmp_path, TASK | {"rounds": 1}, settings, HeldLease())


def test_a_device_that_lost_its_candidates_stops(tmp_path: Path, settings: Settings) -> None:
    with pytest.raises(device.GoneError):
        timed(tmp_path, settings, "0", lost=True)


def test_a_bundle_is_unpacked_with_its_program_executable(tmp_path: Path) -> None:
    stream = archive(("run", b"program", 0o755), ("reference/inputs.npz", b"arrays", 0o644))
    device.unpack(stream, tmp_path, 100, HeldLease())
    assert (tmp_path / "reference/inputs.npz").read_bytes() == b"arrays"
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o755


def link(name: str, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd"
    return member


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_what_is_no_file_is_not_unpacked(tmp_path: Path, kind: bytes) -> None:
    device.unpack(archive(link("run", kind)), tmp_path, 100, HeldLease())
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped", "a/../../escaped", ".hidden", "a//b"])
def test_an_unsafe_path_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadBundleError, match="unsafe path"):
        device.unpack(archive((name, b"x", 0o644)), tmp_path / "bundle", 100, HeldLease())


def test_a_bundle_that_is_too_large_is_for_another_device(tmp_path: Path) -> None:
    with pytest.raises(UnfitError, match="more than 5 bytes"):
        device.unpack(archive(("a", b"123", 0o644), ("b", b"456", 0o644)), tmp_path, 5, HeldLease())


@pytest.mark.parametrize("content", [b"no archive at all", archive(("a", b"x" * 2000, 0o644)).read()[:700]])
def test_a_damaged_bundle_is_fetched_again(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(AwayError):
        device.unpack(io.BytesIO(content), tmp_path, 10_000, HeldLease())


def header(kind: bytes) -> tarfile.TarInfo:
    """A header that claims a longer header after it."""
    member = tarfile.TarInfo("long")
    member.type, member.size = kind, device.MAX_HEADER_BYTES
    return member


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_long_header_is_not_read_into_memory(tmp_path: Path, kind: bytes) -> None:
    class Endless(io.BytesIO):
        longest = 0

        def read(self, size: int | None = -1) -> bytes:
            self.longest = max(self.longest, size or 0)
            return super().read(size)

    stream = Endless(header(kind).tobuf() + bytes(2 * device.MAX_HEADER_BYTES))
    with pytest.raises(AwayError, match="a header of more than"):
        device.unpack(stream, tmp_path, 1 << 30, HeldLease())
    assert stream.longest <= tarfile.BLOCKSIZE


def test_folders_nested_thousands_deep_are_removed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("a", dir_fd=here)
        below = os.open("a", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.symlink(tmp_path, "link", dir_fd=here)
    os.close(here)
    device.remove(top)
    assert not top.exists()
    assert tmp_path.exists()


def test_a_report_that_the_service_refuses_does_not_end_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []

    class Refusing(Service):
        def send(self, method: str, path: str, body: object = None, timeout: float = 0.0) -> Any:
            sent.append(body)
            if "entries" in cast(dict[str, Any], body):
                raise device.RefusedError("entries.0.outputs: required")

    monkeypatch.setattr(device, "FIRST_RETRY_SECONDS", 0.0)
    strange = {"entries": [{"x": 1}]}
    result = device._finish(Refusing("http://127.0.0.1:9", None), "/v1/devices/1", "7", strange)
    assert sent == [strange, result]
    assert device._words(result).startswith("failed: the service refused what the program reported")


def test_the_folder_is_gone_at_the_end_and_what_a_killed_device_left_at_the_start(settings: Settings) -> None:
    with device.own_folder(settings) as folder:
        left = folder / "task-1" / "deep"
        left.mkdir(parents=True)
        (left / "file").write_text("left")
        left.chmod(0)
        with pytest.raises(StoppedError, match="another device works in"), device.own_folder(settings):
            pass
    assert not folder.exists()
    (folder / "task-2").mkdir(parents=True)
    with device.own_folder(settings):
        assert [path.name for path in folder.iterdir()] == ["lock"]


def test_a_key_is_taken_out_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BESSEMER_API_KEY", "bsm_secret")
    assert device.read_settings(["--name", "board"]).key == "bsm_secret"
    assert "BESSEMER_API_KEY" not in os.environ
    (tmp_path / "key").write_text("bsm_other\n")
    monkeypatch.setenv("BESSEMER_API_KEY_FILE", str(tmp_path / "key"))
    assert device.read_settings(["--name", "board"]).key == "bsm_other"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--name", "../x"], "is not a name"),
        (["--name", "x" * 65], "is not a name"),
        (["--url", "ftp://service"], "is not a URL"),
        (["--url", "service:8000"], "is not a URL"),
    ],
)
def test_arguments_are_checked_before_anything_is_sent(arguments: list[str], why: str) -> None:
    with pytest.raises(StoppedError, match=why):
        device.read_settings(arguments)


@pytest.mark.parametrize(
    ("launcher", "emulated"),
    [("", False), ("/usr/bin/qemu-aarch64-static -L /sysroot", True), ("taskset -c 2,3", False)],
)
def test_an_emulator_makes_a_device_say_that_it_is_emulated(launcher: str, emulated: bool) -> None:
    settings = device.read_settings(["--name", "board", "--launcher", launcher])
    assert device.describe(settings)["emulated"] is emulated


def test_what_a_device_says_of_this_machine_is_what_the_service_takes(settings: Settings) -> None:
    said = DeviceRequest.model_validate(device.describe(settings))
    assert (said.name, said.platform, said.cores) == ("board", "aarch64", 2)
    assert said.memory_bytes > 0
    assert said.features


def test_redirects_are_not_followed_so_that_no_other_host_gets_the_key() -> None:
    redirect = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n"
    with answering(redirect) as url, pytest.raises(device.RefusedError, match="302"):
        Service(url, "bsm_secret").send("POST", "/v1/devices", {})


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, StoppedError),
        (403, StoppedError),
        (404, GoneError),
        (409, GoneError),
        (422, device.RefusedError),
        (429, AwayError),
        (503, AwayError),
    ],
)
def test_what_the_service_answers_decides_what_the_device_does(status: int, error: type[Exception]) -> None:
    body = b'{"detail": "the reason"}'
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with answering(head.encode() + body) as url, pytest.raises(error, match=f"{status}: the reason"):
        Service(url, None).send("POST", "/v1/devices", {})


def test_a_service_that_is_away_is_no_end() -> None:
    with pytest.raises(AwayError):
        Service("http://127.0.0.1:9", None).send("POST", "/v1/devices", {})


def test_sigterm_ends_a_device_that_waits_for_its_service(tmp_path: Path) -> None:
    command = [sys.executable, device.__file__, "--name", "board", "--folder", str(tmp_path)]
    with subprocess.Popen(
        [*command, "--url", "http://127.0.0.1:9"], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert "does not answer" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert [*tmp_path.iterdir()] == []


def test_the_program_is_one_file_that_needs_only_python() -> None:
    text = Path(device.__file__).read_text()
    imports = (line for line in text.splitlines() if line.startswith(("import ", "from ")))
    imported = {line.split()[1].partition(".")[0] for line in imports}
    assert imported - {"__future__"} <= sys.stdlib_module_names


GPU = {"name": "NVIDIA H200", "arch": "sm_90", "memory_bytes": 1 << 37, "cuda": "13.0", "driver": "580.95"}


def probing(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a script stand for the process that looks for GPUs."""
    (folder / "python").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))


@pytest.mark.parametrize("arguments", [["--gpu"], ["--gpu", "--platform", "x86_64-cuda"]])
def test_a_device_with_a_gpu_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    probing(tmp_path, f"echo '{json.dumps([GPU])}'", monkeypatch)
    monkeypatch.setattr(device, "_platform", lambda: "x86_64")
    settings = device.read_settings(["--name", "board", *arguments])
    said = DeviceRequest.model_validate(device.describe(settings))
    assert said.platform == "x86_64-cuda"
    assert {"sm_90", "sm_75-ptx"} <= said.runs_with
    assert "sm_80" not in said.runs_with


def test_the_search_for_gpus_has_the_environment_of_the_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probing(tmp_path, """echo "[\\"$CUDA_VISIBLE_DEVICES $LD_LIBRARY_PATH\\"]" """, monkeypatch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/cuda")
    assert device.read_settings(["--name", "board", "--gpu"]).gpus == ("1 ",)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo '[]'", "this machine has no NVIDIA GPU, or no driver"),
        ("echo 'OSError: cuInit failed with error 999' >&2; exit 1", "cuInit failed with error 999"),
        ("kill -SEGV $$", "cannot be used: status -11"),
        ("exec sleep 60", "did not answer within 0.5 s"),
    ],
)
def test_a_device_without_a_usable_gpu_does_not_start_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    probing(tmp_path, script, monkeypatch)
    monkeypatch.setattr(device, "PROBE_SECONDS", 0.5)
    with pytest.raises(StoppedError, match=why):
        device.read_settings(["--name", "board", "--gpu"])
