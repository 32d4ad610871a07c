"""Devices: boards, laptops and cloud machines that verify and measure bundles for other platforms.

A device calls the service, never the other way round. It registers, asks for a task, downloads the bundle,
runs the bundle's own program and sends what it found. For a search, it times candidates.
"""

import json
from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256
from typing import Annotated, Literal

from pydantic import Field, FiniteFloat, StringConstraints

from bessemer.contract.base import Digest, Document, Readable
from bessemer.contract.capability import Gpu, code_features
from bessemer.contract.names import DeviceName
from bessemer.contract.request import MAX_ENTRIES, EntryName
from bessemer.contract.target import MAX_CORES
from bessemer.contract.tensor import TensorName

DEVICE_ID_PATTERN = r"^[0-9a-f]{1,32}$"
MAX_OUTPUTS = 1024
MAX_TIMES = 1000
MAX_DETAIL = 2000
MAX_CANDIDATES = 512
MAX_ROUNDS = 64
MAX_REPEATS = 100
_MAX_COUNT = 1 << 53

DeviceId = Annotated[str, StringConstraints(pattern=DEVICE_ID_PATTERN)]
Platform = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]{1,32}(-musl|-cuda)?$")]
DeviceFeature = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$")]
Text = Annotated[Readable, StringConstraints(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
Milliseconds = Annotated[FiniteFloat, Field(ge=0, le=1e9)]


class DeviceGpu(Gpu):
    """A GPU as a device describes it."""

    name: Text = Field(description="The model, such as `NVIDIA H100 80GB HBM3`.")
    arch: DeviceFeature = Field(description="The architecture, such as `sm_90`.")
    memory_bytes: int = Field(strict=True, ge=0, le=_MAX_COUNT, description="The GPU's memory.")
    driver: Text = Field(default="", description="The driver's version, such as `580.95.05`, if it is known.")
    cuda: Text = Field(description="The newest version of CUDA that the driver runs, such as `13.0`.")


class DeviceRequest(Document):
    """A device's description of itself."""

    name: DeviceName = Field(description="A name that is unique in your tenant.", examples=["pi-4"])
    platform: Platform = Field(
        description="The architecture, and the C library unless that is glibc, such as `aarch64` or "
        "`x86_64-musl`; `x86_64-cuda` for a device that runs libraries for NVIDIA GPUs.",
        examples=["aarch64"],
    )
    processor: Text = Field(
        default="", description="The model of the processor.", examples=["ARM Cortex-A72 (BCM2711)"]
    )
    features: tuple[DeviceFeature, ...] = Field(
        default=(),
        max_length=1024,
        description="Features of the processor, as the kernel names them in `/proc/cpuinfo`.",
        examples=[["fp", "asimd", "crc32"]],
    )
    cores: int = Field(strict=True, ge=1, le=MAX_CORES, description="Cores that a program may use.")
    memory_bytes: int = Field(strict=True, ge=0, le=_MAX_COUNT, description="Memory of the machine.")
    libc: Text = Field(default="", description="The C library.", examples=["glibc 2.36"])
    gpus: tuple[DeviceGpu, ...] = Field(
        default=(), max_length=64, description="Its NVIDIA GPUs; a program runs on the first."
    )
    emulated: bool = Field(
        strict=True,
        default=False,
        description="Whether an emulator runs its programs: then it verifies bundles, and measures none. It "
        "ranks the candidates of a search only for a request that names it.",
    )
    version: Text = Field(default="", description="The version of the device's program.")

    @property
    def runs_with(self) -> frozenset[str]:
        """The features of its processor and of its first GPU."""
        return frozenset(self.features).union(*map(code_features, self.gpus[:1]))

    @property
    def kind(self) -> Digest:
        """The kind: only times of one kind are comparable. Unknown hardware is a kind of its own."""
        known = self.processor or self.name
        gpus = [(gpu.name, gpu.arch) for gpu in self.gpus[:1]]
        parts = (self.platform, known, sorted(set(self.features)), self.cores, gpus, self.emulated)
        return sha256(json.dumps(parts).encode()).hexdigest()


class Device(DeviceRequest):
    """A device."""

    id: DeviceId = Field(description="Its id until it registers again.")
    shared: bool = Field(description="Whether it serves all tenants, or only the one that it belongs to.")
    busy: bool = Field(default=False, description="Whether it has a task.")
    registered_at: datetime = Field(description="When it registered.")
    seen_at: datetime = Field(description="When it was last heard from, by the database's clock.")
    lease_seconds: float = Field(
        description="A device that is not heard from for this long is lost, and another gets its task."
    )


class DeviceList(Document):
    """The live devices."""

    items: tuple[Device, ...] = Field(description="Your tenant's devices and the shared ones, by name.")


class DeviceTask(Document):
    """A bundle for a device to verify and measure, or candidates of a search to time."""

    id: DeviceId = Field(description="The task.")
    kind: Literal["verify", "measure"] = Field(
        default="verify",
        description="`verify`: run the bundle's program on its reference inputs. `measure`: run each command "
        "of `candidates.json` in each round, with `--threads`, `--repeat`, `--seconds` and `--report` added.",
    )
    digest: Digest = Field(description="The SHA-256 of the archive of the bundle or the candidates.")
    rounds: int = Field(
        default=1, ge=1, le=MAX_ROUNDS, description="For candidates: how often each is run, in turns."
    )
    first: int = Field(
        default=0,
        ge=0,
        lt=MAX_CANDIDATES,
        description="For candidates: the first one to run. Others of the archive are for other devices.",
    )
    count: int | None = Field(
        default=None, ge=1, le=MAX_CANDIDATES, description="For candidates: how many to run; null: the rest."
    )
    threads: int | None = Field(
        default=None,
        ge=1,
        le=MAX_CORES,
        description="The most threads that the program may use; null: as many as the device has cores.",
    )
    repeat: int = Field(ge=0, le=MAX_TIMES, description="The most runs to time after the first.")
    repeat_seconds: float = Field(gt=0, description="The most seconds to spend on them.")
    timeout_seconds: float = Field(gt=0, description="How long one run of a program may take.")
    memory_bytes: int = Field(gt=0, description="The memory that the program may use.")
    disk_bytes: int = Field(gt=0, description="The size that the unpacked bundle may have.")


class DeviceOutput(Document):
    """The comparison of an output with its reference on a device."""

    name: TensorName = Field(description="The output.")
    elements: int = Field(strict=True, ge=0, le=_MAX_COUNT, description="The number of its elements.")
    mismatches: int = Field(
        strict=True, ge=0, le=_MAX_COUNT, description="How many of them differ by more than the tolerance."
    )
    max_absolute_error: Annotated[FiniteFloat, Field(ge=0)] | None = Field(
        description="The largest difference; null if one is not finite."
    )


class DeviceEntry(Document):
    """What a device found about an entry point."""

    name: EntryName = Field(description="The entry point.")
    outputs: tuple[DeviceOutput, ...] = Field(max_length=MAX_OUTPUTS, description="Its outputs.")
    open_ms: Milliseconds = Field(description="The time to open the model.")
    first_ms: Milliseconds = Field(description="The time of the first run.")
    times_ms: tuple[Milliseconds, ...] = Field(
        default=(), max_length=MAX_TIMES, description="The times of the runs after the first."
    )


class DeviceCandidate(Document):
    """What a device found about a candidate of a search."""

    rounds_ms: tuple[
        Annotated[tuple[Milliseconds, ...], Field(min_length=1, max_length=MAX_REPEATS)], ...
    ] = Field(default=(), max_length=MAX_ROUNDS, description="The times of each round; empty if it failed.")
    failure: Annotated[Readable, StringConstraints(max_length=MAX_DETAIL)] = Field(
        default="", description="Why it did not run in some round; empty if it ran in all."
    )


class DeviceResult(Document):
    """How a device's task ended."""

    failure: Annotated[Readable, StringConstraints(max_length=MAX_DETAIL)] = Field(
        default="", description="Why the program did not run to its end; empty if it did."
    )
    unfit: bool = Field(
        strict=True,
        default=False,
        description="Whether the failure is the device's: it lacks instructions, memory or space.",
    )
    entries: tuple[DeviceEntry, ...] = Field(
        default=(), max_length=MAX_ENTRIES, description="The entry points that ran."
    )
    candidates: tuple[DeviceCandidate, ...] = Field(
        default=(),
        max_length=MAX_CANDIDATES,
        description="The candidates that it ran, in the order of `candidates.json`.",
    )
    threads: int = Field(
        strict=True, default=1, ge=1, le=MAX_CORES, description="The threads that the program used."
    )
    peak_memory_bytes: int = Field(
        strict=True, default=0, ge=0, le=_MAX_COUNT, description="The program's peak memory."
    )


def serving(platform: str, devices: Iterable[Device]) -> tuple[Device, ...]:
    """The devices that run programs of a platform, such as ``aarch64``."""
    return tuple(device for device in devices if device.platform == platform)


def platforms_of(devices: Iterable[Device]) -> frozenset[str]:
    """The platforms that at least one of the devices runs."""
    return frozenset(device.platform for device in devices)
