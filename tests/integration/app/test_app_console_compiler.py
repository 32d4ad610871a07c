"""The console's pages of the compiler, over artifacts that a job may have filled with anything."""

import json
import re
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from typing import Any

import pytest
from app_samples import PlayedWorker, submitted
from httpx import AsyncClient

from bessemer.contract.code import CODE_INDEX, CODE_TEXTS
from bessemer.contract.ir import IR_INDEX, IR_TEXTS, MAX_TEXT_BYTES
from bessemer.contract.report import FunctionTime
from tests.compiler_files import NOTHING, XSS, kept, module
from tests.unit.report_samples import minimal_report

PAGES = (
    "",
    "?step=1",
    "?step=1&view=unified",
    "?step=1&view=text&line=3",
    "?step=1&against=0&row=100000",
    "/rows?step=1",
    "/lines?step=1",
    "/lines?function=add&kind=assembly",
    "/fold?step=1&against=0&before=0&after=0&count=5",
    "/functions",
    "/functions/add",
    "/graph",
    "/model",
    "/model?q=net",
    "/search",
    "/search?q=a&step=1",
)


class Tags(HTMLParser):
    """Collects the elements and attributes that no page of ours has."""

    def __init__(self) -> None:
        super().__init__()
        self.foreign: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        source = dict(attrs).get("src") or ""
        if tag in ("img", "iframe") or (tag == "script" and not source.startswith("/console/static/")):
            self.foreign.append(tag)
        self.foreign += [name for name in names if name.startswith("on") or name == "style"]


async def opened(
    api: AsyncClient, played: PlayedWorker, files: Mapping[str, bytes], inspect: Mapping[str, bool]
) -> str:
    """The address of the compiler's page of a compilation that left some files."""
    job = await submitted(api, inspect=dict(inspect))
    played.fail_with(job, played.start(job), dict(files))
    return f"/console/compilations/{job}/compiler"


async def test_every_page_shows_what_a_job_kept(api: AsyncClient, played: PlayedWorker, model: str) -> None:
    address = await opened(api, played, kept([module("a = 1"), module("a = 2")]), {"ir": True})
    for page in PAGES:
        response = await api.get(f"{address}{page}")
        assert response.status_code == 200, page
        assert "script-src 'self'" in response.headers["Content-Security-Policy"]
    changes = (await api.get(f"{address}?step=1")).text
    assert "<mark>1</mark>" in changes
    assert "<mark>2</mark>" in changes
    function = (await api.get(f"{address}/functions/add")).text
    assert all(part in function for part in ("TensorIR", "LLVM IR", "Assembly", "net.py:7"))


async def test_no_text_of_a_job_is_markup(api: AsyncClient, played: PlayedWorker, model: str) -> None:
    files = kept([module(XSS), module(f"{XSS} # {XSS}")], XSS, XSS)
    address = await opened(api, played, files, {"ir": True, "assembly": True})
    for page in PAGES:
        response = await api.get(f"{address}{page}")
        assert response.status_code == 200, page
        tags = Tags()
        tags.feed(response.text)
        assert tags.foreign == [], page


@pytest.mark.parametrize(
    "path",
    [
        "?step=2",
        "?step=1&against=9",
        "/functions/nope",
        "/functions/%3Cscript%3E",
        "/lines?function=nope",
        "/rows?step=77",
    ],
)
async def test_what_there_is_not_is_not_found(
    api: AsyncClient, played: PlayedWorker, model: str, path: str
) -> None:
    address = await opened(api, played, kept([module("a"), module("b")]), {"ir": True})
    response = await api.get(address + path)
    assert response.status_code == 404
    assert "<script>" not in response.text


@pytest.mark.parametrize("path", ["?step=-1", "?view=evil", "/lines?step=0&count=100000", "?line=x"])
async def test_a_query_that_is_none_is_refused(
    api: AsyncClient, played: PlayedWorker, model: str, path: str
) -> None:
    address = await opened(api, played, kept([module("a")]), {"ir": True})
    assert (await api.get(address + path)).status_code == 422


def edited(name: str, change: Callable[[Any], object]) -> dict[str, bytes]:
    """The files of a job, with a change in one of the lists."""
    files = kept([module("a = 1"), module("a = 2")])
    document = json.loads(files[name])
    change(document)
    return {**files, name: json.dumps(document).encode()}


