"""Finding the GPUs of a machine: with a driver, without one, and with one that fails or hangs."""

import ctypes
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bessemer.contract.capability import Gpu
from bessemer.contract.nvidia_gpus import is_new_enough, runs_on
from bessemer.contract.target import GPU_ARCHITECTURES
from worker.measure import gpu_probe
from worker.measure.gpus import gpus_here, probed_gpus

H100 = Gpu(name="NVIDIA H100", arch="sm_90", memory_bytes=80 << 30, driver="580.95.05", cuda="13.0")
WRITTEN = f"[{H100.model_dump_json()}]"


def printed(code: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", code)


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (printed(f"print({json.dumps(WRITTEN)})"), (H100,)),
        (printed("print('[]')"), ()),
        (printed("raise SystemExit(3)"), ()),
        (printed("import os; os.abort()"), ()),
        (printed("print('no JSON')"), ()),
        (printed("print('[{}]')"), ()),
        (printed("import time; time.sleep(600)"), ()),
        (("/nonexistent/python",), ()),
    ],
    ids=["a GPU", "none", "fails", "crashes", "no JSON", "another form", "hangs", "cannot start"],
)
def test_a_broken_driver_costs_the_gpus_and_nothing_else(
    command: tuple[str, ...], found: tuple[Gpu, ...]
) -> None:
    seconds = 0.5 if "sleep" in command[-1] else 60.0
    assert probed_gpus(command, seconds) == found


def test_a_machine_without_a_driver_has_no_gpus() -> None:
    assert gpu_probe.found_gpus(("/nonexistent/libcuda.so.1",)) == []


def test_this_machine_is_asked_once() -> None:
    assert gpus_here() is gpus_here()


def driver(fails: str = "") -> SimpleNamespace:
    """A driver of two GPUs, as far as the probe calls it; ``fails`` names a call that does not work."""
    calls: dict[str, Callable[..., int]] = {
        "cuInit": lambda _flags: 0,
        "cuDriverGetVersion": lambda version: write(version, 13000),
        "cuDeviceGetCount": lambda count: write(count, 2),
        "cuDeviceGet": write,
        "cuDeviceGetName": lambda name, _length, _device: write(ctypes.pointer(name), b"NVIDIA B200"),
        "cuDeviceGetAttribute": lambda value, number, _device: write(value, {75: 10, 76: 0}[number]),
        "cuDeviceTotalMem_v2": lambda memory, _device: write(memory, 192 << 30),
    }
    return SimpleNamespace(**{**calls, **({fails: lambda *_: 100} if fails else {})})


def write(place: Any, value: object) -> int:
    (place._obj if hasattr(place, "_obj") else place.contents).value = value
    return 0


def test_the_driver_describes_its_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "version").write_text("580.95.05\n")
    monkeypatch.setattr(gpu_probe, "_opened", lambda _libraries: driver())
    monkeypatch.setattr(gpu_probe, "_VERSION", tmp_path / "version")
    found = [Gpu.model_validate(gpu) for gpu in gpu_probe.found_gpus()]
    expected = Gpu(name="NVIDIA B200", arch="sm_100", memory_bytes=192 << 30, driver="580.95.05", cuda="13.0")
    assert found == [expected, expected]


def test_a_failed_call_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_probe, "_opened", lambda _libraries: driver(fails="cuInit"))
    with pytest.raises(gpu_probe.DriverError, match="cuInit failed with error 100"):
        gpu_probe.found_gpus()


@pytest.mark.parametrize(
    ("code", "gpu", "runs"),
    [
        (("sm_90",), "sm_90", True),
        (("sm_80",), "sm_86", True),
        (("sm_80",), "sm_89", True),
        (("sm_86",), "sm_80", False),
        (("sm_80",), "sm_90", False),
        (("sm_100",), "sm_120", False),
        (("sm_120",), "sm_121", True),
        (GPU_ARCHITECTURES, "sm_87", True),
        (GPU_ARCHITECTURES, "sm_130", True),
        (GPU_ARCHITECTURES, "sm_70", False),
        (("sm_90",), "unknown", False),
        ((), "sm_90", False),
    ],
)
def test_code_runs_on_its_major_version_and_ptx_on_all_newer_ones(
    code: tuple[str, ...], gpu: str, runs: bool
) -> None:
    assert runs_on(code, gpu) is runs


@pytest.mark.parametrize(
    ("cuda", "is_enough"), [("13.0", True), ("13.2", True), ("12.9", False), ("", False)]
)
def test_an_older_driver_does_not_load_the_code(cuda: str, is_enough: bool) -> None:
    assert is_new_enough(cuda) is is_enough
