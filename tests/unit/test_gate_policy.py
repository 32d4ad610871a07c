"""A gate's policy and its messages."""

from math import inf
from xml.etree import ElementTree

import pytest

from bessemer.cli.gating import STATUSES
from bessemer.contract.dynamic import DynamicAxis, DynamicShapes
from bessemer.contract.problem import ErrorCode, SourcePlace, make_problem
from bessemer.contract.report import EntryReport, Report
from bessemer.contract.request import Entry
from bessemer.contract.tensor import TensorSpec
from bessemer.gate.outputs import OutputChange
from bessemer.gate.policy import Bounds, Outcome, Verdict, judge, uncompared, without_base
from bessemer.gate.summary import annotation, complaints, junit, markdown, passed_line
from tests.unit.gate_samples import a_job, a_report

BEFORE = a_report(ratio=0.5, library_bytes=1_000_000)
FOUR_TIMES = a_report(ratio=0.5, p50_ms=8, matmuls=4)
"""The model run four times in ``forward``: torch takes four times as long too."""


def taking(rows: int, report: Report) -> Report:
    """The report of a model whose input has this many rows."""
    return report.model_copy(update={"inputs": (TensorSpec(name=f"x{rows}", shape=(rows, 784)),)})


def outcome(report: Report | None, previous: Report | None = None, **bounds: float) -> Outcome:
    return judge("net.pt2", a_job(), report, previous, Bounds(**bounds))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("verified", "bounds", "verdict", "words"),
    [
        (True, {}, Verdict.PASSED, "did not measure it"),
        (
            True,
            {"latency_ratio": 1.0},
            Verdict.FAILED,
            "--max-latency-ratio cannot be judged: the library was",
        ),
        (True, {"library_bytes": 9}, Verdict.FAILED, "--max-size cannot be judged"),
        (False, {}, Verdict.PASSED, "neither verified nor measured"),
        (False, {"regress_percent": 9.0}, Verdict.FAILED, "--max-regress-percent cannot be judged"),
    ],
)
def test_a_library_that_was_not_measured_meets_no_bound_on_figures(
    verified: bool, bounds: dict[str, float], verdict: Verdict, words: str
) -> None:
    unmeasured = a_report().model_copy(update={"benchmark": None, "verified": verified})

    found = outcome(unmeasured, **bounds)

    assert found.verdict is verdict
    assert words in "; ".join((*found.warnings, *(text for _, text in found.breaches)))


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
        (a_report(p50_ms=2.1), None, {"latency_ms": 2.1}, Verdict.PASSED),
        (a_report(p50_ms=2.2), None, {"latency_ms": 2.0}, Verdict.SLOWER),
        (a_report(p50_ms=2.2, min_ms=1.9), None, {"latency_ms": 2.0}, Verdict.UNSTEADY),
        (a_report(p50_ms=2.2, ours_unsteady="it stalled"), None, {"latency_ms": 2.0}, Verdict.UNSTEADY),
        (a_report(p50_ms=2.0, ours_unsteady="it stalled"), None, {"latency_ms": 2.0}, Verdict.PASSED),
        (FOUR_TIMES, a_report(ours_unsteady="it stalled"), {"regress_percent": 10}, Verdict.UNSTEADY),
        (a_report(memory_bytes=900), None, {"memory_bytes": 900}, Verdict.PASSED),
        (a_report(memory_bytes=901), None, {"memory_bytes": 900}, Verdict.LARGER),
        (a_report(memory_bytes=122_000_000), BEFORE, {"regress_percent": 10}, Verdict.LARGER),
        (FOUR_TIMES, BEFORE, {"regress_percent": 10}, Verdict.SLOWER),
        (FOUR_TIMES, a_report(processor="AMD EPYC 7B13"), {"regress_percent": 10}, Verdict.PASSED),
        (a_report(p50_ms=8, min_ms=2.0, matmuls=4), BEFORE, {"regress_percent": 10}, Verdict.UNSTEADY),
        (a_report(p50_ms=8), BEFORE, {"regress_percent": 10}, Verdict.UNSTEADY),
        (a_report(0.9, p50_ms=8, spread=9), BEFORE, {"regress_percent": 10}, Verdict.UNSTEADY),
        (a_report(0.9, p50_ms=8, spread=9, matmuls=4), BEFORE, {"regress_percent": 10}, Verdict.SLOWER),
        (a_report(p50_ms=1), BEFORE, {"regress_percent": 0}, Verdict.PASSED),
    ],
)
def test_figures_are_judged_by_bounds_and_by_the_base(
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


def test_a_summary_links_to_the_compilation_and_to_the_models_history() -> None:
    named = a_job().model_copy(update={"name": "a b)[x](y"})
    links = markdown(judge("net.pt2", named, a_report(), None, Bounds()), "http://h/console").splitlines()[-1]
    assert f"(http://h/console/compilations/{named.id})" in links
    assert "(http://h/console/models/named?name=a%20b%29%5Bx%5D%28y)" in links
    unnamed = markdown(judge("net.pt2", a_job(), a_report(), None, Bounds()), "http://h/console")
    assert f"/models/{a_job().request.model})" in unnamed
    assert "console" not in markdown(outcome(a_report()))


@pytest.mark.parametrize(
    ("report", "previous", "message"),
    [
        (
            a_report(0.9, spread=9),
            BEFORE,
            "is inconclusive: its rounds range from 0.3 to 2.7; measure again when the worker is idle",
        ),
        (
            a_report(0.9),
            a_report(0.5, spread=16),
            "in the base's report, its rounds range from 0.125 to 2; compare with a report from",
        ),
        (
            a_report(0.5, unsteady="torch eager stalled"),
            BEFORE,
            "is inconclusive: torch eager stalled; measure again when the worker is idle",
        ),
        (
            a_report(p50_ms=8, min_ms=2.0, matmuls=4),
            BEFORE,
            "but its fastest run took 2 ms: measure again when the worker is idle",
        ),
        (
            a_report(p50_ms=8),
            BEFORE,
            "but torch eager took 300.0 % more time on the same operators: the worker was slower",
        ),
    ],
    ids=["now", "base", "stalled", "fastest", "worker"],
)
def test_a_latency_without_a_verdict_has_a_reason(report: Report, previous: Report, message: str) -> None:
    assert message in markdown(outcome(report, previous, regress_percent=10))


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.VERIFY_MISMATCH, Verdict.WRONG),
        (ErrorCode.VERIFY_CRASHED, Verdict.WRONG),
        (ErrorCode.OPERATOR_UNSUPPORTED, Verdict.FAILED),
        (ErrorCode.CANCELLED, Verdict.FAILED),
    ],
)
def test_a_mismatch_is_wrong_and_other_failures_are_failures(code: ErrorCode, verdict: Verdict) -> None:
    assert judge("net.pt2", a_job(make_problem(code, "")), None, None, Bounds()).verdict is verdict


