"""What the supervisor orders from the zygote: one JSON line an order, one an answer.

The zygote's standard input and output are its only two pipes. A job's messages do not pass through it: the
child inherits the writing end of a FIFO that the supervisor reads.
"""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from bessemer.contract.base import Document
from bessemer.contract.capability import Capability
from bessemer.contract.invocation import MAX_RUNS
from bessemer.contract.request import CompilationRequest
from bessemer.contract.sandbox import SandboxMode


class Rlimits(Document):
    """What the kernel itself enforces on every process of a job."""

    data_bytes: int = Field(description="Private writable memory.")
    address_space_bytes: int
    file_bytes: int
    open_files: int
    processes: int
    cpu_seconds: int


class Confinement(Document):
    """How a job's child is to be confined."""

    mode: SandboxMode
    uid: int | None = Field(description="The slot's own user; null where the supervisor is not root.")
    rlimits: Rlimits


class ProbeWork(Document):
    """Report the layers of the confinement and leave."""

    kind: Literal["probe"] = "probe"


class InspectWork(Document):
    """Read a model's format and signature."""

    kind: Literal["inspect"] = "inspect"


class MeasuringLock(Document):
    """What the jobs of a host share, so that one at a time measures."""

    path: str
    patience_seconds: float


class CompileWork(Document):
    """Run the pipeline."""

    kind: Literal["compile"] = "compile"
    request: CompilationRequest
    measuring: MeasuringLock | None = Field(
        default=None, description="Null where the job has the host to itself."
    )
    seconds: float = Field(description="Of wall clock that the job may run.")


class InvokeWork(Document):
    """Run the library of the bundle that lies in the upload's place on the inputs beside it."""

    kind: Literal["invoke"] = "invoke"
    runs: int = Field(ge=0, le=MAX_RUNS, description="How often to time it.")


Work = Annotated[ProbeWork | InspectWork | CompileWork | InvokeWork, Field(discriminator="kind")]


class StartJob(Document):
    """Fork a child for a job.

    ``folder`` holds ``model`` (the upload, read-only) and receives ``output/`` (results), ``scratch/`` and
    ``log.txt`` (what the job prints). ``messages`` is the FIFO.
    """

    kind: Literal["start"] = "start"
    job: str
    folder: str
    messages: str
    confinement: Confinement
    cores: int = Field(description="The worker's cores; the target's where the request names none.")
    work: Work


MAX_ORDER_BYTES = 1 << 22

Order = StartJob
ORDERS: TypeAdapter[Order] = TypeAdapter(Order)


class Ready(Document):
    """The zygote has imported everything."""

    kind: Literal["ready"] = "ready"
    seconds: float
    mcpu: str = Field(description="LLVM's name of the processor.")
    versions: dict[str, str]
    capability: Capability


class Started(Document):
    """A child runs; its process group's id is its process id."""

    kind: Literal["started"] = "started"
    job: str
    pid: int


class Exited(Document):
    """A child is gone; without a ``Started`` before it, there never was one, and ``status`` is the errno.

    ``signal`` is 0 where it left by itself.
    """

    kind: Literal["exited"] = "exited"
    job: str
    status: int
    signal: int


Answer = Annotated[Ready | Started | Exited, Field(discriminator="kind")]
ANSWERS: TypeAdapter[Answer] = TypeAdapter(Answer)
