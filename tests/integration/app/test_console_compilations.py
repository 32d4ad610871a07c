"""The console's list of compilations, and the page of one, with what a worker may have stored."""

import json
import math
import re
from html import escape, unescape
from typing import Any

import httpx
import pytest
from app_samples import DIGEST, FIGURES, LATENCY, REPORT, TARGET, PlayedWorker, request, submitted

from app.reports import MAX_REPORT_BYTES
from bessemer.contract.job import Artifact, Progress
from bessemer.contract.problem import ErrorCode, SourcePlace, make_problem
from bessemer.contract.report import (
    BaselineResult,
    FunctionTime,
    MemoryPoint,
    ModelEstimate,
    OperatorUse,
    Preflight,
    RunMemory,
    RunTimes,
    StageTime,
    TuneResult,
)
from bessemer.contract.request import CompilationRequest
from bessemer.contract.stage import Stage
from tests.unit.report_samples import minimal_report, rich_report

PAGE = "/console/compilations"
HOSTILE = "<img src=x onerror=alert(1)>\"'&{{7*7}}"


async def body(api: httpx.AsyncClient, path: str, status: int = 200) -> str:
    response = await api.get(path)
    assert response.status_code == status, response.text
    return response.text


def succeed_with(played: PlayedWorker, job: str, report: bytes, figures: object = FIGURES) -> None:
    """End the job well, with this report."""
    attempt = played.start(job)
    files = (played._keep(attempt, "report.json", report, "application/json"),)
    played.store.jobs.succeed(job, attempt, TARGET, True, figures, files, None)


def checked(played: PlayedWorker, job: str, preflight: Preflight) -> None:
    """End a check with what it found."""
    attempt = played.start(job)
    report = REPORT.model_copy(update={"preflight": preflight, "stopped_after": Stage.TRANSLATE})
    file = played._keep(attempt, "report.json", report.model_dump_json().encode(), "application/json")
    played.store.jobs.stage_started(job, attempt, Stage.TRANSLATE)
    played.store.jobs.stage_finished(job, attempt, StageTime(stage=Stage.TRANSLATE, seconds=1))
    found = (TARGET, None, None, (file,))
    played.store.jobs.succeed(job, attempt, *found, compiles=preflight.compiles)


def states(text: str) -> list[tuple[str, str]]:
    """The badges of a page: their colors and words."""
    return re.findall(r'<span class="badge ([a-z]+)"[^>]*>([^<]*)</span>', text)


PLACE = SourcePlace(operator="aten.special_bessel_j0.default", module_path="head", file="/u/net.py", line=7)
UNSUPPORTED = make_problem(
    ErrorCode.OPERATOR_UNSUPPORTED, "unsupported: aten.special_bessel_j0", stage="translate", places=(PLACE,)
)
UNTRANSLATABLE = Preflight(
    compiles=False,
    problems=(UNSUPPORTED,),
    rule_template="def bessel_j0(call):",
    operators=(
        OperatorUse(name="aten.linear.default", calls=1, flops=64, supported=True),
        OperatorUse(name=PLACE.operator, calls=2, flops=0, supported=False),
    ),
    flops=64,
    parameters=8,
    parameter_bytes=32,
    peak_activation_bytes=64,
)
TRANSLATABLE = UNTRANSLATABLE.model_copy(update={"compiles": True, "problems": (), "rule_template": ""})