def test_every_verdict_has_a_status_of_its_own() -> None:
    assert set(STATUSES) == set(Verdict)
    assert len(set(STATUSES.values())) == len(Verdict)


@pytest.mark.parametrize(
    ("now", "before", "names", "note"),
    [
        (
            a_report(0.9),
            a_report(cores=4),
            set(),
            "the base is for znver4 +avx512vnni with 4 cores, this library for znver4 +avx512vnni with "
            "2 cores: their figures were not compared",
        ),
        (
            FOUR_TIMES,
            a_report(processor="AMD EPYC 7B13"),
            {"latency / torch eager", "library", "peak memory"},
            "the base was measured on AMD EPYC 7B13 with 2 threads, this library on AMD EPYC 9R14 with "
            "2 threads: the latency in milliseconds was not compared",
        ),
        (
            taking(8, FOUR_TIMES),
            taking(64, BEFORE),
            {"latency / torch eager", "library", "peak memory"},
            "the base was measured on inputs of 64x784:float32, this library on 8x784:float32: "
            "the latency in milliseconds was not compared",
        ),
        (
            a_report(0.9),
            a_report(ratio=None),
            {"latency p50", "library", "peak memory"},
            "the base's report has no latency beside torch eager: the ratio was not compared",
        ),
        (
            a_report(ratio=None),
            BEFORE,
            {"latency p50", "library", "peak memory"},
            "this report has no latency beside torch eager: the ratio was not compared",
        ),
        (
            a_report(),
            BEFORE.model_copy(update={"benchmark": None}),
            set(),
            "the base's report has no benchmark: its figures were not compared",
        ),
    ],
    ids=["target", "processor", "inputs", "base-without-torch", "without-torch", "without-benchmark"],
)
def test_incomparable_figures_give_a_warning_and_the_rest_is_compared(
    now: Report, before: Report, names: set[str], note: str
) -> None:
    found = outcome(now, before, regress_percent=1000)
    assert {measure.name for measure in found.measures if measure.change_percent is not None} == names
    assert found.warnings == (note,)
    assert f"- ⚠️ {note}" in markdown(found)


