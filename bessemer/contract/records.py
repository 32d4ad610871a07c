"""The service's tuning records: what searches measured, by function, target, threads and compiler."""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, FiniteFloat, StringConstraints

from bessemer.contract.base import Digest, Document, JobId, Readable
from bessemer.contract.listing import Moment, Page
from bessemer.contract.target import MAX_CORES, Word
from bessemer.contract.triple import architecture_of

MAX_OF_A_KEY = 8
"""The most records of successful trials that are kept for one function, target, threads and compiler."""

MAX_FAILED_OF_A_KEY = 16

NOT_COMPILED = "it does not compile: "
"""The prefix of a failure if the compiler refused the schedule, and would refuse it again."""

WRONG_RESULT = "differs from the default schedule's"
"""Part of a failure if the schedule computed a wrong result."""

MAX_TRACE_CHARACTERS = 1 << 16
MAX_PACKED_CHARACTERS = 1 << 17
MAX_WORKLOAD_BYTES = 1 << 23
"""The limit for the JSON of one function's module, unpacked."""

MAX_EXTENTS = 32
"""The most loops of a function for which similar functions can be found."""

MAX_DATABASE_BYTES = 1 << 24
MAX_IMPORTED = 20_000
MAX_EXPORTED = 2_000

ANY_COMPILER = ""
"""The compiler of imported records, which do not name theirs."""

WorkloadHash = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,20}$")]
"""A structural hash of TVM's, in decimal as in its databases."""

RecordTarget = Annotated[str, StringConstraints(pattern=r"^[ -~]{1,4000}$")]
"""The part of a target that determines its code: ``x86_64 znver4 +avx512vnni``, ``cuda sm_90``."""

CompilerName = Annotated[str, StringConstraints(pattern=r"^[ -~]{0,200}$")]


Printable = Annotated[str, StringConstraints(pattern=r"^[ -~]*$")]
"""Text of one line of ASCII, such as JSON; a database stores it as it is."""

TraceText = Annotated[Printable, Field(max_length=MAX_TRACE_CHARACTERS)]
FunctionName = Annotated[Printable, Field(min_length=1, max_length=200)]
Packed = Annotated[Printable, Field(max_length=MAX_PACKED_CHARACTERS)]
"""A module's JSON, deflated by zlib, in base64."""


Extents = Annotated[
    tuple[Annotated[int, Field(strict=True, ge=1, le=1 << 53)], ...], Field(max_length=MAX_EXTENTS)
]
"""How often each loop of a function's heaviest block runs."""


class SearchScope(Document):
    """What the records of one search have in common.

    ``tvm_target`` is the target in TVM's JSON, for exports.
    """

    target: RecordTarget
    threads: int = Field(ge=1, le=MAX_CORES)
    compiler: CompilerName
    tvm_target: TraceText

    def key(self, workload: str) -> Digest:
        """The key of this search's records of a function."""
        return record_key(workload, self.target, self.threads, self.compiler)

    def key_of_kind(self, kind: Digest) -> Digest:
        """The key of this search's records of functions of a kind."""
        return record_key(kind, self.target, self.threads, self.compiler)

    def key_of_imports(self, workload: str) -> Digest:
        """The key of imported records of a function."""
        return record_key(workload, self.target, self.threads, ANY_COMPILER)


class MeasuredTrial(Document):
    """A candidate that a search measured: its trace and argument types in TVM's JSON, and the outcome.

    ``kind`` identifies similar functions, for which the schedule may be good. They have as many loops, with
    other ``extents``. ``default_seconds`` is the default schedule's time in the same search.
    """

    workload: WorkloadHash
    function: FunctionName
    space: FunctionName
    trace: TraceText
    arguments: TraceText
    seconds: Annotated[FiniteFloat, Field(gt=0)] | None
    failure: Annotated[Readable, Field(max_length=400)] | None = None
    default_seconds: Annotated[FiniteFloat, Field(gt=0)] | None = None
    kind: Digest | None = None
    extents: Extents = ()

    @property
    def digest(self) -> Digest:
        """The digest that distinguishes its schedule from others of the function."""
        return trace_digest(self.trace)


class JudgedTrial(Document):
    """Whether a trial's schedule beat the default one in the final comparison of its job."""

    workload: WorkloadHash
    digest: Digest
    won: bool
    default_seconds: Annotated[FiniteFloat, Field(gt=0)] | None = None


class StoredTrial(Document):
    """A record that may serve a function of a compilation."""

    workload: WorkloadHash
    trace: TraceText
    seconds: float
    won: bool = Field(description="Whether it won in a compilation of the same tenant.")


class UncompiledTrial(Document):
    """A schedule of a function that did not compile in an earlier search of the same tenant."""

    workload: WorkloadHash
    digest: Digest


class SizedFunction(Document):
    """A function without records. Similar functions share one of its ``kinds``, and have other extents."""

    workload: WorkloadHash
    kinds: Annotated[tuple[Digest, ...], Field(max_length=2)]
    extents: Extents


class NearTrial(Document):
    """A record of a function that is similar to ``workload``."""

    workload: WorkloadHash
    trace: TraceText


