"""The orders of the supervisor to the zygote, and the answers: one JSON line each.

The zygote's standard input and output are its only pipes. A job's messages do not pass through it: the
child inherits the writing end of a FIFO that the supervisor reads.
"""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from bessemer.contract.base import Digest, Document
from bessemer.contract.capability import Capability
from bessemer.contract.invocation import MAX_RUNS
from bessemer.contract.offers import Offers
from bessemer.contract.options import Float32Products, VerifyOptions
from bessemer.contract.records import MeasuredTrial, NearTrial, StoredTrial, UncompiledTrial
from bessemer.contract.report import DeviceRun, SearchDevice
from bessemer.contract.request import CompilationRequest, EntryName
from bessemer.contract.sandbox import SandboxMode


class Rlimits(Document):
    """The limits that the kernel enforces on every process of a job."""

    data_bytes: int = Field(description="Private writable memory.")
    address_space_bytes: int
    file_bytes: int
    open_files: int
    processes: int
    cpu_seconds: int


class Confinement(Document):
    """How to confine a job's child."""

    mode: SandboxMode
    uid: int | None = Field(description="The slot's own user; null if the supervisor is not root.")
    rlimits: Rlimits
    gpus: bool = Field(default=False, description="Whether the job may use the machine's GPUs.")


class ProbeWork(Document):
    """Report the layers of the confinement and exit."""

    kind: Literal["probe"] = "probe"


class InspectWork(Document):
    """Read a model's format and signature."""

    kind: Literal["inspect"] = "inspect"


class ExtensionFile(Document):
    """An uploaded extension in the job's folder."""

    digest: Digest
    name: str | None = Field(description="The file's name, if an upload gave one.")


Extensions = Annotated[
    tuple[ExtensionFile, ...], Field(description="The request's extensions, to load before all else.")
]


class CompileWork(Document):
    """Run the pipeline."""

    kind: Literal["compile"] = "compile"
    request: CompilationRequest
    extensions: Extensions = ()
    seconds: float = Field(description="The wall-clock time that the job may run.")
    by_device: bool = Field(
        default=False, description="Whether a device verifies a bundle that this machine cannot run."
    )
    searches_on_device: bool = Field(
        default=False, description="Whether a device measures the candidates of a search."
    )
    keeps_records: bool = Field(
        default=False, description="Whether the supervisor answers requests for tuning records."
    )
    has_objects: bool = Field(
        default=False, description="Whether the supervisor answers requests for objects of functions."
    )


class InvokeWork(Document):
    """Run a bundle's library on the inputs beside it; the bundle takes the place of the upload."""

    kind: Literal["invoke"] = "invoke"
    runs: int = Field(ge=0, le=MAX_RUNS, description="The number of timed runs.")
    entry: EntryName | None = Field(default=None, description="The entry point; null: the first.")
    extensions: Extensions = ()


class CheckWork(Document):
    """Run and compare a new bundle's library once more; the bundle takes the place of the upload."""

    kind: Literal["check"] = "check"
    model: Digest = Field(description="The model that the bundle must name.")
    extensions: Extensions = ()
    verify: VerifyOptions
    float32_products: Float32Products = Float32Products.EXACT
    runs: bool = Field(default=True, description="Whether to run the library; else the files are read only.")
    measures: bool = Field(
        default=True, description="Whether to take the library's latency, for which the job waits for a turn."
    )
    by_device: bool = Field(
        default=False, description="Whether a device runs a bundle that this machine cannot run."
    )


class AmendWork(Document):
    """Write what a device found into a bundle's report; the bundle takes the place of the upload."""

    kind: Literal["amend"] = "amend"
    model: Digest = Field(description="The model that the bundle must name.")
    run: DeviceRun


class CompileObjectWork(Document):
    """Compile the functions of a text to one object; the text takes the place of the upload."""

    kind: Literal["compile-object"] = "compile-object"


Work = Annotated[
    ProbeWork | InspectWork | CompileWork | CheckWork | AmendWork | InvokeWork | CompileObjectWork,
    Field(discriminator="kind"),
]


class StartJob(Document):
    """Fork a child for a job.

    ``folder`` has ``model`` (the upload, read-only), a file for each extension, ``output/`` (results),
    ``scratch/``, ``log.txt`` (what the job prints), and the FIFOs ``messages`` and ``grants``.
    """

    kind: Literal["start"] = "start"
    job: str
    folder: str
    confinement: Confinement
    cgroup: str | None = Field(default=None, description="The file by which the child joins its cgroup.")
    cores: int = Field(description="The worker's cores, and the target's if the request names none.")
    work: Work


class TimedCandidate(Document):
    """What a device found about a candidate: the median of each round, or why it failed."""

    seconds: tuple[float, ...] = ()
    error: str | None = None


class CandidatesTimed(Document):
    """The answer to ``CandidatesBuilt``; without devices, ``reason`` says why, and none will come."""

    devices: tuple[SearchDevice, ...] = ()
    reason: str = ""
    candidates: tuple[TimedCandidate, ...] = ()


class EarlyBundleTaken(Document):
    """The answer to ``EarlyBundleMade``: empty if the bundle is published, else why it is not."""

    refusal: str = ""


class RecordsAnswer(Document):
    """The answer to ``RecordsRequested``, ``NearRecordsRequested`` and ``TrialsMeasured``.

    ``stop`` says that the user wants the best so far. ``near`` answers the second only, the most similar
    first. The other fields answer the first only: ``records`` of the job's functions, and those that are
    ``uncompiled``; ``trials`` of its earlier attempts, which took ``elapsed_seconds``; ``count`` includes
    those that are about another target.
    """

    stop: bool = False
    records: tuple[StoredTrial, ...] = ()
    uncompiled: tuple[UncompiledTrial, ...] = ()
    near: tuple[NearTrial, ...] = ()
    trials: tuple[MeasuredTrial, ...] = ()
    count: int = 0
    elapsed_seconds: float = 0.0


class ObjectsFound(Document):
    """The answer to ``ObjectsRequested``: the keys whose objects are in the job's folder now."""

    keys: tuple[Digest, ...] = ()


MAX_ORDER_BYTES = 1 << 22

Order = StartJob
ORDERS: TypeAdapter[Order] = TypeAdapter(Order)


class Ready(Document):
    """The zygote has imported everything."""

    kind: Literal["ready"] = "ready"
    seconds: float
    mcpu: str = Field(description="LLVM's name of the processor.")
    versions: dict[str, str]
    compiler: Digest = Field(description="Of the compiler's code and all installed packages.")
    capability: Capability
    offers: Offers


class Started(Document):
    """A child runs; the id of its process group is its process id."""

    kind: Literal["started"] = "started"
    job: str
    pid: int


class Exited(Document):
    """A child has ended; ``signal`` is 0 if it exited.

    Without an earlier ``Started``, it never started, and ``status`` is the errno.
    """

    kind: Literal["exited"] = "exited"
    job: str
    status: int
    signal: int


Answer = Annotated[Ready | Started | Exited, Field(discriminator="kind")]
ANSWERS: TypeAdapter[Answer] = TypeAdapter(Answer)