@pytest.mark.usefixtures("model")
class TestCheck:
    @pytest.mark.parametrize(
        ("found", "badge"),
        [
            (UNTRANSLATABLE, ("failed", "check: does not compile")),
            (TRANSLATABLE, ("succeeded", "check: compiles")),
        ],
        ids=["does-not-compile", "compiles"],
    )
    async def test_a_check_is_marked_by_what_it_found(
        self, api: httpx.AsyncClient, played: PlayedWorker, found: Preflight, badge: tuple[str, str]
    ) -> None:
        job = await submitted(api, stop_after="translate")
        checked(played, job, found)

        assert states(await body(api, PAGE)) == [badge]
        assert states(await body(api, f"{PAGE}/{job}")) == [badge]
        assert (await api.get(f"/v1/compilations/{job}")).json()["compiles"] is found.compiles

    async def test_a_check_says_what_does_not_compile_where_and_what_to_do(
        self, api: httpx.AsyncClient, played: PlayedWorker
    ) -> None:
        job = await submitted(api, stop_after="translate")
        checked(played, job, UNTRANSLATABLE)

        text = await body(api, f"{PAGE}/{job}")

        assert UNSUPPORTED.title in text and UNSUPPORTED.detail in text and escape(str(PLACE)) in text
        assert "docs/translation.md" in text and "def bessel_j0(call):" in text
        assert text.index(f">{PLACE.operator}</th>") < text.index(">aten.linear.default</th>")
        assert '<li class="failed">\n      <span class="stage">translate</span>' in text

    async def test_a_check_without_a_finding_names_no_problem(
        self, api: httpx.AsyncClient, played: PlayedWorker
    ) -> None:
        job = await submitted(api, stop_after="translate")
        checked(played, job, TRANSLATABLE)

        text = await body(api, f"{PAGE}/{job}")

        assert "It compiles" in text and 'role="alert"' not in text

    async def test_a_check_says_for_which_sizes_its_work_holds(
        self, api: httpx.AsyncClient, played: PlayedWorker
    ) -> None:
        job = await submitted(api, stop_after="translate")
        checked(played, job, TRANSLATABLE.model_copy(update={"sizes": {"batch": 4}}))

        assert "64 floating-point operations a run at batch=4, " in await body(api, f"{PAGE}/{job}")

    async def test_no_text_of_a_finding_is_markup(self, api: httpx.AsyncClient, played: PlayedWorker) -> None:
        job = await submitted(api, stop_after="translate")
        place = PLACE.model_copy(update={"operator": HOSTILE, "module_path": HOSTILE, "file": HOSTILE})
        update = {"title": HOSTILE, "detail": HOSTILE, "advice": HOSTILE, "places": (place,)}
        problem = UNSUPPORTED.model_copy(update=update)
        operators = (OperatorUse(name=HOSTILE, calls=1, flops=0, supported=False),)
        found = {"problems": (problem,), "operators": operators, "rule_template": HOSTILE}
        checked(played, job, UNTRANSLATABLE.model_copy(update=found))

        assert "<img" not in await body(api, f"{PAGE}/{job}")

    async def test_a_check_that_is_answered_from_the_cache_has_the_same_finding(
        self, api: httpx.AsyncClient, played: PlayedWorker
    ) -> None:
        job = await submitted(api, stop_after="translate")
        attempt = played.start(job)
        played.store.jobs.succeed(job, attempt, TARGET, None, None, (), "1" * 64, compiles=False)
        asked = CompilationRequest.model_validate(request(stop_after="translate"))
        again = played.store.for_tenant(attempt.tenant).jobs.submit("a" * 32, asked, identities=("1" * 64,))

        assert again.cached and again.compiles is False