def named(name: str | None, report: Report) -> Report:
    return report.model_copy(update={"request": report.request.model_copy(update={"name": name})})


@pytest.mark.parametrize(
    ("previous", "notes"),
    [
        (named("cnn", taking(8, a_report())), ("the base is of the model 'cnn', not of 'mlp'",)),
        (named("mlp", taking(8, a_report())), ()),
        (named(None, taking(8, a_report())), ()),
        (
            named("mlp", a_report()),
            (
                "the base is of the model 'mlp' with other inputs or outputs: they differ in number, rank or "
                "dtype",
            ),
        ),
        (
            a_report(),
            ("the base is of a model with other inputs or outputs: they differ in number, rank or dtype",),
        ),
    ],
)
def test_a_base_of_another_model_is_the_first_warning(previous: Report, notes: tuple[str, ...]) -> None:
    job = a_job().model_copy(update={"name": "mlp"})
    found = judge("mlp.pt2", job, taking(1, a_report()), previous, Bounds())
    assert found.warnings[: len(found.warnings) - 1] == notes
    assert "inputs of" in found.warnings[-1]


@pytest.mark.parametrize("option", ["regress_percent", "output_percent"])
def test_a_bound_on_changes_without_a_base_gives_a_warning(option: str) -> None:
    found = outcome(a_report(), **{option: 10})
    (warning,) = found.warnings
    assert warning.endswith("was not applied: the base is missing")
    assert markdown(found).startswith("## ⚠️ net.pt2 for znver4: passed with 1 warning\n")


@pytest.mark.parametrize(
    ("report", "warned"),
    [
        (a_report(), []),
        (FOUR_TIMES, ["latency p50 is 8 ms, 300.0 % more than the base's 2 ms"]),
        (
            a_report(memory_bytes=122_000_000),
            ["peak memory is 122,000,000 bytes, 154.2 % more than the base's 48,000,000 bytes"],
        ),
        (
            a_report(0.6, library_bytes=1_200_000),
            [
                "latency / torch eager is 0.6, 20.0 % more than the base's 0.5",
                "library is 1,200,000 bytes, 20.0 % more than the base's 1,000,000 bytes",
            ],
        ),
        (a_report(0.54, library_bytes=1_090_000, p50_ms=2.1), []),
        (a_report(0.1, library_bytes=1000, p50_ms=0.5), []),
    ],
    ids=["same", "four-times", "memory", "ratio-and-size", "little", "better"],
)
def test_a_large_change_that_no_bound_covers_is_a_warning(report: Report, warned: list[str]) -> None:
    found = outcome(report, BEFORE)
    assert found.verdict is Verdict.PASSED
    assert found.warnings == tuple(f"{text}; no bound covers this (--max-regress-percent)" for text in warned)
    assert markdown(found).startswith("## ⚠️" if warned else "## ✅ net.pt2 for znver4: passed\n")
    case = ElementTree.fromstring(junit(found))
    assert [text.text for text in case.iter("system-out")] == (
        ["\n".join(f"warning: {text}" for text in found.warnings)] if warned else []
    )


def test_milliseconds_are_compared_if_only_the_names_of_inputs_differ() -> None:
    renamed = FOUR_TIMES.model_copy(update={"inputs": (TensorSpec(name="image", shape=(64, 784)),)})
    assert outcome(renamed, taking(64, BEFORE), regress_percent=10).verdict is Verdict.SLOWER


def test_an_absolute_bound_does_not_cover_a_change() -> None:
    assert len(outcome(FOUR_TIMES, BEFORE, latency_ms=100).warnings) == 1


