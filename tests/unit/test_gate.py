"""A gate's policy, and what it tells."""

from xml.etree import ElementTree

import pytest

from bessemer.cli.gating import STATUSES
from bessemer.contract.problem import ErrorCode, SourcePlace, make_problem
from bessemer.contract.report import Report
from bessemer.gate.policy import Bounds, Outcome, Verdict, judge
from bessemer.gate.summary import junit, markdown
from tests.unit.gate_samples import a_job, a_report

BEFORE = a_report(ratio=0.5, library_bytes=1_000_000)


def outcome(report: Report | None, previous: Report | None = None, **bounds: float) -> Outcome:
    return judge("net.pt2", a_job(), report, previous, Bounds(**bounds))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("report", "previous", "bounds", "verdict"),
    [
        (a_report(), None, {}, Verdict.PASSED),
        (a_report(0.9), None, {"latency_ratio": 1.0}, Verdict.PASSED),
        (a_report(1.1), None, {"latency_ratio": 1.0}, Verdict.SLOWER),
        (a_report(library_bytes=900), None, {"library_bytes": 900}, Verdict.PASSED),
        (a_report(library_bytes=901), None, {"library_bytes": 900}, Verdict.LARGER),
        (a_report(0.54), BEFORE, {"regress_percent": 10}, Verdict.PASSED),
        (a_report(0.56), BEFORE, {"regress_percent": 10}, Verdict.SLOWER),
        (a_report(0.3), BEFORE, {"regress_percent": 0}, Verdict.PASSED),
        (a_report(library_bytes=1_200_000), BEFORE, {"regress_percent": 10}, Verdict.LARGER),
        (a_report(0.9, 2_000_000), BEFORE, {"regress_percent": 10}, Verdict.SLOWER),
        (a_report(0.9), BEFORE, {}, Verdict.PASSED),
        (a_report(0.9), None, {"regress_percent": 10}, Verdict.PASSED),
        (a_report(0.9), a_report(cores=4), {"regress_percent": 10}, Verdict.PASSED),
        (a_report(0.9), a_report(ratio=None), {"regress_percent": 10}, Verdict.PASSED),
        (a_report(0.9, spread=3.9), BEFORE, {"regress_percent": 10}, Verdict.SLOWER),
        (a_report(0.9, spread=4.1), BEFORE, {"regress_percent": 10}, Verdict.UNSTEADY),
        (a_report(0.5, spread=9), BEFORE, {"regress_percent": 10}, Verdict.UNSTEADY),
        (a_report(0.5, spread=9), None, {"regress_percent": 10}, Verdict.PASSED),
        (a_report(0.5, spread=9), None, {"latency_ratio": 1.0}, Verdict.UNSTEADY),
        (a_report(0.5, unsteady="it stalled"), None, {"latency_ratio": 1.0}, Verdict.UNSTEADY),
        (a_report(0.5, unsteady="it stalled"), None, {}, Verdict.PASSED),
        (a_report(0.9), a_report(0.5, spread=9), {"regress_percent": 10}, Verdict.UNSTEADY),
        (a_report(1.1, spread=9), None, {"latency_ratio": 1.0}, Verdict.UNSTEADY),
        (a_report(0.9, 2_000_000, spread=9), BEFORE, {"regress_percent": 10}, Verdict.LARGER),
    ],
)
def test_figures_are_judged_by_bounds_and_by_what_was_before(
    report: Report, previous: Report | None, bounds: dict[str, float], verdict: Verdict
) -> None:
    assert outcome(report, previous, **bounds).verdict is verdict


def test_a_summary_is_titled_by_name_and_has_the_labels() -> None:
    job = a_job()
    labels = {"team": "vision", "nightly": ""}
    request = job.request.model_copy(update={"labels": labels})
    named = job.model_copy(update={"name": "net<1>", "request": request})
    lines = markdown(judge("models/net.pt2", named, a_report(), None, Bounds())).splitlines()
    assert lines[0].startswith("## ✅ net\\<1\\> for znver4")
    assert lines[-1].endswith(", team=vision, nightly.")
    assert markdown(outcome(a_report())).startswith("## ✅ net.pt2 for znver4")


