"""Looking into the compiler from a browser, with and without scripts."""

import re

import httpx
import pytest
from conftest import LiveApp
from playwright.sync_api import Page, expect

from tests.compiler_files import XSS, kept, module
from tests.integration.app.app_samples import DIGEST, MODEL_BYTES, request

LINES = "\n".join(f"        a{number} = {number}" for number in range(5000))


@pytest.fixture(scope="module")
def compiler(live: LiveApp) -> str:
    """The path of the compiler's page of a compilation that kept a large module and hostile texts."""
    files = kept([module("a = 1"), module(f"a = 2\n        # {XSS}\n{LINES}")], place=XSS)
    return f"/console/compilations/{_failed(live, files)}/compiler"


def _failed(live: LiveApp, files: dict[str, bytes]) -> str:
    with httpx.Client(base_url=live.url, timeout=60) as http:
        http.put(f"/v1/models/{DIGEST}", content=MODEL_BYTES)
        job = str(http.post("/v1/compilations", json=request(inspect={"ir": True})).json()["id"])
    live.played.fail_with(job, live.played.start(job), files)
    return job


@pytest.fixture(scope="module")
def function(live: LiveApp) -> str:
    """The path of a function with a loop whose block begins far below in its LLVM IR."""
    blocks = "\n".join((*(f"  %{number} = add i32 1, 2" for number in range(600)), "for_begin_i_0:"))
    files = kept([module("for i_0 in range(4):\n            x[i_0] = 1")], blocks=blocks)
    return f"/console/compilations/{_failed(live, files)}/compiler/functions/add"


def test_a_click_on_a_loop_brings_its_block_into_view(page: Page, function: str) -> None:
    page.goto(function)
    block = page.locator("#llvm-ir .l", has_text="for_begin_i_0")
    expect(block).to_have_count(0)
    page.locator("#script .l code", has_text="for i_0").click()
    expect(block).to_have_count(1)
    page.locator("#llvm-ir .code").scroll_into_view_if_needed()
    expect(block).to_be_in_viewport()


def test_without_scripts_a_pane_links_to_its_other_lines(plain: Page, function: str) -> None:
    plain.goto(function)
    plain.locator("#llvm-ir").get_by_role("link", name="Later lines").click()
    expect(plain.locator("#llvm-ir-L250")).to_be_attached()
    expect(plain.locator("#llvm-ir").get_by_role("link", name="Earlier lines")).to_be_visible()


def test_a_phone_shows_changes_one_above_the_other(page: Page, compiler: str) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"{compiler}?step=1")
    row = page.locator(".diff .d-changed").first
    before, after = (row.locator(name).bounding_box() for name in (".before", ".after"))
    assert before is not None and after is not None
    assert before["y"] < after["y"] and before["width"] == after["width"] < 390


def test_a_step_shows_what_changed(page: Page, compiler: str) -> None:
    page.goto(f"{compiler}?step=1")
    expect(page.locator("mark", has_text="2").first).to_be_visible()
    expect(page.locator(".fate.changed")).to_have_text("changed")
    page.get_by_role("link", name="Previous change").click()
    expect(page.locator(".passes [aria-current]")).to_contain_text("FuseTIR")


def test_a_line_has_an_address(page: Page, compiler: str) -> None:
    page.goto(f"{compiler}?step=1&view=text&line=4000#L4000")
    expect(page.locator(".l.marked .n")).to_have_text("4000")
    expect(page.locator(".l.marked")).to_be_in_viewport()
    page.locator("#L4002 .n").click()
    expect(page).to_have_url(re.compile(r"line=4002#L4002$"))


def test_a_browser_that_scrolls_gets_the_lines_that_it_shows(page: Page, compiler: str) -> None:
    page.goto(f"{compiler}?step=1&view=text")
    page.locator(".code").evaluate("box => { box.scrollTop = 4500 * 19; }")
    expect(page.locator("#L4510")).to_be_in_viewport()
    assert page.locator(".code .l").count() < 3000


def test_a_hash_alone_leads_to_a_line_that_is_not_loaded(page: Page, compiler: str) -> None:
    page.goto(f"{compiler}?step=1&view=text#L4000")
    expect(page.locator(".l.marked .n")).to_have_text("4000")
    expect(page.locator(".l.marked")).to_be_in_viewport()
    page.evaluate("location.hash = '#L300'")
    expect(page.locator(".l.marked .n")).to_have_text("300")
    expect(page.locator(".l.marked")).to_have_count(1)


def test_a_line_that_a_text_lacks_is_reported(page: Page, compiler: str) -> None:
    page.goto(f"{compiler}?step=1&view=text&line=999999")
    expect(page.locator(".viewer .notice")).to_contain_text("Line 999999 is outside this text")


def test_a_pane_finds_text_in_lines_that_are_not_loaded(page: Page, compiler: str) -> None:
    page.goto(f"{compiler}?step=1&view=text")
    page.locator(".code .l").first.hover()
    page.keyboard.press("Control+f")
    page.keyboard.type("A44")
    page.keyboard.press("Shift+Enter")
    expect(page.locator(".l.found")).to_contain_text("a4499")
    expect(page.locator(".l.found")).to_be_in_viewport()
    expect(page.locator(".find output")).to_contain_text("of 111")
    page.keyboard.press("Enter")
    expect(page.locator(".find output")).to_contain_text("1 of 111")
    expect(page.locator(".l.found")).to_contain_text("a44 ")
    page.keyboard.press("Escape")
    expect(page.locator(".l.found")).to_have_count(0)


def test_a_function_leads_from_its_operators_to_its_assembly(page: Page, compiler: str) -> None:
    page.goto(f"{compiler}/model")
    page.get_by_role("link", name="assembly").first.click()
    expect(page.locator("#assembly h2")).to_contain_text("Assembly")
    expect(page.locator("#llvm-ir code").first).to_contain_text("define")
    expect(page.locator("#script code").first).to_contain_text("prim_func")


def test_a_box_of_the_graph_leads_to_its_function(page: Page, compiler: str) -> None:
    page.goto(f"{compiler}/graph")
    page.locator(".box").first.click()
    expect(page.locator("#script h2")).to_contain_text("TensorIR")


def test_keys_lead_to_the_search_and_to_the_next_change(page: Page, compiler: str) -> None:
    page.goto(compiler)
    page.keyboard.press("n")
    page.wait_for_url(re.compile(r"step=1"))
    page.keyboard.press("/")
    page.keyboard.type("a4321")
    page.keyboard.press("Enter")
    expect(page.locator(".hits mark").first).to_have_text("a4321")


def test_every_page_can_be_read_without_scripts(plain: Page, compiler: str) -> None:
    plain.goto(f"{compiler}?step=1&view=text&line=4000")
    expect(plain.locator("#L4000")).to_contain_text("a")
    plain.get_by_role("link", name="Later lines").click()
    expect(plain.locator("#L4300")).to_be_attached()
    plain.goto(f"{compiler}/graph")
    expect(plain.locator(".box")).to_have_count(2)
