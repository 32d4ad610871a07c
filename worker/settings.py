"""The settings of a worker, read from ``BESSEMER_*``."""

import os
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from bessemer.contract.sandbox import SandboxMode
from worker.protocol.order import Confinement, MeasuringLock, Rlimits

KIBIBYTE = 1 << 10
MEBIBYTE = 1 << 20
GIBIBYTE = 1 << 30
RESERVED_BYTES = 16 * GIBIBYTE
RESERVED_BYTES_PER_CORE = GIBIBYTE // 2
"""Address space beyond its memory that a job reserves: libraries, stacks and arenas of its threads."""
CPU_SLACK_SECONDS = 2
"""By which the watch is before the kernel, whose SIGKILL looks like anybody's."""


def _default_work_dir() -> Path:
    return Path(f"/tmp/bessemer-work-{os.geteuid()}")


def _default_measuring_lock() -> Path:
    return Path(f"/tmp/bessemer-measuring-{os.geteuid()}")


@dataclass(frozen=True)
class Limits:
    """What a job may use. ``timeout_seconds`` is the request's own limit of wall clock."""

    memory_bytes: int
    disk_bytes: int
    inodes: int
    output_bytes: int
    cpu_seconds: float
    wall_seconds: float
    timeout_seconds: float | None = None


class WorkerSettings(BaseSettings):
    """How a worker confines and limits its jobs."""

    model_config = SettingsConfigDict(env_prefix="BESSEMER_", extra="ignore", frozen=True)

    sandbox: SandboxMode = Field(
        default=SandboxMode.REQUIRED,
        description="`required`: the worker does not start where a required layer of the confinement "
        "does not hold; `best-effort` goes on without it, and says so; `off` confines nothing.",
    )
    work_dir: Path = Field(
        default_factory=_default_work_dir,
        description="Where jobs have their folders while they run. Default: `/tmp/bessemer-work-<uid>`. "
        "Other users must be able to pass through its parents.",
    )
    worker_id: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$",
        description="The worker's name, different for each. Default: made of the host's name and `work_dir`.",
    )
    cores: int = Field(
        default_factory=lambda: len(os.sched_getaffinity(0)),
        ge=1,
        le=1024,
        description="Threads that jobs use where their request names none. Default: the cores at hand.",
    )
    slot_uid_base: int = Field(
        default=61_000,
        ge=1000,
        le=2_000_000_000,
        description="The user of the first job slot, where the worker is root. No account may have these "
        "numbers; workers on one host take successive ones.",
    )
    store_patience_seconds: float = Field(
        default=60.0,
        ge=0,
        description="How long a running job waits for a database or an artifact store that is away; then its "
        "attempt ends, and the task is retried later.",
    )
    measuring_lock: Path = Field(
        default_factory=_default_measuring_lock,
        description="The file by which the jobs of a host measure one at a time: the same for all workers "
        "of the host, in containers on a volume that they share. Default: `/tmp/bessemer-measuring-<uid>`.",
    )
    measuring_patience_seconds: float = Field(
        default=900.0,
        gt=0,
        description="A job that has waited so long for its turn to measure goes on beside the other.",
    )
    limit_memory_bytes: int = Field(
        default=8 * GIBIBYTE, ge=256 * MEBIBYTE, description="Memory of all processes of a job together."
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
        description="How long a job may run; a request may ask for less. A search that is to take longer "
        "needs a worker with a higher limit.",
    )
    limit_inspect_seconds: float = Field(
        default=120.0, gt=0, description="How long the inspection of an upload may run."
    )
    limit_invoke_seconds: float = Field(
        default=120.0, gt=0, description="How long an invocation of a library may run."
    )
    limit_processes: int = Field(
        default=512, ge=16, description="Processes and threads of a job at one time."
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
        description="The port at which Prometheus reads this worker's metrics, another for each worker of a "
        "host; 0 takes any that is free. Default: none.",
    )
    metrics_host: str = Field(default="127.0.0.1", description="The address on which `metrics_port` listens.")

    def measuring(self) -> MeasuringLock:
        """How a job's child comes to its turn."""
        return MeasuringLock(path=str(self.measuring_lock), patience_seconds=self.measuring_patience_seconds)

    def confinement(self, uid: int | None) -> Confinement:
        """What a job's child is ordered to do.

        Args:
            uid: the slot's user; None where the worker is not root.
        """
        return Confinement(mode=self.sandbox, uid=uid, rlimits=self.rlimits())

    def rlimits(self) -> Rlimits:
        """The kernel's limits on each single process; the watch holds the tree to the same."""
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
        """What the watch holds a job to.

        Args:
            timeout_seconds: what the request allows; None leaves it to this worker's own limit.
        """
        return Limits(
            memory_bytes=self.limit_memory_bytes,
            disk_bytes=self.limit_disk_bytes,
            inodes=self.limit_inodes,
            output_bytes=self.limit_output_bytes,
            cpu_seconds=self.limit_cpu_seconds,
            wall_seconds=self.limit_wall_seconds,
            timeout_seconds=timeout_seconds,
        )