@pytest.mark.parametrize(
    ("report", "previous", "said"),
    [
        (
            a_report(0.9, spread=9),
            BEFORE,
            "is inconclusive: its rounds range from 0.3 to 2.7; measure again when the worker is idle",
        ),
        (
            a_report(0.9),
            a_report(0.5, spread=16),
            "in the earlier report, its rounds range from 0.125 to 2; compare with a report from",
        ),
        (
            a_report(0.5, unsteady="torch eager stalled"),
            BEFORE,
            "is inconclusive: torch eager stalled; measure again when the worker is idle",
        ),
    ],
    ids=["now", "before", "stalled"],
)
def test_why_a_latency_is_no_verdict_is_told(report: Report, previous: Report, said: str) -> None:
    assert said in markdown(outcome(report, previous, regress_percent=10))


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.VERIFY_MISMATCH, Verdict.WRONG),
        (ErrorCode.VERIFY_CRASHED, Verdict.WRONG),
        (ErrorCode.OPERATOR_UNSUPPORTED, Verdict.FAILED),
        (ErrorCode.CANCELLED, Verdict.FAILED),
    ],
)
def test_a_library_that_differs_is_wrong_and_any_other_failure_is_one(
    code: ErrorCode, verdict: Verdict
) -> None:
    assert judge("net.pt2", a_job(make_problem(code, "")), None, None, Bounds()).verdict is verdict


def test_every_verdict_has_a_status_of_its_own() -> None:
    assert set(STATUSES) == set(Verdict)
    assert len(set(STATUSES.values())) == len(Verdict)


def test_a_report_for_another_machine_is_not_compared_and_that_is_said() -> None:
    found = outcome(a_report(0.9), a_report(cores=4), regress_percent=10)
    assert [measure.before for measure in found.measures] == [None] * len(found.measures)
    assert "of znver4 with 4 cores, this one of znver4 with 2 cores" in found.notes[0]


@pytest.mark.parametrize(
    ("now", "before", "which"),
    [
        (a_report(0.9), a_report(ratio=None), "the earlier report"),
        (a_report(ratio=None), BEFORE, "this report"),
    ],
)
def test_a_latency_that_cannot_be_compared_is_said_and_the_size_still_is(
    now: Report, before: Report, which: str
) -> None:
    found = outcome(now, before, regress_percent=10)
    note = f"{which} has no latency beside torch eager: the latency was not compared"
    assert found.notes == (note,)
    assert f"- {note}" in markdown(found)
    assert [measure.before for measure in found.measures if measure.name == "library"] == [1_000_000]


def test_the_summary_shows_what_broke_and_every_figure_beside_what_was_before() -> None:
    text = markdown(outcome(a_report(0.6, 1_000_000), BEFORE, latency_ratio=1.0, regress_percent=10))
    assert text.startswith("## ❌ net.pt2 for znver4: slower\n")
    assert (
        "- **slower: latency / torch eager is 0.6, 20.0 % more than before (0.5); 10 % are allowed**" in text
    )
    assert "| latency / torch eager | 0.6 ❌ | 0.5 | +20.0 % | at most 1, +10 % |" in text
    assert "| library | 1,000,000 bytes | 1,000,000 bytes | +0.0 % | +10 % |" in text
    assert "Stages: capture 0.25 s, tune 2.00 s." in text


def test_the_summary_of_a_failure_has_its_places_and_its_advice() -> None:
    place = SourcePlace(operator="aten.foo", module_path="encoder.0", file="net.py", line=12)
    problem = make_problem(ErrorCode.OPERATOR_UNSUPPORTED, "aten.foo", stage="translate", places=(place,))
    text = markdown(judge("net.pt2", a_job(problem), None, None, Bounds()))
    assert text.startswith("## ❌ net.pt2 for znver4: failed\n")
    assert "in stage `translate` (`operator-unsupported`)" in text
    assert "- aten.foo in module encoder.0 (net.py:12)" in text
    assert problem.advice.split("`")[0] in text


def test_a_name_cannot_write_markdown_of_its_own() -> None:
    found = judge("a|b\n# <b>.pt2", a_job(), a_report(), None, Bounds())
    assert markdown(found).splitlines()[0] == "## ✅ a\\|b \\# \\<b\\>.pt2 for znver4: passed"


@pytest.mark.parametrize(("ratio", "failures"), [(0.9, "0"), (1.1, "1")])
def test_the_junit_report_has_one_case(ratio: float, failures: str) -> None:
    suite = ElementTree.fromstring(junit(outcome(a_report(ratio), latency_ratio=1.0)))
    assert (suite.get("tests"), suite.get("failures")) == ("1", failures)
    assert [case.get("name") for case in suite] == ["net.pt2"]
    assert [failure.get("message") for failure in suite.iter("failure")] == ["slower"] * int(failures)


def test_the_junit_report_can_be_read_whatever_a_job_said() -> None:
    problem = make_problem(ErrorCode.MODEL_RAISED, "\x1b[31mred\x00\ud800 ]]> é")
    text = junit(judge("net\x07.pt2", a_job(problem), None, None, Bounds()))
    assert [failure.text for failure in ElementTree.fromstring(text).iter("failure")] == [
        f"{problem.title} [model-raised]: \ufffd[31mred\ufffd? ]]> é"
    ]
