"""The confinement of a job, and the operations that it still permits."""

import os
from pathlib import Path
from typing import Any

import pytest

from bessemer.contract.sandbox import Layer, SandboxMode
from worker.sandbox import allowed_syscalls
from worker.sandbox.environment import ZYGOTE_ENVIRONMENT

Rig = Any
AS_ROOT = os.geteuid() == 0


def test_every_layer_holds_before_the_upload_is_opened(rig: Rig) -> None:
    outcome = rig.confined("return os.getuid()")
    assert outcome.messages[0].kind == "confined"
    assert set(outcome.sandbox.lost) == (set() if AS_ROOT else {Layer.UID})
    assert outcome.sandbox.complete
    assert (outcome.did != os.geteuid()) == AS_ROOT
    print(f"confined after {outcome.messages[0].seconds * 1000:.1f} ms")


def test_without_the_sandbox_every_layer_is_reported_as_lost(rig: Rig) -> None:
    outcome = rig.unconfined("return 0")
    assert set(outcome.sandbox.lost) == set(Layer)
    assert outcome.sandbox.mode is SandboxMode.OFF


def test_a_job_forks_links_imports_and_writes_its_folder(rig: Rig) -> None:
    work = """
        import subprocess, shutil, tempfile, ziglang, multiprocessing.util, xml.dom.minidom, sqlite3, pickle
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.write(writer, b"forked")
            os._exit(0)
        zig = os.path.join(os.path.dirname(ziglang.__file__), "zig")
        linked = subprocess.run([zig, "ld.lld", "--version"], capture_output=True, text=True)
        with tempfile.NamedTemporaryFile(delete=False) as file:
            file.write(b"x")
        os.makedirs("a/b")
        shutil.move(file.name, "../output/result")
        shutil.rmtree("a")
        import threading
        done = []
        thread = threading.Thread(target=done.append, args=(1,))
        thread.start()
        thread.join()
        return [os.read(reader, 10).decode(), linked.returncode, os.listdir("../output"), done]
    """
    outcome = rig.confined(work)
    assert outcome.did == ["forked", 0, ["result"], [1]], outcome


def test_a_job_runs_on_the_threads_it_was_given(rig: Rig) -> None:
    work = """
        import torch
        a = torch.ones(1024, 1024)
        return [os.environ["TVM_NUM_THREADS"], float((a @ a)[0, 0])]
    """
    assert rig.confined(work).did == ["2", 1024.0]


def test_a_denied_system_call_fails_and_does_not_kill(rig: Rig) -> None:
    denied = (*allowed_syscalls.DENIED, *allowed_syscalls.FALL_BACK)
    # for a call denied only with certain arguments, pass those arguments
    work = f"""
        import ctypes, pyseccomp
        libc = ctypes.CDLL(None, use_errno=True)
        answers = {{}}
        for name in {denied!r}:
            number = pyseccomp.resolve_syscall(0, name)
            if number >= 0:
                answers[name] = [libc.syscall(number, -1, 0, 0, 0, 0, 0), ctypes.get_errno()]
        calls = dict(clone=(0x10000000,), fcntl=(0, 8, 1), prlimit64=(1, 7, 0, 0), ioctl=(0, 0x5412, 0))
        calls["prctl"] = (4, 0)
        for name, call in calls.items():
            number = pyseccomp.resolve_syscall(0, name)
            answers[name] = [libc.syscall(number, *call), ctypes.get_errno()]
        return answers
    """
    answers = rig.confined(work).did
    assert len(answers) > 100
    wrong = {name: answer for name, answer in answers.items() if answer not in ([-1, 1], [-1, 38])}
    assert not wrong
    assert all(answers[name] == [-1, 38] for name in allowed_syscalls.FALL_BACK)


@pytest.mark.skipif(not AS_ROOT, reason="only root has capabilities to lose")
def test_a_job_has_at_most_the_capability_to_read(rig: Rig) -> None:
    work = """
        import ctypes
        libc = ctypes.CDLL(None)
        class Words(ctypes.Structure):
            _fields_ = [(name, ctypes.c_uint32 * 1) for name in ("e0", "p0", "i0", "e1", "p1", "i1")]
        header, words = (ctypes.c_uint32 * 2)(0x20080522, 0), Words()
        libc.syscall(125, header, ctypes.byref(words))
        return [getattr(words, name)[0] for name in ("e0", "p0", "i0", "e1", "p1", "i1")]
    """
    read_only = 1 << 2
    words = rig.confined(work).did
    assert all(word in (0, read_only) for word in words)


def test_the_zygote_has_one_thread_and_no_secret(rig: Rig) -> None:
    rig.confined("return 0")
    zygote = Path(f"/proc/{rig.zygote.pid}")
    assert len(tuple((zygote / "task").iterdir())) == 1
    environment = (zygote / "environ").read_text().split("\0")
    assert {entry.partition("=")[0] for entry in environment if entry} == set(ZYGOTE_ENVIRONMENT)
    descriptors = [str(descriptor.readlink()) for descriptor in (zygote / "fd").iterdir()]
    assert not [target for target in descriptors if "socket" in target or ".sqlite" in target]