def report_with(**fields: int) -> dict[str, bytes]:
    """The files of a job whose report has numbers beyond all that are measured."""
    report = minimal_report()
    assert report.benchmark is not None
    time = FunctionTime(name="add", calls=1, milliseconds=1, share=1).model_copy(update=fields)
    benchmark = report.benchmark.model_copy(update={"functions": (time,)})
    content = report.model_copy(update={"benchmark": benchmark}).model_dump_json()
    return {**kept([module("a = 1"), module("a = 2")]), "report.json": content.encode()}


BROKEN = [
    edited(IR_INDEX, lambda listing: listing["items"][1].update(step=77)),
    edited(IR_INDEX, lambda listing: listing["items"][0].update(step=1)),
    edited(IR_INDEX, lambda listing: listing["items"].reverse()),
    report_with(calls=10**400),
    report_with(flops=10**400),
    report_with(calls=-1),
    {IR_INDEX: b"no list", IR_TEXTS: b""},
    {IR_INDEX: json.dumps({"items": []}).encode()},
    {**kept([module("a")]), IR_TEXTS: b"x" * 999},
    {**kept([module("a")]), CODE_INDEX: b"{}", CODE_TEXTS: b""},
    {**kept([module("a")]), "report.json": b"{}"},
    {IR_INDEX: kept([module("a")])[IR_INDEX]},
    kept(["\ud800\x00\x0c\u2028", "    def ", "    @T.prim_func\n" * 3, "\n" * 5000, "x" * 100_000]),
]


@pytest.mark.parametrize(
    "files",
    BROKEN,
    ids=[
        "step",
        "twice",
        "order",
        "calls",
        "flops",
        "less",
        "list",
        "empty",
        "texts",
        "code",
        "report",
        "gone",
        "odd",
    ],
)
async def test_files_that_a_job_wrote_wrongly_fail_no_page(
    api: AsyncClient, played: PlayedWorker, model: str, files: dict[str, bytes]
) -> None:
    address = await opened(api, played, files, {"ir": True})
    for page in PAGES:
        assert (await api.get(f"{address}{page}")).status_code in (200, 404), page


async def test_texts_beyond_what_a_job_keeps_are_not_unpacked(
    api: AsyncClient, played: PlayedWorker, model: str
) -> None:
    def many(listing: Any) -> None:
        first = listing["items"][0]
        first["text"]["text_bytes"] = MAX_TEXT_BYTES
        listing["items"] = [{**first, "step": step} for step in range(17)]

    address = await opened(api, played, edited(IR_INDEX, many), {"ir": True})
    assert "TensorIR" not in (await api.get(f"{address}/functions/add")).text
    assert (await api.get(f"{address}/functions")).status_code == 200


async def test_a_long_name_that_many_functions_compute_is_cut(
    api: AsyncClient, played: PlayedWorker, model: str
) -> None:
    def long(listing: Any) -> None:
        listing["operators"][0]["place"] = dict.fromkeys(("operator", "module_path", "file"), "x.y" * 100_000)
        function = {**listing["functions"][0], "operators": [0] * 3000}
        listing["functions"] = [{**function, "name": f"add{number}"} for number in range(40)]
        listing["calls"] = [{"function": "add1", "inputs": [], "operators": [0] * 3000}] * 40

    address = await opened(api, played, edited(CODE_INDEX, long), {"ir": True})
    for page in ("/functions", "/functions/add1", "/graph", "/model"):
        response = await api.get(f"{address}{page}")
        assert response.status_code == 200
        assert len(response.content) < 1 << 20, page


async def test_a_large_module_comes_in_windows(api: AsyncClient, played: PlayedWorker, model: str) -> None:
    text = module("\n".join(f"        a{number} = {number}" for number in range(150_000)))[: 1 << 22]
    address = await opened(api, played, kept([module("a"), text]), {"ir": True})
    for page in ("?step=1&view=text&line=120000", "?step=1", "/rows?step=1&row=90000"):
        response = await api.get(f"{address}{page}")
        assert response.status_code == 200
        assert len(response.content) < 1 << 20
    lines = (await api.get(f"{address}/lines?step=1&start=99999&count=2")).text
    assert re.findall(r'class="n">(\d+)<', lines) == ["100000", "100001"]


