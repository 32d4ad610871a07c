"""What is left of a compilation that was to stop before its end."""

from __future__ import annotations

from datetime import datetime

from bessemer.bundle.manifest import LIBRARY, PARAMETERS, REPORT
from bessemer.contract.stage import Stage
from worker.compiler.pipeline.pipeline import Reached
from worker.compiler.pipeline.preflight import make_preflight
from worker.compiler.values import Built, Captured, StageContext, made_from
from worker.package.document import make_report


def write_stopped(reached: Reached, context: StageContext, created_at: datetime) -> tuple[str, ...]:
    """Write ``report.json``, as far as it is known.

    Returns:
        The names of the files that exist by then; once it is built, the library among them, with the
        parameters that it does not contain.
    """
    captured = made_from(reached.value, Captured)
    preflight = None
    if reached.stage is Stage.TRANSLATE and captured is not None:
        preflight = make_preflight(captured, reached.finding)
    report = make_report(reached.value, context, created_at, reached.stage, preflight)
    (context.output / REPORT).write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
    built = made_from(reached.value, Built)
    if built is None:
        return (REPORT,)
    return (REPORT, LIBRARY) if built.parameters is None else (REPORT, LIBRARY, PARAMETERS)
