"""The settings of a worker, read from ``BESSEMER_*``."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from bessemer.contract.sandbox import SandboxMode
from worker.protocol.order import Confinement, Rlimits

KIBIBYTE = 1 << 10
MEBIBYTE = 1 << 20
GIBIBYTE = 1 << 30
RESERVED_BYTES = 16 * GIBIBYTE
RESERVED_BYTES_PER_CORE = GIBIBYTE // 2
"""Address space that a job reserves beyond its memory: libraries, stacks and arenas of its threads."""
ALL_ADDRESSES = 1 << 47
"""The address space of a process; a GPU's driver reserves large parts of it."""
CPU_SLACK_SECONDS = 2
"""How much earlier the watch acts than the kernel, whose SIGKILL looks like any other."""


def _default_work_dir() -> Path:
    return Path(f"/tmp/bessemer-work-{os.geteuid()}")


def _default_measuring_lock() -> Path:
    return Path(f"/tmp/bessemer-measuring-{os.geteuid()}")


@dataclass(frozen=True)
class TurnLimits:
    """How jobs share their host.

    Attributes:
        lock: the file that all workers of the host lock.
        patience_seconds: how long a job waits. After that, another supervisor is frozen, and both measure.
        turn_seconds: how long a job measures alone. After that, the next turn begins, and both measure.
    """

    lock: Path
    patience_seconds: float
    turn_seconds: float


@dataclass(frozen=True)
class Limits:
    """What a job may use. ``timeout_seconds`` is the request's own limit of wall-clock time."""

    memory_bytes: int
    disk_bytes: int
    inodes: int
    file_bytes: int
    output_bytes: int
    cpu_seconds: float
    wall_seconds: float
    timeout_seconds: float | None = None