@pytest.mark.parametrize(
    ("percent", "bounds", "verdict", "warnings"),
    [
        (0.9, {}, Verdict.PASSED, 0),
        (100.0, {}, Verdict.PASSED, 1),
        (100.0, {"output_percent": 100}, Verdict.PASSED, 0),
        (100.0, {"output_percent": 99}, Verdict.WRONG, 0),
        (inf, {"output_percent": 1e9}, Verdict.WRONG, 0),
    ],
)
def test_changed_outputs_give_a_warning_and_are_wrong_beyond_a_bound(
    percent: float, bounds: dict[str, float], verdict: Verdict, warnings: int
) -> None:
    change = OutputChange(percent, "output 'y' differs by up to 3; its largest value was 3")
    found = judge("net.pt2", a_job(), a_report(), BEFORE, Bounds(**bounds), (), {"main": change})  # type: ignore[arg-type]
    assert (found.verdict, len(found.warnings)) == (verdict, warnings)


def test_the_summary_names_the_bound_of_every_figure() -> None:
    change = OutputChange(100.0, "output 'y' differs by up to 3; its largest value was 3")
    bounds = Bounds(latency_ratio=1.0, memory_bytes=64_000_000, regress_percent=10)
    now = a_report(0.6, memory_bytes=122_000_000)
    text = markdown(judge("net.pt2", a_job(), now, BEFORE, bounds, (), {"main": change}))
    assert text.startswith("## ❌ net.pt2 for znver4: slower\n")
    message = (
        "latency / torch eager is 0.6, 20.0 % more than the base's 0.5; --max-regress-percent allows 10.0 %"
    )
    assert f"- ❌ **slower: {message}**" in text
    assert "- ⚠️ outputs changed by 100.0 %: output 'y' differs by up to 3" in text
    growth = "10.0 % (`--max-regress-percent`)"
    assert text[text.index("| |") : text.index("\n\nStages")].splitlines() == [
        "| | now | at most | base | change | change at most |",
        "|---|---|---|---|---|---|",
        f"| latency / torch eager | 0.6 | 1 (`--max-latency-ratio`) | 0.5 | +20.0 % ❌ | {growth} |",
        f"| latency p50 | 2 ms | no bound | 2 ms | the same | {growth} |",
        f"| library | 1,000,000 bytes | no bound | 1,000,000 bytes | the same | {growth} |",
        "| peak memory | 122,000,000 bytes ❌ | 64,000,000 bytes (`--max-memory`) | 48,000,000 bytes | "
        f"+154.2 % ❌ | {growth} |",
        "| outputs |  |  |  | 100.0 % ⚠️ | no bound |",
        "| largest error (absolute) | 3.6e-07 | within its tolerance (`verify`) |  |  |  |",
    ]
    assert "Stages: capture 0.25 s, tune 2.00 s (no search)." in text


def test_the_worst_breach_comes_first() -> None:
    change = OutputChange(100.0, "output 'y' differs by up to 3; its largest value was 3")
    bounds = Bounds(latency_ratio=0.1, latency_ms=1, library_bytes=1, output_percent=5)
    found = judge("net.pt2", a_job(), a_report(0.5, spread=9), None, bounds, (), {"main": change})
    assert [text.partition(":")[0] for text in complaints(found)] == ["wrong", "slower", "larger", "unsteady"]


@pytest.mark.parametrize(
    ("bounds", "cell"),
    [
        ({}, "0.5 (unsteady) | no bound"),
        ({"latency_ratio": 1.0}, "0.5 (unsteady) ❌ | 1 (`--max-latency-ratio`)"),
    ],
)
def test_an_unsteady_ratio_is_marked_in_the_table(bounds: dict[str, float], cell: str) -> None:
    assert f"| latency / torch eager | {cell} |" in markdown(outcome(a_report(0.5, spread=9), **bounds))


def test_outputs_that_do_not_match_have_no_percentage() -> None:
    change = OutputChange(inf, "the outputs are scores, expected logits")
    found = judge("net.pt2", a_job(), a_report(), None, Bounds(output_percent=5), (), {"main": change})
    assert complaints(found) == (f"wrong: outputs do not match: {change.detail}",)
    assert "| no match ❌ | 5.0 % (`--max-output-change`) |" in markdown(found)


def decoder(decode_ms: float = 1.0, memory_bytes: int = 48_000_000, name: str = "decode") -> Report:
    """A report with the entry points ``prefill`` and ``decode``."""
    prefill, decode = a_report(), a_report(p50_ms=decode_ms, memory_bytes=memory_bytes)
    entry = EntryReport(
        name=name, inputs=(), outputs=(), comparisons=decode.comparisons, benchmark=decode.benchmark
    )
    request = prefill.request.model_copy(update={"entries": {"prefill": Entry(), name: Entry()}})
    return prefill.model_copy(update={"request": request, "entries": (entry,)})


