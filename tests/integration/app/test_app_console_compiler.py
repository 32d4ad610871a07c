"""The console's pages of the compiler, over artifacts that a job may have filled with anything."""

import json
import re
from collections.abc import Mapping
from html.parser import HTMLParser

import pytest
import zstandard
from app_samples import PlayedWorker, request
from httpx import AsyncClient

from bessemer.contract.code import CODE_INDEX, CODE_TEXTS
from bessemer.contract.ir import IR_INDEX, IR_TEXTS

XSS = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
COUNTS = dict.fromkeys(
    ("functions", "kernels", "operators", "calls", "blocks", "loops", "constants", "constant_bytes"), 1
)
NOTHING = {"offset": 0, "packed_bytes": 0, "text_bytes": 0}
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


def module(body: str) -> str:
    return (
        "@I.ir_module\nclass Module:\n    @T.prim_func(private=True)\n"
        f"    def add(x: T.Buffer((4,))):\n        {body}\n"
    )


def packed(texts: list[str]) -> tuple[bytes, list[dict[str, int]]]:
    """The texts as one file of frames, and where each is."""
    data, places = b"", list[dict[str, int]]()
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        frame = zstandard.compress(encoded)
        places.append({"offset": len(data), "packed_bytes": len(frame), "text_bytes": len(encoded)})
        data += frame
    return data, places


def kept(texts: list[str], name: str = "FuseTIR", place: str = "net.py") -> dict[str, bytes]:
    """The files of a job with a step for each text, and with one function."""
    data, places = packed(texts)
    steps = [
        {"step": number, "stage": "optimize", "phase": name[:100], "name": name, "seconds": 0.1}
        | {"changed": True, "counts": COUNTS, "text": where, "diff": NOTHING}
        for number, where in enumerate(places)
    ]
    code, (llvm, assembly) = packed([f"define i32 @add() ; {place}\n", f"add: # {place}\n"])
    operator = {"operator": place, "module_path": place, "file": place, "line": 7}
    listing = {
        "functions": [
            {"name": "add", "operators": [0], "llvm_ir": llvm, "assembly": assembly},
            {"name": place, "operators": [], "llvm_ir": NOTHING, "assembly": NOTHING},
        ],
        "calls": [
            {"function": "add", "inputs": [], "operators": [0]},
            {"function": place, "inputs": [0, 1], "operators": []},
        ],
        "operators": [{"name": place, "place": operator, "value": place}],
    }
    return {
        IR_INDEX: json.dumps({"items": steps}).encode(),
        IR_TEXTS: data,
        CODE_INDEX: json.dumps(listing).encode(),
        CODE_TEXTS: code,
    }


async def opened(
    api: AsyncClient, played: PlayedWorker, files: Mapping[str, bytes], inspect: Mapping[str, bool]
) -> str:
    """The address of the compiler's page of a compilation that left some files."""
    job = str((await api.post("/v1/compilations", json=request(inspect=dict(inspect)))).json()["id"])
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


BROKEN = [
    {IR_INDEX: b"no list", IR_TEXTS: b""},
    {IR_INDEX: json.dumps({"items": []}).encode()},
    {**kept([module("a")]), IR_TEXTS: b"x" * 999},
    {**kept([module("a")]), CODE_INDEX: b"{}", CODE_TEXTS: b""},
    {**kept([module("a")]), "report.json": b"{}"},
    {IR_INDEX: kept([module("a")])[IR_INDEX]},
    kept(["\ud800\x00\x0c\u2028", "    def ", "    @T.prim_func\n" * 3, "\n" * 5000, "x" * 100_000]),
]


@pytest.mark.parametrize("files", BROKEN, ids=["list", "empty", "texts", "code", "report", "gone", "odd"])
async def test_files_that_a_job_wrote_wrongly_fail_no_page(
    api: AsyncClient, played: PlayedWorker, model: str, files: dict[str, bytes]
) -> None:
    address = await opened(api, played, files, {"ir": True})
    for page in PAGES:
        assert (await api.get(f"{address}{page}")).status_code in (200, 404), page


async def test_a_large_module_comes_in_windows(api: AsyncClient, played: PlayedWorker, model: str) -> None:
    text = module("\n".join(f"        a{number} = {number}" for number in range(150_000)))[: 1 << 22]
    address = await opened(api, played, kept([module("a"), text]), {"ir": True})
    for page in ("?step=1&view=text&line=120000", "?step=1", "/rows?step=1&row=90000"):
        response = await api.get(f"{address}{page}")
        assert response.status_code == 200
        assert len(response.content) < 1 << 20
    lines = (await api.get(f"{address}/lines?step=1&start=99999&count=2")).text
    assert re.findall(r'class="n">(\d+)<', lines) == ["100000", "100001"]


async def test_a_compilation_without_snapshots_says_what_to_ask_for(api: AsyncClient, job: str) -> None:
    response = await api.get(f"/console/compilations/{job}/compiler")
    assert response.status_code == 404
    assert "inspect.ir" in response.text