class WorkerSettings(BaseSettings):
    """How a worker confines and limits its jobs."""

    model_config = SettingsConfigDict(env_prefix="BESSEMER_", extra="ignore", frozen=True)

    sandbox: SandboxMode = Field(
        default=SandboxMode.REQUIRED,
        description="`required`: the worker does not start if a required layer of the confinement does not "
        "hold; `best-effort` continues without that layer and reports it; `off` disables confinement.",
    )
    signing_key: Path | None = Field(
        default=None,
        description="A file with an Ed25519 private key in PEM, which signs the provenance of bundles: see "
        "docs/security.md. Default: bundles are not signed.",
    )
    work_dir: Path = Field(
        default_factory=_default_work_dir,
        description="The parent of the folders of running jobs. Default: `/tmp/bessemer-work-<uid>`. "
        "Other users must be able to pass through its parents.",
    )
    worker_id: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$",
        description="The worker's unique name. Default: derived from the host name and `work_dir`.",
    )
    cores: int = Field(
        default_factory=lambda: len(os.sched_getaffinity(0)),
        ge=1,
        le=1024,
        description="Threads that jobs use if their request sets none. Default: the available cores.",
    )
    slot_uid_base: int = Field(
        default=61_000,
        ge=1000,
        le=2_000_000_000,
        description="The user id of the first job slot, if the worker is root. No account may use these "
        "ids; workers on one host take successive ranges.",
    )
    store_patience_seconds: float = Field(
        default=60.0,
        ge=0,
        description="How long a running job waits for an unavailable database or artifact store; then its "
        "attempt ends, and the task starts again later.",
    )
    device_wait_seconds: float = Field(
        default=600.0,
        ge=0,
        description="How long a compilation that only a device can verify waits for a live device before it "
        "fails. A search on devices waits as long, and then ends with the results that it has.",
    )
    measuring_lock: Path = Field(
        default_factory=_default_measuring_lock,
        description="The lock file that lets only one job on a host measure at a time. Use the same file for "
        "all workers of the host; in containers, put it on a shared volume. Default: "
        "`/tmp/bessemer-measuring-<uid>`.",
    )
    measuring_patience_seconds: float = Field(
        default=900.0,
        gt=0,
        description="How long a job waits for its turn to measure; after that, it measures at the same time "
        "as the other job.",
    )
    measuring_turn_seconds: float = Field(
        default=60.0,
        gt=0,
        description="How long a job may measure alone; after that, the next job's turn begins, and both "
        "measure at the same time.",
    )
    object_cache_bytes: int = Field(
        default=256 * MEBIBYTE,
        ge=0,
        description="Compiled functions that the worker keeps for later compilations of the same tenant, in "
        "its part of `BESSEMER_WORK_DIR`; 0: none. Only with `BESSEMER_SANDBOX=required`.",
    )
    limit_memory_bytes: int = Field(
        default=8 * GIBIBYTE, ge=256 * MEBIBYTE, description="Memory of all processes of a job together."
    )
    cgroup: Path | None = Field(
        default=None,
        description="A cgroup with the memory controller in which the worker may make others, such as "
        "`/sys/fs/cgroup/bessemer`: each job then gets a memory cgroup of its own, which also counts kernel "
        "memory and files on a tmpfs. Default: none.",
    )
    limit_disk_bytes: int = Field(
        default=16 * GIBIBYTE, ge=MEBIBYTE, description="What a job may write to its folder."
    )
    limit_inodes: int = Field(default=20_000, ge=100, description="Files and folders in a job's folder.")
    limit_output_bytes: int = Field(
        default=16 * MEBIBYTE, ge=KIBIBYTE, description="What a job may print to its log."
    )
    limit_cpu_seconds: int = Field(
        default=48 * 3600, ge=1, description="Processor time of all processes of a job together."
    )
    limit_wall_seconds: float = Field(
        default=1800.0,
        gt=0,
        description="How long a job may run; a request may set a lower limit. A longer search needs a worker "
        "with a higher limit.",
    )
    limit_inspect_seconds: float = Field(
        default=120.0, gt=0, description="How long the inspection of an upload may run."
    )
    limit_invoke_seconds: float = Field(
        default=120.0, gt=0, description="How long an invocation of a library may run."
    )
    limit_processes: int = Field(
        default=512, ge=16, description="Processes and threads of a job at the same time."
    )
    limit_file_bytes: int = Field(
        default=8 * GIBIBYTE, ge=MEBIBYTE, description="The largest single file that a job may write."
    )
    limit_open_files: int = Field(
        default=1024, ge=64, description="Descriptors that one process of a job may have open."
    )

    metrics_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="The port where Prometheus reads this worker's metrics, different for each worker of a "
        "host; 0 picks a free port. Default: none.",
    )
    metrics_host: str = Field(default="127.0.0.1", description="The address on which `metrics_port` listens.")

    @model_validator(mode="after")
    def _key_is_out_of_reach(self) -> Self:
        if self.signing_key is not None and self.sandbox is SandboxMode.OFF:
            raise ValueError("BESSEMER_SIGNING_KEY needs a sandbox: without one, jobs could read the key")
        return self

    @property
    def keeps_objects(self) -> bool:
        """Whether the worker keeps compiled functions: no job may write them, so every layer must hold."""
        return self.object_cache_bytes > 0 and self.sandbox is SandboxMode.REQUIRED

    def turn_limits(self) -> TurnLimits:
        """How jobs share this host."""
        return TurnLimits(self.measuring_lock, self.measuring_patience_seconds, self.measuring_turn_seconds)

    def confinement(self, uid: int | None, gpus: bool = False) -> Confinement:
        """How to confine a job's child.

        Args:
            uid: the slot's user; None if the worker is not root.
            gpus: whether it may use the GPUs, whose driver reserves address space beyond any memory.
        """
        rlimits = self.rlimits()
        if gpus:
            rlimits = rlimits.model_copy(update={"address_space_bytes": ALL_ADDRESSES})
        return Confinement(mode=self.sandbox, uid=uid, rlimits=rlimits, gpus=gpus)

    def rlimits(self) -> Rlimits:
        """The kernel's limits on each process; the watch enforces the same limits on the whole tree."""
        reserved = RESERVED_BYTES + self.cores * RESERVED_BYTES_PER_CORE
        return Rlimits(
            data_bytes=self.limit_memory_bytes + self.cores * RESERVED_BYTES_PER_CORE,
            address_space_bytes=self.limit_memory_bytes + reserved,
            file_bytes=self.limit_file_bytes,
            open_files=self.limit_open_files,
            processes=self.limit_processes,
            cpu_seconds=self.limit_cpu_seconds + CPU_SLACK_SECONDS,
        )

    def limits(self, timeout_seconds: float | None) -> Limits:
        """The limits that the watch enforces.

        Args:
            timeout_seconds: the request's limit; None if only this worker's own limit applies.
        """
        return Limits(
            memory_bytes=self.limit_memory_bytes,
            disk_bytes=self.limit_disk_bytes,
            inodes=self.limit_inodes,
            file_bytes=self.limit_file_bytes,
            output_bytes=self.limit_output_bytes,
            cpu_seconds=self.limit_cpu_seconds,
            wall_seconds=self.limit_wall_seconds,
            timeout_seconds=timeout_seconds,
        )