@pytest.mark.parametrize(
    ("now", "bounds", "verdict", "message"),
    [
        (decoder(), {"regress_percent": 10, "latency_ms": 2.5}, Verdict.PASSED, ""),
        (
            decoder(decode_ms=3.0),
            {"latency_ms": 2.5},
            Verdict.SLOWER,
            "slower: decode: latency p50 is 3 ms, --max-latency-ms allows 2.5 ms",
        ),
        (
            decoder(memory_bytes=96_000_000),
            {"regress_percent": 10},
            Verdict.LARGER,
            "larger: decode: peak memory is 96,000,000 bytes, 100.0 % more than the base's 48,000,000 bytes",
        ),
    ],
)
def test_every_entry_point_is_judged_and_named(
    now: Report, bounds: dict[str, float], verdict: Verdict, message: str
) -> None:
    found = judge("net.pt2", a_job(), now, decoder(), Bounds(**bounds))  # type: ignore[arg-type]
    assert found.verdict is verdict
    assert not message or complaints(found)[0].startswith(message)


SEQUENCES = DynamicShapes(inputs=(DynamicAxis(tensor="x", axis=1, dimension="seq_len"),))


def test_a_latency_says_at_which_dynamic_sizes_it_was_measured() -> None:
    report = decoder(decode_ms=3.0)
    (decode,) = report.entries
    now = report.model_copy(
        update={
            "inputs": (TensorSpec(name="x", shape=(1, 64)),),
            "dynamic": SEQUENCES,
            "entries": (
                decode.model_copy(
                    update={"inputs": (TensorSpec(name="x", shape=(1, 1)),), "dynamic": SEQUENCES}
                ),
            ),
        }
    )
    found = judge("net.pt2", a_job(), now, decoder(), Bounds(latency_ms=2.5))
    assert [measure.name for measure in found.measures if "latency" in measure.name] == [
        "prefill: latency / torch eager at seq_len=64",
        "prefill: latency p50 at seq_len=64",
        "decode: latency / torch eager at seq_len=1",
        "decode: latency p50 at seq_len=1",
    ]
    assert complaints(found) == (
        "slower: decode: latency p50 at seq_len=1 is 3 ms, --max-latency-ms allows 2.5 ms",
    )
    assert "| decode: latency p50 at seq\\_len=1 | 3 ms" in markdown(found)


def test_changed_outputs_name_their_entry_point() -> None:
    change = OutputChange(100.0, "output 'y' differs")
    bounds = Bounds(output_percent=5)
    found = judge("net.pt2", a_job(), decoder(), decoder(), bounds, (), {"decode": change})
    assert complaints(found)[0].startswith("wrong: decode: outputs changed by 100.0 %: output 'y' differs")


@pytest.mark.parametrize(
    ("base", "notes"),
    [
        (BEFORE, ("the base has no entry point 'decode': it was not compared",)),
        (
            decoder(name="write"),
            (
                "the base has no entry point 'decode': it was not compared",
                "the base's entry point 'write' was not compared",
            ),
        ),
    ],
)
def test_an_entry_point_that_the_base_lacks_is_noted(base: Report, notes: tuple[str, ...]) -> None:
    found = judge("net.pt2", a_job(), decoder(), base, Bounds(regress_percent=10))
    assert (found.verdict, found.warnings) == (Verdict.PASSED, notes)
    first = next(measure for measure in found.measures if measure.name == "prefill: latency p50")
    assert first.change_percent == 0


@pytest.mark.parametrize(
    ("entries", "base", "bounds", "refused"),
    [
        (("encoder",), decoder(), {"regress_percent": 5}, True),
        ((), decoder(), {"output_percent": 5}, True),
        (("encoder",), decoder(), {"latency_ms": 5}, False),
        (("encoder", "decode"), decoder(), {"regress_percent": 5}, False),
        (("encoder",), BEFORE, {"regress_percent": 5}, False),
    ],
)
def test_a_bound_on_a_change_needs_an_entry_point_of_the_base(
    entries: tuple[str, ...], base: Report, bounds: dict[str, float], refused: bool
) -> None:
    reason = uncompared(entries, base, Bounds(**bounds))  # type: ignore[arg-type]
    assert bool(reason) is refused
    if refused:
        named = ", ".join(entries) or "main"
        assert f"the entry points prefill, decode, but the model has {named}; make a new base" in reason