@pytest.mark.usefixtures("model")
class TestList:
    @pytest.mark.parametrize(
        ("fields", "verified", "badge", "note"),
        [
            ({}, True, "succeeded", ""),
            ({"verification": "none"}, False, "unverified", "not verified"),
            ({"stop_after": "build"}, None, "unverified", "stopped after build"),
        ],
    )
    async def test_only_what_was_verified_has_the_color_of_success(
        self,
        api: httpx.AsyncClient,
        played: PlayedWorker,
        fields: dict[str, object],
        verified: bool | None,
        badge: str,
        note: str,
    ) -> None:
        job = await submitted(api, **fields)
        played.store.jobs.succeed(job, played.start(job), TARGET, verified, None, (), None)

        text = await body(api, PAGE)
        chooser = await body(api, "/console/compare")

        assert states(text) == [(badge, "succeeded")] and f"<small>{note}</small>" in text + "<small></small>"
        assert f'<span class="state {badge}">succeeded</span>' in chooser and note in chooser

    async def test_a_row_has_a_short_id_and_whole_sentences(
        self, api: httpx.AsyncClient, played: PlayedWorker
    ) -> None:
        job = await submitted(api, name="alpha")
        peer = BaselineResult(
            name="torch-eager", threads=1, latency=LATENCY, ratio=0.25, ratio_p10=0.25, ratio_p90=0.25
        )
        figures = FIGURES.model_copy(update={"baselines": (peer,)})
        succeed_with(played, job, REPORT.model_dump_json().encode(), figures)

        text = await body(api, PAGE)

        assert f'<small class="mono">{job[:8]}</small>' in text
        assert "4.0× faster</span><small>than torch eager, 1.00 ms</small>" in text  # noqa: RUF001

    async def test_fields_that_a_form_leaves_empty_do_not_filter(
        self, api: httpx.AsyncClient, played: PlayedWorker
    ) -> None:
        await submitted(api, name="alpha")

        assert "alpha" in await body(api, f"{PAGE}?state=&name=&label=&target=&model=")

    @pytest.mark.parametrize(
        ("query", "shown"),
        [
            ("", {"alpha", "beta"}),
            ("name=alpha", {"alpha"}),
            ("label=team%3Dvision", {"alpha"}),
            ("label=team", {"alpha", "beta"}),
            ("label=team&label=nightly", {"beta"}),
            ("state=running", {"beta"}),
            (f"model={DIGEST[:8]}", {"alpha", "beta"}),
            ("target=x86-64-v3", set()),
        ],
    )
    async def test_filters_narrow_the_list(
        self, api: httpx.AsyncClient, played: PlayedWorker, query: str, shown: set[str]
    ) -> None:
        await submitted(api, name="alpha", labels={"team": "vision"})
        played.start(await submitted(api, name="beta", labels={"team": "language", "nightly": ""}))

        text = await body(api, f"{PAGE}?{query}")

        assert {name for name in ("alpha", "beta") if f">{name}</a>" in text} == shown

    async def test_pages_lead_to_older_compilations_with_the_same_filters(
        self, api: httpx.AsyncClient
    ) -> None:
        for name in ("first", "second", "third"):
            await submitted(api, name=name, labels={"team": "vision"})

        text = await body(api, f"{PAGE}?limit=2&label=team")
        older = text.split('rel="next" href="')[1].split('"')[0].replace("&amp;", "&")
        rest = await body(api, f"{PAGE}{older}")

        assert "label=team" in older
        assert ">first</a>" in rest and ">third</a>" not in rest

    @pytest.mark.parametrize("query", ["state=nowhere", "limit=0", "label=%3D", "unknown=1", "model=zz"])
    async def test_a_bad_filter_is_explained_on_the_page(self, api: httpx.AsyncClient, query: str) -> None:
        text = await body(api, f"{PAGE}?{query}", 422)

        assert 'role="alert"' in text and query.partition("=")[0] in text


