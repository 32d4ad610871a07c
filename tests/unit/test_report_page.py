"""The report's page: complete, self-contained, and safe with hostile names."""

import re
import shlex
from collections.abc import Callable
from html.parser import HTMLParser

import numpy as np
import pytest
from report_samples import (
    MODEL,
    TARGET,
    baseline,
    comparison,
    functions,
    latency,
    minimal_report,
    rich_report,
    task,
)

from bessemer.cli.arguments import read_draft
from bessemer.contract.dynamic import (
    DimensionRange,
    DynamicAxis,
    DynamicDimension,
    DynamicShapes,
    VerifiedSizes,
)
from bessemer.contract.options import BenchmarkOptions, SearchEnd, TuneOptions
from bessemer.contract.report import PassTime, Report
from bessemer.contract.request import CompilationRequest
from bessemer.contract.target import ExplicitTarget, PresetTarget
from bessemer.contract.tensor import InputSpec, TensorSpec
from bessemer.figures.headline import make_headline
from worker.report.pictures import draw_picture
from worker.report.render import render
from worker.report.view import command_lines

HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7*7 }}</style>"
VOID = {"meta", "img", "br", "hr", "link", "input"}


class Page(HTMLParser):
    """The elements, attributes and text of a page; raises where elements do not nest."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def test_a_page_names_the_measured_threads_where_the_target_has_more() -> None:
    report = rich_report()
    larger = report.target.model_copy(update={"cores": 64})
    assert "64 cores" not in Page(render(report)).words
    page = Page(render(report.model_copy(update={"target": larger})))
    assert "compiled for znver4 with 64 cores, measured on 2 threads of" in page.words


def hostile_report() -> Report:
    rich = rich_report()
    first, *rest = functions(3)
    return rich.model_copy(
        update={
            "processor": HOSTILE,
            "versions": rich.versions | {HOSTILE: HOSTILE},
            "target": TARGET.model_copy(update={"name": HOSTILE, "features": (HOSTILE,)}),
            "operators": {HOSTILE: 1},
            "passes": (PassTime(phase=HOSTILE, name=HOSTILE, seconds=0, functions=1),),
            "tune": rich.tune.model_copy(
                update={"tasks": (task(HOSTILE, 1, 1.0, 8),), "unclaimed_functions": (HOSTILE,)}
            ),
            "benchmark": rich.benchmark.model_copy(
                update={
                    "baselines": (baseline(HOSTILE, 1.0, 2.0),),
                    "functions": (first.model_copy(update={"name": HOSTILE}), *rest),
                }
            ),
        }
    )


@pytest.mark.parametrize("make", [minimal_report, rich_report, hostile_report])
def test_the_page_is_well_formed_and_self_contained(
    make: Callable[[], Report],
) -> None:
    html = render(make())
    page = Page(html)
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form", "a"} & set(page.tags)
    assert not [entry for entry in page.attributes if entry[1] in ("src", "href", "xlink:href", "action")]
    assert not [entry for entry in page.attributes if entry[1].startswith("on")]
    style = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)[0]
    assert "url(" not in style
    assert "@import" not in style


@pytest.mark.parametrize(("letters", "shown"), [(100, True), (1 << 19, False)])
def test_the_page_has_the_picture_of_the_graph_unless_it_is_large(letters: int, shown: bool) -> None:
    html = render(minimal_report(), f"<svg>{'x' * letters}</svg>")
    assert ("<svg>xx" in html) is shown
    assert "graph.svg" in html
    assert "graph.svg" not in render(minimal_report())


def test_hostile_names_are_shown_as_text() -> None:
    page = Page(render(hostile_report()))
    assert page.words.count("<script>alert(1)</script>") >= 8
    assert "49" not in re.findall(r"onerror=alert\(2\)>(.{4})", page.words)[0]


def test_identifiers_are_unique_and_every_chart_has_a_title_and_a_description() -> None:
    page = Page(render(rich_report()))
    identifiers = [value for _, name, value in page.attributes if name == "id"]
    assert len(set(identifiers)) == len(identifiers)
    named = [value.split() for _, name, value in page.attributes if name == "aria-labelledby"]
    assert len(named) == 5 + len(rich_report().tune.tasks)
    assert {identifier for pair in named for identifier in pair} == set(identifiers)


def test_the_verdict_comes_with_a_comparison_in_words() -> None:
    words = Page(render(rich_report())).words
    assert "Verified against the original model" in words
    assert "Largest absolute error 1.20e-6 over 2 outputs" in words
    assert "1.4× faster than torch eager" in words  # noqa: RUF001
    assert MODEL in words


def test_an_output_compared_at_several_sizes_is_one_output() -> None:
    outputs = (TensorSpec(name="logits", shape=(1, 1000)),)
    comparisons = tuple(comparison() for _ in range(4))
    report = rich_report().model_copy(update={"outputs": outputs, "comparisons": comparisons})
    assert "over 1 output, at 4 sizes" in Page(render(report)).words


def test_the_page_lists_the_sizes_at_which_outputs_were_compared() -> None:
    verified = tuple(
        VerifiedSizes(sizes={"batch": size}, inputs=(TensorSpec(name="x", shape=(size, 784)),))
        for size in (4, 1)
    )
    words = Page(render(minimal_report().model_copy(update={"verified_sizes": verified}))).words
    assert "The outputs were compared at these sizes:" in words
    assert "at batch=4: x=4x784:float32" in words
    assert "at batch=1: x=1x784:float32" in words
    assert "compared at these sizes" not in Page(render(minimal_report())).words


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (SearchEnd.TRIALS, "ended by tune.trials=512"),
        (SearchEnd.CANDIDATES, "ended because no candidates were left"),
        (SearchEnd.JOB_TIME, "ended because the job needs the time that it has left"),
    ],
)
def test_the_report_explains_why_the_search_stopped(end: SearchEnd, words: str) -> None:
    report = rich_report()
    tune = report.tune.model_copy(update={"ended_by": end})
    assert words in Page(render(report.model_copy(update={"tune": tune}))).words


def test_the_model_s_curve_stands_among_the_lines_to_beat() -> None:
    page = render(rich_report())
    words = Page(page).words
    assert "estimated, 25.5 ms → 19.6 ms" in words
    for line in ("untuned 25.4 ms", "torch eager 27.1 ms", "torch.compile 17.0 ms"):
        assert line in words
    assert "above the chart: ONNX Runtime 90.0 ms" in words
    assert 'class="line" d="M0,' in page


def test_an_unverified_library_is_not_recommended() -> None:
    words = Page(render(rich_report().model_copy(update={"verified": False}))).words
    assert "Not verified" in words
    assert "nothing has run this library" in words


def test_a_library_that_was_compiled_again_says_why() -> None:
    report = minimal_report().model_copy(update={"winograd_mismatch": "output 'y': 1 of 9 elements differ"})
    words = Page(render(report)).words
    assert "output 'y': 1 of 9 elements differ. It was compiled again with direct convolutions." in words


def test_a_missing_sandbox_layer_is_reported() -> None:
    assert "1 of 7 layers did not hold" in Page(render(rich_report())).words


def test_a_job_without_a_sandbox_is_reported() -> None:
    assert "The model ran without a sandbox." in Page(render(minimal_report())).words


def test_a_discarded_search_is_reported_with_both_latencies() -> None:
    words = Page(render(rich_report())).words
    assert "1.31 ms with the search's schedules and 1.27 ms with the default ones" in words
    assert "The library keeps the default schedules" in words


def test_functions_without_a_family_are_named() -> None:
    assert "fused_sort_take" in Page(render(rich_report())).words
    assert "Scheduled by general rules" not in Page(render(minimal_report())).words


def test_kernel_library_calls_are_reported_with_both_times() -> None:
    words = Page(render(rich_report())).words
    assert "linear[1x784,784x128,128]2openblas21.0 µs24.0 µs" in words
    assert "relu[1x128]1own schedulenot measurednot measured" in words
    assert "Kernel libraries" not in Page(render(minimal_report())).words


def test_a_gap_between_functions_and_the_median_run_is_explained() -> None:
    report = rich_report()
    assert report.benchmark is not None
    slow = tuple(
        one.model_copy(update={"milliseconds": 10 * one.milliseconds}) for one in report.benchmark.functions
    )
    busy = report.benchmark.model_copy(update={"functions": slow})
    assert "timed in separate runs" not in Page(render(report)).words
    words = Page(render(report.model_copy(update={"benchmark": busy}))).words
    assert "together they take 204 ms, while the model's median run takes 19.4 ms" in words


def test_the_entry_of_the_runtime_is_explained() -> None:
    report = rich_report()
    assert report.benchmark is not None
    first, *rest = report.benchmark.functions
    runtime = first.model_copy(update={"name": "runtime", "calls": 16})
    busy = report.benchmark.model_copy(update={"functions": (runtime, *rest)})
    said = "“runtime” is the rest of a run"
    assert said in Page(render(report.model_copy(update={"benchmark": busy}))).words
    others = report.benchmark.model_copy(update={"functions": tuple(rest)})
    assert said not in Page(render(report.model_copy(update={"benchmark": others}))).words


def test_a_latency_stands_beside_the_dynamic_sizes_that_it_was_measured_at() -> None:
    axis = DynamicAxis(tensor="x", axis=0, dimension="batch")
    dynamic = DynamicShapes(dimensions=(DynamicDimension(name="batch", minimum=1),), inputs=(axis,))
    report = minimal_report()
    changed = report.model_copy(update={"dynamic": dynamic, "inputs": (TensorSpec(name="x", shape=(8, 3)),)})
    assert "Median latency of one run at batch=8" in Page(render(changed)).words
    assert "of one run at" not in Page(render(report)).words


def test_percentiles_stand_beside_the_runs_behind_them() -> None:
    words = Page(render(rich_report())).words
    runs = rich_report().benchmark.baselines[0].latency.runs
    assert f"and {runs:,} of torch eager" in words


def test_torch_eager_is_the_headline_at_any_position() -> None:
    headline = make_headline((baseline("onnxruntime", 1, 1.5), baseline("torch-eager", 2, 0.5)))
    assert (headline.words, headline.wins) == ("2.0× faster than torch eager", True)  # noqa: RUF001


@pytest.mark.parametrize(
    ("update", "why"),
    [
        ({"ratio_p10": 0.001, "ratio_p90": 0.02}, "Its rounds range from 0.001 to 0.02."),
        (
            {"unsteady": "torch eager took 0.3 ms in one sample and 26 ms in another"},
            "Torch eager took 0.3 ms in one sample and 26 ms in another.",
        ),
    ],
    ids=["rounds", "looks"],
)
def test_an_unsteady_baseline_is_not_the_headline(update: dict[str, object], why: str) -> None:
    peer = baseline("torch-eager", 26, 0.00176).model_copy(update=update)
    headline = make_headline((peer,))
    assert (headline.words, headline.wins) == ("Not compared with torch eager", False)
    assert headline.details.startswith(why) and "cache set to false" in headline.details
    report = rich_report()
    assert report.benchmark is not None
    benchmark = report.benchmark.model_copy(update={"baselines": (peer,)})
    words = Page(render(report.model_copy(update={"benchmark": benchmark}))).words
    assert "568" not in words
    assert "26.0 ms, unsteady" in words


def test_the_page_leads_with_name_verdict_latency_and_where_the_time_goes() -> None:
    html = render(rich_report())
    order = ["<h1>", 'class="verdict"', 'aria-label="Latency"', "Where the time goes", ">Verification<"]
    places = [html.index(part) for part in order]
    assert places == sorted(places)
    assert places[-1] < min(html.index(part) for part in (">How runs vary<", ">Stages<", ">Passes<"))
    assert html.count("<h1>") == 1


@pytest.mark.parametrize("folded", ["FoldBatchnormToConv2D", "attention"], ids=["pass", "idle-rewrite"])
def test_passes_and_rewrites_that_did_nothing_are_folded_away(folded: str) -> None:
    html = render(rich_report())
    place = html.index(f">{folded}<")
    assert html.rindex("<details>", 0, place) > html.rindex("</details>", 0, place)


def test_a_rewrite_that_was_applied_is_shown() -> None:
    html = render(rich_report())
    place = html.index(">gelu_erf<")
    assert html.rindex("<details>", 0, place) < html.rindex("</details>", 0, place)


@pytest.mark.parametrize(
    ("runs", "known"), [(3, (False, False)), (20, (True, False)), (200, (True, True))], ids=str
)
def test_the_page_omits_percentiles_of_too_few_runs(runs: int, known: tuple[bool, bool]) -> None:
    report = minimal_report()
    assert report.benchmark is not None
    few = report.benchmark.model_copy(update={"latency": latency(10.0, runs=runs)})
    words = Page(render(report.model_copy(update={"benchmark": few}))).words
    assert ("10.8 ms" in words, "13.2 ms" in words) == known


@pytest.mark.parametrize(
    ("request_", "options"),
    [
        (CompilationRequest(model=MODEL, target=PresetTarget(preset="host")), "--target host"),
        (
            CompilationRequest(
                model=MODEL,
                target=PresetTarget(preset="znver4", cores=2),
                inputs=(InputSpec(name="x", shape=("batch", 784)), TensorSpec(name="n", shape=())),
                dimensions={"batch": DimensionRange(maximum=64, example=8)},
                constants={"sr": 16000, "mode": "a b", "gain": None, "text": "true"},
                stateless=True,
                tune=TuneOptions(trials=64),
                timeout_seconds=90,
            ),
            "--target znver4 --input x=batchx784 --input n=scalar:float32 "
            "--dimension batch=1..64@8 --constant sr=16000 --constant 'mode=\"a b\"' --constant gain=null "
            "--constant 'text=\"true\"' --option target.cores=2 --option stateless=true "
            "--option tune.trials=64 --option timeout_seconds=90.0",
        ),
        (
            CompilationRequest(
                model=MODEL,
                target=ExplicitTarget(mcpu="znver3", features=("+avx2", "-sse4a")),
                benchmark=BenchmarkOptions(baselines=()),
            ),
            "--option target.mcpu=znver3 --option target.features=+avx2,-sse4a --option benchmark.baselines=",
        ),
    ],
)
def test_the_printed_command_line_makes_the_same_request(request_: CompilationRequest, options: str) -> None:
    line = " ".join(command_lines(request_))
    assert line == f"bessemer compile MODEL {options} --output DIR"
    assert parse_command(line) == request_


def test_the_printed_command_line_names_extensions_and_the_files_of_schedules() -> None:
    mine, tiles = "1" * 64, "2" * 64
    names = {mine: "mine.py", tiles: "tiles.py"}
    request = CompilationRequest(
        model=MODEL,
        target=PresetTarget(preset="host"),
        extensions=(mine, tiles),
        extension_names=names,
        tune=TuneOptions(schedules={"matmul": f"{tiles}:tile"}),
    )
    line = " ".join(command_lines(request, names))
    asked = "--target host --schedule matmul=tiles.py:tile --extension mine.py"
    assert line == f"bessemer compile MODEL {asked} --output DIR"


OPTIONS = ("--input", "--dimension", "--option", "--constant")


def parse_command(line: str) -> CompilationRequest:
    """The request that the command line reads from the arguments."""
    words = shlex.split(line)[3:]
    given = list(zip(words[::2], words[1::2], strict=True))
    named = {name: [value for key, value in given if key == name] for name in OPTIONS}
    target = dict(given).get("--target")
    inputs, dimensions, options, constants = (named[name] for name in OPTIONS)
    draft = read_draft(target, inputs, options, dimensions=dimensions, constants=constants)
    return draft.request.model_copy(update={"model": MODEL})


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("mlp", "mlp for znver4"),
        (HOSTILE, f"{HOSTILE} for znver4"),
        (None, "TorchScript 9f86d081 for znver4"),
    ],
    ids=["a name", "a hostile name", "no name"],
)
def test_the_page_is_titled_by_the_name(name: str | None, title: str) -> None:
    report = rich_report()
    named = report.model_copy(update={"request": report.request.model_copy(update={"name": name})})
    page = Page(render(named))
    assert f"{title} · Bessemer" in page.words
    assert ("script" in page.tags, "img" in page.tags) == (False, False)


def test_workloads_without_a_trial_are_not_called_cheap() -> None:
    report = rich_report()
    assert report.tune is not None
    first, *others = report.tune.tasks
    unsearched = tuple(one.model_copy(update={"history_ms": (), "trials": 0}) for one in others)
    tune = report.tune.model_copy(update={"tasks": (first, *unsearched)})
    words = Page(render(report.model_copy(update={"tune": tune}))).words
    assert f"1 of {len(report.tune.tasks)} workloads has a curve." in words
    assert "costliest" not in words


def test_long_cells_of_the_verification_may_wrap() -> None:
    text = render(rich_report())
    assert re.search(r'<td class="text">(<code>\[[^]]*\]</code> )?[^<]+ for [^<]+</td>', text)
    assert ".wide td.text { white-space: normal;" in text


def test_a_scalar_output_has_no_index() -> None:
    report = rich_report()
    scalars = tuple(one.model_copy(update={"worst_index": ()}) for one in report.comparisons)
    assert "<code>[]</code>" not in render(report.model_copy(update={"comparisons": scalars}))


def test_the_page_shows_inputs_as_pictures() -> None:
    picture = draw_picture('x"', np.eye(28, dtype=np.float32), 28, 28)
    page = Page(render(minimal_report(), pictures=(picture,)))
    assert ("img", "src", picture.uri) in page.attributes
    assert ("img", "alt", 'The input x"') in page.attributes