async def test_text_is_found_wherever_it_is(api: AsyncClient, played: PlayedWorker, model: str) -> None:
    lines = "\n".join(f"        a{number} = {number}" for number in range(12_000))
    address = await opened(api, played, kept([module("a = 1"), module(lines)]), {"ir": True})
    found = (await api.get(f"{address}/find?step=1&q=A1199")).json()
    assert len(found) == 11 and found[-1] - found[-2] == 1
    assert (await api.get(f"{address}/find?step=1&q=A1199&start={found[-2]}")).json() == found[-1:]
    assert len((await api.get(f"{address}/find?step=1&q=a")).json()) == 10_000
    assert (await api.get(f"{address}/find?step=1&q=nowhere")).json() == []


async def test_a_compilation_without_snapshots_says_what_to_ask_for(api: AsyncClient, job: str) -> None:
    response = await api.get(f"/console/compilations/{job}/compiler")
    assert response.status_code == 404
    assert "inspect.ir" in response.text


async def test_a_text_that_was_cut_says_where_and_by_how_much(
    api: AsyncClient, played: PlayedWorker, model: str
) -> None:
    def cut(listing: Any) -> None:
        listing["items"][1]["text"]["whole_bytes"] = 11 << 20

    def cut_code(listing: Any) -> None:
        listing["functions"][0]["assembly"]["whole_bytes"] = 5 << 20
        listing["functions"][0]["llvm_ir"] = {**NOTHING, "whole_bytes": 6 << 20}

    files = {**edited(IR_INDEX, cut), CODE_INDEX: edited(CODE_INDEX, cut_code)[CODE_INDEX]}
    address = await opened(api, played, files, {"ir": True, "assembly": True})
    for page in ("?step=1", "?step=1&view=text", "/functions/add"):
        assert "of 11.0 MiB were kept" in (await api.get(f"{address}{page}")).text, page
    assert "were kept" not in (await api.get(f"{address}?step=0&view=text")).text
    function = (await api.get(f"{address}/functions/add")).text
    assert "of 5.00 MiB were kept" in function and "This text of 6.00 MiB was not kept" in function


async def test_a_function_of_a_gpu_shows_its_ptx(api: AsyncClient, played: PlayedWorker, model: str) -> None:
    def on_a_gpu(listing: Any) -> None:
        function = listing["functions"][0]
        function |= {"ptx": function["assembly"], "llvm_ir": NOTHING, "assembly": NOTHING}

    files = edited(CODE_INDEX, on_a_gpu)
    address = await opened(api, played, files, {"ir": True, "assembly": True})
    page = (await api.get(f"{address}/functions/add")).text
    assert 'id="ptx"' in page and "LLVM IR" not in page
    text = await api.get(f"{address.replace('/console/', '/v1/').replace('/compiler', '/code')}/add/ptx")
    assert text.text.startswith("add:")
    assert (await api.get(f"{address}/lines?function=add&kind=ptx")).text.count('class="l"') == 1
    assert 'functions/add#ptx"' in (await api.get(f"{address}/model")).text


@pytest.mark.parametrize(
    ("query", "marked"),
    [
        ("kind=assembly&line=1", "assembly-L1"),
        ("kind=llvm-ir&line=1", "llvm-ir-L1"),
        ("kind=script&line=5", "script-L5"),
    ],
)
async def test_a_line_of_a_function_has_an_address(
    api: AsyncClient, played: PlayedWorker, model: str, query: str, marked: str
) -> None:
    address = await opened(api, played, kept([module("a = 1")]), {"ir": True, "assembly": True})
    page = (await api.get(f"{address}/functions/add?{query}")).text
    assert re.findall(r'class="l marked" id="([^"]+)"', page) == [marked]
    assert f"line={marked.rpartition('L')[2]}#{marked}" in page


async def test_a_line_in_the_middle_of_a_long_function_is_shown(
    api: AsyncClient, played: PlayedWorker, model: str
) -> None:
    long = module("\n".join(f"        a{number} = {number}" for number in range(5000)))
    address = await opened(api, played, kept([long]), {"ir": True})
    page = (await api.get(f"{address}/functions/add?kind=script&line=3000")).text
    assert 'class="l marked" id="script-L3000"' in page
    assert len(page) < 1 << 18