@pytest.mark.usefixtures("model")
class TestPage:
    async def test_a_queued_compilation_shows_its_place(self, api: httpx.AsyncClient) -> None:
        job = await submitted(api)

        text = await body(api, f"{PAGE}/{job}")

        assert "in the queue" in text and f'data-follow="/v1/compilations/{job}"' in text

    async def test_a_running_search_shows_what_there_is_to_beat(
        self, api: httpx.AsyncClient, played: PlayedWorker
    ) -> None:
        job = await submitted(api, tune={"trials": 64})
        attempt = played.start(job)
        played.store.jobs.stage_started(job, attempt, Stage.TUNE)
        estimate = ModelEstimate(latency_ms=3.21, untuned_ms=5.5, peers_ms={"onnxruntime": 4.75})
        progress = Progress(stage=Stage.TUNE, done=16, total=64, detail=HOSTILE, estimate=estimate)
        played.store.jobs.progress(job, attempt, progress)

        text = await body(api, f"{PAGE}/{job}/progress")

        assert all(each in text for each in ("3.21 ms", "5.50 ms", "4.75 ms", "ONNX Runtime", "16 of 64"))
        assert escape(HOSTILE).split(";")[0] in text and "<img" not in text
        assert 'value="true"' in await body(api, f"{PAGE}/{job}")  # keep the best

    @pytest.mark.parametrize(
        ("stage", "done", "total", "detail", "words"),
        [
            (Stage.TUNE, 16, 64, "model 5 ms; conv2d", "16 of 64 trials model 5 ms; conv2d"),
            (Stage.TUNE, 12, 0, "trying another memory layout", "12 trials trying another memory layout"),
            (Stage.TUNE, 0, 0, "waits for the device 'pi-4'", "waits for the device 'pi-4'"),
            (Stage.BENCHMARK, 3, 12, "", "3 of 12 rounds"),
            (Stage.PACKAGE, 3, 12, "", "3 of 12"),
        ],
    )
    async def test_progress_names_what_it_counts(
        self,
        api: httpx.AsyncClient,
        played: PlayedWorker,
        stage: Stage,
        done: int,
        total: int,
        detail: str,
        words: str,
    ) -> None:
        job = await submitted(api)
        attempt = played.start(job)
        played.store.jobs.stage_started(job, attempt, stage)
        played.store.jobs.progress(job, attempt, Progress(stage=stage, done=done, total=total, detail=detail))

        shown = re.search(r'<div class="now">\s*<p>(.*?)</p>', await body(api, f"{PAGE}/{job}/progress"))
        assert shown is not None
        assert unescape(" ".join(re.sub(r"<[^>]+>", " ", shown[1]).split())) == f"{stage} {words}"

    async def test_a_full_report_is_shown_whole(self, api: httpx.AsyncClient, played: PlayedWorker) -> None:
        job = await submitted(api)
        report = rich_report()
        assert report.benchmark is not None
        place = SourcePlace(operator="aten.conv2d.default", module_path="stem", file="/home/u/net.py", line=7)
        functions = (
            FunctionTime(name="fused_conv2d", calls=2, milliseconds=3.0, share=0.9, places=(place, place)),
            FunctionTime(name="runtime", calls=1, milliseconds=0.2, share=0.1),
        )
        benchmark = report.benchmark.model_copy(
            update={
                "functions": functions,
                "distributions": (
                    RunTimes(name="library", quantiles_ms=tuple(19 + i / 40 for i in range(41))),
                ),
            }
        )
        memory = RunMemory(arena_bytes=4096, calls=(MemoryPoint(function="fused_conv2d", live_bytes=4096),))
        full = report.model_copy(update={"benchmark": benchmark, "memory": memory})
        figures = FIGURES.model_copy(
            update={
                "latency": benchmark.latency,
                "baselines": benchmark.baselines,
                "comparison": benchmark.comparison,
            }
        )
        succeed_with(played, job, full.model_dump_json().encode(), figures)

        text = await body(api, f"{PAGE}/{job}")

        for expected in (
            "1.4× faster than torch eager",  # noqa: RUF001
            "Where the time goes",
            "net.py:7 in stem",
            "Memory over a run",
            "4.00 KiB",
            "How close to the machine",
            "[0, 417]",
            "The search",
            "ONNX Runtime",
            "report.json",
            "the worker has no package",
        ):
            assert expected in text, expected
        assert "style=" not in text and "<script>" not in text

    @pytest.mark.parametrize(
        ("names", "words"),
        [
            (("sum",), "no schedule made for 1 function: sum. General rules schedule it"),
            (("sum", "roll"), "no schedules made for 2 functions: sum and roll. General rules schedule them"),
        ],
    )
    async def test_functions_of_general_schedules_are_explained(
        self, api: httpx.AsyncClient, played: PlayedWorker, names: tuple[str, ...], words: str
    ) -> None:
        job = await submitted(api)
        tune = TuneResult(trials=0, seconds=0.0, tasks=(), unclaimed=len(names), unclaimed_functions=names)
        succeed_with(played, job, REPORT.model_copy(update={"tune": tune}).model_dump_json().encode())

        assert words in await body(api, f"{PAGE}/{job}")

    async def test_the_smallest_report_is_shown(self, api: httpx.AsyncClient, played: PlayedWorker) -> None:
        job = await submitted(api)
        succeed_with(played, job, minimal_report().model_dump_json().encode())

        assert "Median latency of one run" in await body(api, f"{PAGE}/{job}")

    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            (b"", "cannot be read"),
            (b"{", "cannot be read"),
            (b"\xff\xfe", "cannot be read"),
            (b"[" * 100_000, "cannot be read"),
            (b'{"bessemer": 1}', "cannot be read"),
            (b" " * (MAX_REPORT_BYTES + 1), "too large"),
        ],
        ids=["empty", "cut", "not-utf-8", "deep", "other", "large"],
    )
    async def test_a_damaged_report_is_not_an_error(
        self, api: httpx.AsyncClient, played: PlayedWorker, content: bytes, expected: str
    ) -> None:
        job = await submitted(api)
        succeed_with(played, job, content)

        text = await body(api, f"{PAGE}/{job}")

        assert expected in text and "Median latency of one run" in text

    async def test_a_missing_report_is_not_an_error(
        self, api: httpx.AsyncClient, played: PlayedWorker
    ) -> None:
        job = await submitted(api)
        attempt = played.start(job)
        gone = Artifact(name="report.json", digest="0" * 64, size_bytes=10, media_type="application/json")
        played.store.jobs.succeed(job, attempt, TARGET, True, FIGURES, (gone,), None)

        assert "missing in the store" in await body(api, f"{PAGE}/{job}")

    @pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, -1.0, 0.0, 1e308, 5e-324])
    async def test_any_numbers_in_a_report_are_shown(
        self, api: httpx.AsyncClient, played: PlayedWorker, number: float
    ) -> None:
        job = await submitted(api, tune={"trials": 1})
        succeed_with(played, job, json.dumps(_with_numbers(_rich(), number)).encode())

        assert await body(api, f"{PAGE}/{job}")

    async def test_huge_counts_in_a_report_are_shown(
        self, api: httpx.AsyncClient, played: PlayedWorker
    ) -> None:
        job = await submitted(api)
        report = _rich()
        report["model_parameters"] = 10**4000
        report["benchmark"]["functions"][0]["flops"] = 10**4000
        succeed_with(played, job, json.dumps(report).encode())

        assert await body(api, f"{PAGE}/{job}")

    async def test_no_text_of_a_report_is_markup(self, api: httpx.AsyncClient, played: PlayedWorker) -> None:
        job = await submitted(api)
        succeed_with(played, job, json.dumps(_with_texts(_rich())).encode())

        text = await body(api, f"{PAGE}/{job}")

        assert "Where the time goes" in text
        assert "<img" not in text and "onerror" in text
        assert "{{7*7}}" in text

    async def test_a_failure_says_what_where_and_what_to_do(
        self, api: httpx.AsyncClient, played: PlayedWorker
    ) -> None:
        job = await submitted(api)
        attempt = played.start(job)
        problem = make_problem(
            ErrorCode.OPERATOR_UNSUPPORTED,
            HOSTILE,
            stage="translate",
            places=(SourcePlace(operator="aten.sort.default", file=HOSTILE, line=3),),
        )
        log = played._keep(attempt, "log.txt", b"\xff<b>line\n", "text/plain")
        played.store.jobs.fail(job, attempt, problem, (log,))

        text = await body(api, f"{PAGE}/{job}")

        for expected in (
            problem.title,
            "add a translation rule where one can help",
            "operator-unsupported",
            "aten.sort.default",
            "Retry",
        ):
            assert expected in text, expected
        assert "&lt;b&gt;line" in text and "<b>line" not in text and "<img" not in text

    async def test_cancel_leads_back_to_the_page(self, api: httpx.AsyncClient) -> None:
        job = await submitted(api)

        response = await api.post(f"{PAGE}/{job}/cancel")

        where = f"{PAGE}/{job}?ending=cancel"
        assert (response.status_code, response.headers["location"]) == (303, where)
        assert "cancelled" in await body(api, where)

    async def test_keeping_the_best_ends_a_search(self, api: httpx.AsyncClient, played: PlayedWorker) -> None:
        job = await submitted(api, tune={"trials": 64})
        attempt = played.start(job)

        response = await api.post(f"{PAGE}/{job}/cancel", data={"keep_best": "true"})

        assert response.status_code == 303
        assert played.store.jobs.best_requested(job, attempt)
        page = await body(api, response.headers["location"])
        assert "The search ends after the running candidates" in page and "Stop and keep the best" not in page

    async def test_a_compilation_without_a_search_has_no_best_to_keep(self, api: httpx.AsyncClient) -> None:
        job = await submitted(api)

        response = await api.post(f"{PAGE}/{job}/cancel", data={"keep_best": "true"})

        assert response.status_code == 409 and "runs no search" in response.text

    @pytest.mark.parametrize(
        ("tune", "suggested"),
        [
            ({}, 64),
            ({"trials": 8}, 64),
            ({"trials": 100}, 400),
            ({"seconds": 40}, 64),
            ({"trials": 90_000}, 100_000),
        ],
    )
    async def test_a_number_of_trials_is_suggested(
        self, api: httpx.AsyncClient, played: PlayedWorker, tune: dict[str, int], suggested: int
    ) -> None:
        job = await submitted(api, tune=tune)
        played.succeed(job, played.start(job))

        field = re.search(r'<input id="trials"[^>]* value="(\d+)"', await body(api, f"{PAGE}/{job}"))
        assert field is not None and int(field[1]) == suggested

    async def test_again_with_trials_submits_the_request_with_that_number(
        self, api: httpx.AsyncClient, played: PlayedWorker
    ) -> None:
        job = await submitted(api, labels={"team": "vision"}, name="alpha")
        succeed_with(played, job, minimal_report().model_dump_json().encode())
        form = {"token": "ab12", "trials": "32"}

        first = await api.post(f"{PAGE}/{job}/again", data=form)
        second = await api.post(f"{PAGE}/{job}/again", data=form)

        assert first.status_code == 303 and first.headers["location"] == second.headers["location"]
        again = (await api.get(f"/v1/compilations/{first.headers['location'].rpartition('/')[2]}")).json()
        assert again["id"] != job
        assert (again["request"]["tune"]["trials"], again["request"]["labels"]) == (32, {"team": "vision"})

    async def test_a_retry_is_not_answered_from_the_cache(
        self, api: httpx.AsyncClient, played: PlayedWorker
    ) -> None:
        job = await submitted(api)
        played.fail(job, played.start(job))

        response = await api.post(f"{PAGE}/{job}/again", data={"token": "ab12"})
        again = (await api.get(f"/v1/compilations/{response.headers['location'].rpartition('/')[2]}")).json()

        assert (again["state"], again["request"]["cache"]) == ("queued", False)

    @pytest.mark.parametrize(
        "form", [{}, {"token": "x y"}, {"token": "ab", "trials": "0"}, {"token": "ab", "trials": "many"}]
    )
    async def test_a_bad_form_is_explained(self, api: httpx.AsyncClient, form: dict[str, str]) -> None:
        job = await submitted(api)

        response = await api.post(f"{PAGE}/{job}/again", data=form)

        assert response.status_code == 422 and "<h1>" in response.text


