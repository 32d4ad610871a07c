"""Texts that would be markup or script on a page that does not escape them, and rows that have them."""

from dataclasses import dataclass
from pathlib import Path

from bessemer.contract.model import Inspection, ModelFormat, Signature
from bessemer.contract.problem import ErrorCode, SourcePlace, make_problem
from bessemer.contract.request import CompilationRequest
from bessemer.contract.target import PresetTarget
from bessemer.store.store import Store
from tests.inspections import inspected
from tests.integration.app.app_samples import IMAGE, REPORT, PlayedWorker
from tests.tenant_data import own

PROBE = "xss-probe"
"""An element that only a page with injected markup has."""
HOSTILE = (
    f"<{PROBE}>",
    f'"><{PROBE}>',
    f"'><{PROBE}>",
    f"</title></textarea></script></style><{PROBE}>",
    f"--><{PROBE}>",
    f"]]><{PROBE}>",
    "<script>window.hit=1</script>",
    "<img src=x onerror=window.hit=1>",
    "<svg/onload=window.hit=1>",
    '" onfocus=window.hit=1 autofocus x="',
    "' onmouseover=window.hit=1 x='",
    '" hx-get="/v1/models" hx-trigger="load" x="',
    "javascript:window.hit=1",
    "data:text/html,<script>window.hit=1</script>",
    "{{7*7}}{%raw%}${7*7}",
    "&lt;img src=x onerror=window.hit=1&gt;",
)
ALL = " ".join(HOSTILE)


@dataclass(frozen=True)
class HostileRows:
    """The ids of rows whose texts are all hostile.

    Attributes:
        model: the digest of a model.
        failed: compilations that failed, one for each text.
        succeeded: a compilation with a report.
    """

    model: str
    failed: tuple[str, ...]
    succeeded: str


def hostile_rows(store: Store, played: PlayedWorker) -> HostileRows:
    """Fill a store as a user and a worker could."""
    data = own(store)
    digest = data.artifacts.put_bytes(ALL.encode()).digest
    data.models.add(digest, len(ALL), HOSTILE[0])
    failed = tuple(_failed(store, played, digest, index, text) for index, text in enumerate(HOSTILE))
    inspected(store, digest, _inspection())
    request = CompilationRequest(
        model=digest,
        target=PresetTarget(preset="host"),
        name=HOSTILE[1],
        labels={"hostile": HOSTILE[1]},
    )
    job = "f" * 32
    data.jobs.submit(job, request, None, frozenset())
    attempt = played.start(job)
    store.logs.write(job, attempt, ALL)
    report = REPORT.model_copy(
        update={"processor": ALL, "versions": {ALL: ALL}, "operators": {ALL: 1}, "request": request}
    )
    Path(played.folder / "report.json").write_text(report.model_dump_json())
    played.succeed(job, attempt)
    return HostileRows(digest, failed, job)


def _failed(store: Store, played: PlayedWorker, digest: str, index: int, text: str) -> str:
    job = f"{index:032x}"
    request = CompilationRequest(
        model=digest, target=PresetTarget(preset="host"), name=text, labels={"hostile": text}
    )
    own(store).jobs.submit(job, request, None, frozenset())
    attempt = played.start(job)
    place = SourcePlace(operator=ALL, module_path=ALL, file=ALL, line=1)
    problem = make_problem(ErrorCode.OPTIMIZE_FAILED, ALL, stage="optimize", places=(place,))
    store.jobs.fail(job, attempt, problem, ())
    return job


def _inspection() -> Inspection:
    signature = Signature(inputs=(IMAGE,), input_names=("x", ALL), parameters=10)
    return Inspection(format=ModelFormat.PT2, signature=signature, method=ALL, other_methods=(ALL,))