def test_an_annotation_is_one_line_with_its_percent_signs_escaped() -> None:
    line = annotation("warning", "net.pt2", "20 % more\nthan before")
    assert line == "::warning title=Bessemer gate::net.pt2: 20 %25 more%0Athan before"


def test_the_summary_of_a_failure_has_its_places_and_its_advice() -> None:
    place = SourcePlace(operator="aten.foo", module_path="encoder.0", file="net.py", line=12)
    problem = make_problem(ErrorCode.OPERATOR_UNSUPPORTED, "aten.foo", stage="translate", places=(place,))
    text = markdown(judge("net.pt2", a_job(problem), None, None, Bounds()))
    assert text.startswith("## ❌ net.pt2 for znver4: failed\n")
    assert "in stage `translate` (`operator-unsupported`)" in text
    assert "- aten.foo in module encoder.0 (net.py:12)" in text
    assert problem.advice.split("`")[0] in text


def test_a_name_cannot_inject_markdown() -> None:
    found = judge("a|b\n# <b>.pt2", a_job(), a_report(), None, Bounds())
    assert markdown(found).splitlines()[0] == "## ✅ a\\|b \\# \\<b\\>.pt2 for znver4: passed"


@pytest.mark.parametrize(("ratio", "failures"), [(0.9, "0"), (1.1, "1")])
def test_the_junit_report_has_one_case(ratio: float, failures: str) -> None:
    suite = ElementTree.fromstring(junit(outcome(a_report(ratio), latency_ratio=1.0)))
    assert (suite.get("tests"), suite.get("failures")) == ("1", failures)
    assert [case.get("name") for case in suite] == ["net.pt2"]
    assert [failure.get("message") for failure in suite.iter("failure")] == ["slower"] * int(failures)


def test_the_junit_report_is_well_formed_for_any_job_text() -> None:
    problem = make_problem(ErrorCode.MODEL_RAISED, "\x1b[31mred\x00\ud800 ]]> é")
    text = junit(judge("net\x07.pt2", a_job(problem), None, None, Bounds()))
    assert [failure.text for failure in ElementTree.fromstring(text).iter("failure")] == [
        f"{problem.title} [model-raised]: \ufffd[31mred\ufffd? ]]> é"
    ]


@pytest.mark.parametrize(
    ("report", "doubt"),
    [
        (a_report(0.5), ""),
        (a_report(0.5, unsteady="torch eager stalled"), "torch eager stalled"),
        (a_report(ours_unsteady="it stalled"), "it stalled"),
    ],
)
def test_an_outcome_says_why_its_times_make_no_base(report: Report, doubt: str) -> None:
    assert judge("net", a_job(), report, None, Bounds()).doubt == doubt


@pytest.mark.parametrize(
    ("bounds", "has_report", "has_outputs", "unmet"),
    [
        (Bounds(latency_ms=1, library_bytes=9), False, False, ()),
        (Bounds(regress_percent=0), False, False, ("--max-regress-percent",)),
        (Bounds(regress_percent=9, output_percent=1), False, True, ("--max-regress-percent",)),
        (Bounds(regress_percent=9, output_percent=1), True, False, ("--max-output-change",)),
        (Bounds(regress_percent=9, output_percent=1), True, True, ()),
    ],
)
def test_bounds_on_changes_need_what_they_compare_with(
    bounds: Bounds, has_report: bool, has_outputs: bool, unmet: tuple[str, ...]
) -> None:
    assert without_base(bounds, has_report, has_outputs) == unmet


@pytest.mark.parametrize(
    ("previous", "bounds", "line"),
    [
        (None, {}, "passed: no bound was given"),
        (None, {"latency_ms": 9}, "passed: 1 bound holds"),
        (BEFORE, {"latency_ms": 9, "regress_percent": 10}, "passed: 2 bounds hold"),
        (
            None,
            {"latency_ms": 9, "regress_percent": 10},
            "passed: 1 bound holds; not judged: --max-regress-percent",
        ),
    ],
)
def test_a_gate_that_passes_counts_the_bounds_that_hold(
    previous: Report | None, bounds: dict[str, float], line: str
) -> None:
    found = outcome(a_report(), previous, **bounds)
    assert found.verdict is Verdict.PASSED
    assert passed_line(found) == line