class TuningRecord(Document):
    """A schedule of one function that a search measured."""

    id: str = Field(description="The record's id.")
    workload: WorkloadHash = Field(description="TVM's structural hash of the function, without constants.")
    function: str = Field(description="The function's name in the compilation that measured it.")
    target: RecordTarget = Field(
        description="What matters of the target for its code: architecture, processor and features."
    )
    threads: int = Field(description="The number of threads.")
    compiler: CompilerName = Field(
        description="Versions of TVM and of Bessemer's schedules; empty if imported: any."
    )
    space: str = Field(description="The search space that proposed it; `imported` for an imported record.")
    seconds: float | None = Field(description="The time of one call; null if it failed.")
    default_seconds: float | None = Field(
        default=None, description="The time of the default schedule in the same job; null if unknown."
    )
    won: bool = Field(
        description="Whether the library of its job uses it: it beat the default schedule in alternation, "
        "and the whole model was faster and verified. Only these serve compilations without trials."
    )
    failure: str | None = Field(default=None, description="Why it failed; null if it ran.")
    shared: bool = Field(description="Whether searches of other tenants that share may measure it.")
    compilation: JobId | None = Field(
        default=None, description="The compilation that measured it last; null for an imported one."
    )
    created_at: datetime = Field(description="When it was measured or imported last.")


class RecordPage(Document):
    """A page of records."""

    items: tuple[TuningRecord, ...] = Field(description="Newest first.")
    next: str | None = Field(description="Pass it as `cursor` for the next page; null on the last page.")


class RecordFilter(Document):
    """Conditions that every record meets."""

    target: Word | None = Field(
        default=None,
        description="Only records for this processor or GPU architecture, such as `znver4` or `sm_90`.",
        examples=["znver4"],
    )
    threads: int | None = Field(
        default=None, ge=1, le=MAX_CORES, description="Only records of this many threads.", examples=[4]
    )
    workload: WorkloadHash | None = Field(
        default=None,
        description="Only records of the function with this structural hash.",
        examples=["18445303897137013792"],
    )
    won: bool | None = Field(
        default=None, description="Only records that won, or only the others.", examples=[True]
    )
    since: Moment | None = Field(
        default=None,
        description="Only records measured or imported since this time, which must have a time zone.",
        examples=["2026-11-01T00:00:00Z"],
    )

    def parameters(self) -> dict[str, str | list[str]]:
        """The given fields as query parameters."""
        given = self.model_dump(mode="json", exclude_defaults=True)
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in given.items()
        }


class RecordQuery(RecordFilter, Page):
    """Filter and page of the list of records."""


class TuningDatabase(Document):
    """The two files of a JSON database of TVM's MetaSchedule, as texts."""

    workloads: str = Field(
        max_length=MAX_DATABASE_BYTES,
        description="`database_workload.json`: a line of JSON for each function.",
    )
    records: str = Field(
        max_length=MAX_DATABASE_BYTES,
        description="`database_tuning_record.json`: a line of JSON for each record.",
    )


class RecordImport(TuningDatabase):
    """A database to import."""

    shared: bool = Field(
        strict=True,
        default=False,
        description="Whether searches of other tenants that share may measure the records.",
    )


class RecordsImported(Document):
    """What an import stored."""

    imported: int = Field(description="Records that are stored now, new or not.")
    functions: int = Field(description="Distinct functions among them.")
    failed: int = Field(description="Records without times, which were left out.")


class RecordsDeleted(Document):
    """What was deleted."""

    deleted: int = Field(description="Number of records.")


EVERY_RECORD = RecordFilter()


def record_key(workload: str, target: str, threads: int, compiler: str) -> str:
    """The key of records about the same code: a SHA-256."""
    return hashlib.sha256(f"{workload}\n{target}\n{threads}\n{compiler}".encode()).hexdigest()


def trace_digest(trace: str) -> Digest:
    """The digest of a trace in TVM's JSON."""
    return hashlib.sha256(trace.encode()).hexdigest()


def record_target(target: Mapping[str, Any]) -> str:
    """The part of a target in TVM's JSON that determines its code, without names and system.

    Raises:
        ValueError: the target is neither for LLVM nor for CUDA, or a field is missing or malformed.
    """
    kind = target.get("kind")
    if kind == "cuda":
        return f"cuda {_word(target, 'arch')}"
    if kind != "llvm":
        raise ValueError("the target is not of the kind `llvm` or `cuda`")
    triple = target.get("mtriple", "x86_64-unknown-linux-gnu")
    if not isinstance(triple, str):
        raise ValueError("the target's `mtriple` is not a text")
    features = target.get("mattr", ())
    if not isinstance(features, list | tuple) or not all(isinstance(each, str) for each in features):
        raise ValueError("the target's `mattr` is not a list of texts")
    return " ".join((architecture_of(triple), _word(target, "mcpu"), *sorted(features)))


def _word(target: Mapping[str, Any], name: str) -> str:
    word = target.get(name)
    if not isinstance(word, str) or not word:
        raise ValueError(f"the target has no `{name}`")
    return word
