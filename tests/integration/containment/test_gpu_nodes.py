"""What a job may do with GPUs: nothing, or kernels on those of a worker that has some."""

from pathlib import Path
from typing import Any

import pytest

Rig = Any
NO_GPU = not Path("/dev/nvidiactl").exists()

REQUESTS = """
    import ctypes, fcntl
    libc = ctypes.CDLL(None, use_errno=True)
    file = os.open("file", os.O_RDWR | os.O_CREAT)
    answers = []
    for request in (0x46C8, 0xC020462A, 37, 0x30000001, 0x30000002, 0x5412, 0x541C, 0x8912, 0x1000):
        libc.ioctl(file, ctypes.c_ulong(request), None)
        answers.append(ctypes.get_errno())
    return answers
"""
DENIED = 38
"""ENOSYS, the filter's answer to a request that it does not know."""

CALLS = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
back = (ctypes.c_char * 4096)()
print(
    driver.cuInit(0),
    driver.cuDeviceGet(ctypes.byref(device), 0),
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
    driver.cuCtxSetCurrent(context),
    driver.cuMemAlloc_v2(ctypes.byref(memory), 4096),
    driver.cuMemsetD8_v2(memory, 7, 4096),
    driver.cuMemcpyDtoH_v2(back, memory, 4096),
    back.raw.count(7),
)
"""
DRIVER = f"""
    import subprocess, sys
    ran = subprocess.run([sys.executable, "-c", {CALLS!r}], capture_output=True, text=True)
    return ran.stdout.strip() or ran.stderr[-500:]
"""
"""As candidates are timed: in a new interpreter, where no library has started the driver."""


def test_only_a_job_for_a_gpu_makes_requests_to_its_driver(rig: Rig) -> None:
    assert set(rig.confined(REQUESTS).did) == {DENIED}
    *to_driver, terminal, push, network, other = rig.on_gpu(REQUESTS).did
    assert DENIED not in to_driver
    assert {terminal, push, network, other} == {DENIED}


def test_a_job_for_a_gpu_opens_no_other_device(rig: Rig) -> None:
    work = """
        found = {}
        for name in ("zero", "kmsg", "mem", "tty", "fuse", "kvm"):
            try:
                os.close(os.open("/dev/" + name, os.O_RDONLY))
                found[name] = "opened"
            except OSError as error:
                found[name] = error.errno
        return found
    """
    outcome = rig.on_gpu(work)
    assert outcome.sandbox.complete
    assert "opened" not in outcome.did.values()


@pytest.mark.skipif(NO_GPU, reason="this machine has no NVIDIA GPU")
def test_a_job_for_a_gpu_computes_on_it(rig: Rig) -> None:
    outcome = rig.on_gpu(DRIVER)
    assert outcome.did == "0 0 0 0 0 0 0 4096", outcome


@pytest.mark.skipif(NO_GPU, reason="this machine has no NVIDIA GPU")
def test_another_job_does_not_reach_the_gpu(rig: Rig) -> None:
    nodes = sorted(path.name for path in Path("/dev").glob("nvidia*") if path.is_char_device())
    work = f"""
        refused = []
        for name in {nodes!r}:
            try:
                os.close(os.open("/dev/" + name, os.O_RDWR))
            except OSError:
                refused.append(name)
        return refused
    """
    assert rig.confined(work).did == nodes