def _rich() -> dict[str, Any]:
    report = rich_report()
    assert report.benchmark is not None and REPORT
    place = SourcePlace(operator="aten.add.Tensor", module_path="m", file="net.py", line=7)
    functions = tuple(
        each.model_copy(update={"places": (place, place)}) for each in report.benchmark.functions
    )
    benchmark = report.benchmark.model_copy(
        update={"functions": functions, "distributions": (RunTimes(name="library", quantiles_ms=(1.0, 2.0)),)}
    )
    memory = RunMemory(arena_bytes=4096, calls=(MemoryPoint(function="f", live_bytes=4096),))
    document: dict[str, Any] = json.loads(
        report.model_copy(update={"benchmark": benchmark, "memory": memory}).model_dump_json()
    )
    return document


def _with_numbers(value: Any, number: float) -> Any:
    """The document with another number in place of every float, except in the request."""
    if isinstance(value, dict):
        return {
            key: each if key in ("request", "tolerance") else _with_numbers(each, number)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [_with_numbers(each, number) for each in value]
    return number if isinstance(value, float) else value


def _with_texts(value: Any) -> Any:
    """The document with hostile texts wherever any text is allowed."""
    free = {"name", "operator", "module_path", "file", "reason", "drift", "processor", "function", "bound"}
    if isinstance(value, dict):
        return {
            key: each
            if key in ("request", "target", "inputs", "outputs", "rewrites", "kernels", "sandbox")
            else HOSTILE
            if key in free and isinstance(each, str)
            else _with_texts(each)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [_with_texts(each) for each in value]
    return value
