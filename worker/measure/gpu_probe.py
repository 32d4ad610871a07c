"""Writes the NVIDIA GPUs of this machine as JSON, by the driver's library; an empty list without a driver.

It runs as a program of its own, since a broken driver can crash or hang the process that loads it.
"""

import ctypes
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_LIBRARIES = (
    "libcuda.so.1",
    "/usr/local/nvidia/lib64/libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1",
)
_VERSION = Path("/sys/module/nvidia/version")
_MAJOR, _MINOR = 75, 76
"""``CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`` and ``…_MINOR``."""
_NAME_BYTES = 256


class DriverError(Exception):
    """A call of the driver's library failed."""


def found_gpus(libraries: Sequence[str] = _LIBRARIES) -> list[dict[str, Any]]:
    """The GPUs that the driver offers to this process.

    Raises:
        DriverError: the driver is there and cannot be used.
    """
    driver = _opened(libraries)
    if driver is None:
        return []
    _call(driver, "cuInit", 0)
    version, count = ctypes.c_int(), ctypes.c_int()
    _call(driver, "cuDriverGetVersion", ctypes.byref(version))
    _call(driver, "cuDeviceGetCount", ctypes.byref(count))
    cuda = f"{version.value // 1000}.{version.value % 1000 // 10}"
    return [{**_described(driver, index), "cuda": cuda, "driver": _driver()} for index in range(count.value)]


def _opened(libraries: Sequence[str]) -> ctypes.CDLL | None:
    for path in libraries:
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    return None


def _described(driver: ctypes.CDLL, index: int) -> dict[str, Any]:
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    name, memory = ctypes.create_string_buffer(_NAME_BYTES), ctypes.c_size_t()
    _call(driver, "cuDeviceGet", ctypes.byref(device), index)
    _call(driver, "cuDeviceGetName", name, _NAME_BYTES, device)
    _call(driver, "cuDeviceGetAttribute", ctypes.byref(major), _MAJOR, device)
    _call(driver, "cuDeviceGetAttribute", ctypes.byref(minor), _MINOR, device)
    _call(driver, "cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    return {
        "name": name.value.decode(errors="replace"),
        "arch": f"sm_{major.value}{minor.value}",
        "memory_bytes": memory.value,
    }


def _driver() -> str:
    try:
        return _VERSION.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _call(driver: ctypes.CDLL, name: str, *arguments: Any) -> None:
    code = getattr(driver, name)(*arguments)
    if code != 0:
        raise DriverError(f"{name} failed with error {code}")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(found_gpus()))
